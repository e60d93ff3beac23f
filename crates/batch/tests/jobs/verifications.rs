//! Verifications of finished jobs.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use arrow_array::{
    cast::AsArray as _,
    types::{Float32Type, Int64Type},
};
use outrigger_batch::{
    EXPECTED, Error, Format, Host, HostVerification, Job, Period, ROW, Sample, Tolerance,
    Verifiers, VersionMatch, verify_on_hosts, write_features,
};
use outrigger_tables::{Limits, Root, Table};
use outrigger_testkit::oip::{Server, identity};

use crate::harness::{Place, changing, host, model, of_numbers, score};

const SAMPLE: Sample = Sample { rows: 25, seed: 1 };

/// Verifies the job of a place on a host.
async fn verified(place: &Place, host: &Server) -> Result<HostVerification, Error> {
    let hosts = vec![Host::new(&host.address())];
    let tolerance = Tolerance { atol: 1e-6, rtol: 0.0 };
    let timeout = Period(Duration::from_secs(60));
    let verifiers = Verifiers { hosts, ca: None, timeout, memory: None };
    verify_on_hosts(&place.store(), SAMPLE, verifiers, (3, tolerance)).await
}

/// A finished job over two files, where every sixth row is dead.
async fn finished(change: impl Fn(Job) -> Job) -> Place {
    let (place, host) = (Place::new(), host().await);
    let ids = |ids: std::ops::Range<i64>| ids.map(|id| if id % 6 == 5 { -1 } else { id });
    let (a, b) = (place.rows("a.parquet", ids(0..50)), place.rows("b.parquet", ids(50..100)));
    score(change(place.job(&[&a, &b], &[&host.address()]))).await.expect("scored");
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_scored_again_and_compared() {
    let place = finished(|job| job).await;
    let found = verified(&place, &host().await).await.expect("verified");
    assert!(found.passed(), "{found:?}");
    assert_eq!((found.job.rows, found.version_match), (25, VersionMatch::Same));
    assert_eq!((found.columns[0].values, found.columns[0].largest), (50, 0.0));
    let other = changing(|score| score + 0.5).await;
    let found = verified(&place, &other).await.expect("verified");
    assert!(!found.passed());
    assert_eq!((found.columns[0].differing, found.columns[0].largest), (50, 0.5));
    let worst = &found.columns[0].worst[0];
    let id = worst.key["input.row"].as_f64().expect("a row");
    let is_second = worst.key["input.file"].as_str().expect("a file").ends_with("b.parquet");
    let id = if is_second { id + 50.0 } else { id };
    let factor = worst.index.expect("a list") as f64 + 1.0;
    assert_eq!(worst.a.as_f64(), Some(id * factor), "the row is that of the score: {worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_lines_is_compared_too() {
    let lines = |job| Job { output_format: Some(Format::Jsonl), ..job };
    let place = finished(lines).await;
    let found = verified(&place, &host().await).await.expect("verified");
    assert!(found.passed(), "{found:?}");
    assert_eq!((found.job.rows, found.columns[0].values), (25, 50));
    let other = changing(|score| score + 0.5).await;
    let found = verified(&place, &other).await.expect("verified");
    assert_eq!((found.columns[0].differing, found.columns[0].largest), (50, 0.5));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_found() {
    let place = finished(|job| job).await;
    let versions = |version: &'static str| {
        model(move |seen| {
            identity::grpc_with(seen, |reply| reply.model_version = version.to_owned())
        })
    };
    let found = verified(&place, &versions("2").await).await.expect("verified");
    assert!(!found.passed() && found.version_match == VersionMatch::Different);
    let found = verified(&place, &versions("").await).await.expect("verified");
    assert!(found.passed() && found.version_match == VersionMatch::Unknown);
    assert!(found.unversioned && found.answered.is_empty());
    // One answer of the job's version says nothing about those without one.
    let calls = AtomicUsize::new(0);
    let some = model(move |seen| {
        let has_version = calls.fetch_add(1, Relaxed) == 0;
        identity::grpc_with(seen, |reply| {
            reply.model_version = if has_version { "1" } else { "" }.to_owned();
        })
    });
    let found = verified(&place, &some.await).await.expect("verified");
    assert_eq!((found.version_match, found.unversioned), (VersionMatch::Unknown, true));
    assert!(found.answered.contains("1"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_an_input_that_has_changed_is_refused() {
    let (place, host) = (finished(|job| job).await, host().await);
    place.rows("a.parquet", 0..51);
    let error = verified(&place, &host).await.expect_err("it has changed").to_string();
    assert!(error.contains("a.parquet has changed"), "{error}");
    fs::remove_file(place.output().join("manifest.json")).expect("removed");
    let error = verified(&place, &host).await.expect_err("unfinished").to_string();
    assert!(error.contains("is not finished"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_away_is_an_error() {
    let place = finished(|job| job).await;
    let away = model(|_| outrigger_testkit::oip::Answer::Status(14, "not now".to_owned())).await;
    let error = verified(&place, &away).await.expect_err("it is away").to_string();
    assert!(error.contains("not now"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_becomes_a_file_of_features() {
    for format in [Format::Parquet, Format::Jsonl] {
        sample_of_features(format).await;
    }
}

async fn sample_of_features(format: Format) {
    let place = Place::new();
    let host = host().await;
    let file = place.rows("a.parquet", 0..100);
    let job = of_numbers(place.job(&[&file], &[&host.address()]));
    score(Job { output_format: Some(format), ..job }).await.expect("scored");
    let path = place.path("sample.parquet");
    let written = write_features(&place.store(), SAMPLE, None, &path).expect("written");
    assert_eq!((written.rows, written.version.as_deref()), (25, Some("1")));
    assert_eq!(written.compare(["1", "1"]), VersionMatch::Same);
    assert_eq!(written.compare(["1", "2"]), VersionMatch::Different);
    assert_eq!(written.compare([]), VersionMatch::Unknown);
    let table = Table::open(&Root::Any, &path, Limits::default()).expect("a table");
    let names: Vec<_> = table.schema().fields().iter().map(|it| it.name().as_str()).collect();
    assert_eq!(names, [ROW, EXPECTED, "x"], "the tensor's name, once");
    let all = 0..table.rows();
    let mut rows = table.read(std::slice::from_ref(&all), &names).expect("its rows");
    let rows = rows.next(100).expect("readable").expect("rows");
    assert_eq!(rows.num_rows(), 25);
    for row in 0..25 {
        let id = rows.column(2).as_primitive::<Int64Type>().value(row);
        assert_eq!(rows.column(1).as_primitive::<Float32Type>().value(row), id as f32);
        assert_eq!(rows.column(0).as_string::<i32>().value(row), format!("{file}:{id}"));
    }
    let again = place.path("again.parquet");
    write_features(&place.store(), SAMPLE, None, &again).expect("written");
    assert_eq!(fs::read(&again).expect("a file"), fs::read(&path).expect("a file"), "its seed");
}
