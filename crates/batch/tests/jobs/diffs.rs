//! Comparisons of the outputs of jobs.

use std::fs;

use outrigger_batch::{
    DiffSettings, Difference, Error, Format, Job, Manifest, Output, Store, compact, diff,
};
use serde_json::json;

use crate::harness::{Place, changing, host, of_numbers, score};

const SETTINGS: DiffSettings =
    DiffSettings { keys: Vec::new(), scores: Vec::new(), memory: 64 << 20, listed: 3 };

/// The outputs `a` and `b` of a place.
fn stores(place: &Place) -> [Store; 2] {
    ["a", "b"].map(|name| Store::local(place.path(name)))
}

fn compared(place: &Place, settings: &DiffSettings) -> Result<Difference, Error> {
    let [a, b] = stores(place);
    diff(&a, &b, settings)
}

/// Scores these files with a host that returns its inputs as the output `a`, and these others with
/// one that changes them as the output `b`.
async fn scored(
    place: &Place,
    (a, b): (&[&str], &[&str]),
    change: impl Fn(f32) -> f32 + Send + Sync + 'static,
) {
    let (one, other) = (host().await, changing(change).await);
    for (files, host, name) in [(a, one.address(), "a"), (b, other.address(), "b")] {
        let job = Job { output: place.path(name), ..place.job(files, &[&host]) };
        score(of_numbers(job)).await.expect("scored");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_are_compared_by_key() {
    let place = Place::new();
    let a = place.rows("a.parquet", (0..100).filter(|id| *id != 50));
    let b = place.rows("b.parquet", (0..99).filter(|id| *id != 60).rev());
    scored(&place, (&[&a], &[&b]), |score| if score == 7.0 { 9.5 } else { score }).await;
    // The result is the same if the rows meet in memory and in files.
    for memory in [64 << 20, 2_000] {
        let found = compared(&place, &DiffSettings { memory, ..SETTINGS }).expect("compared");
        assert_eq!((found.keys, found.rows), (vec!["id".to_owned()], 97));
        assert_eq!((found.only_a, found.only_b), (2, 1));
        let only = json!([found.first_only_a, found.first_only_b]);
        assert_eq!(only, json!([[{"id": 60}, {"id": 99}], [{"id": 50}]]));
        let [column] = &found.columns[..] else { panic!("one score column") };
        assert_eq!((column.values, column.differing, column.unequal), (97, 1, 0));
        assert_eq!((&*column.column, column.largest), ("OUT_x", 2.5));
        assert!((column.mean - 2.5 / 97.0).abs() < 1e-12, "{}", column.mean);
        assert_eq!((&column.worst[0].key["id"], &column.worst[0].b), (&json!(7), &json!(9.5)));
        // 7 has the rank of 9.5 now: 8 and 9 come before it. Squares of differences: 4 + 1 + 1.
        let expected = 1.0 - 6.0 * 6.0 / (97.0 * (97.0 * 97.0 - 1.0));
        let correlation = column.rank_correlation.expect("defined");
        assert!((correlation - expected).abs() < 1e-12, "{correlation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_exceeded_by_larger_differences_and_missing_rows() {
    let place = Place::new();
    let a = place.rows("a.parquet", 0..20);
    let b = place.rows("b.parquet", 0..21);
    scored(&place, (&[&a], &[&a]), |score| score + 0.25).await;
    let found = compared(&place, &SETTINGS).expect("compared");
    assert!(found.exceeds(0.2) && !found.exceeds(0.25));
    let other = Place::new();
    scored(&other, (&[&a], &[&b]), |score| score).await;
    assert!(compared(&other, &SETTINGS).expect("compared").exceeds(100.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_jobs_and_compactions_are_compared() {
    let (place, one) = (Place::new(), host().await);
    let other = changing(|score| if score == 6.0 { f32::NAN } else { score }).await;
    let file = place.rows("a.parquet", 0..30);
    for (host, name) in [(&one, "a"), (&other, "b")] {
        let job = place.job(&[&file], &[&host.address()]);
        score(Job { output: place.path(name), ..job }).await.expect("scored");
    }
    let [a, b] = stores(&place);
    let compacted = Store::local(place.path("compacted"));
    compact(&a, &compacted, 1 << 20).expect("compacted");
    for a in [&a, &compacted] {
        let found = diff(a, &b, &SETTINGS).expect("compared");
        assert_eq!((found.rows, found.only_a, found.only_b), (30, 0, 0));
        let column = &found.columns[0];
        assert_eq!((column.values, column.unequal, column.largest), (60, 2, 0.0));
        let worst = |at: usize| {
            let worst = &column.worst[at];
            (worst.key["id"].as_i64(), worst.index, worst.b.as_str())
        };
        assert_eq!(worst(0), (Some(3), Some(1), Some("NaN")));
        assert_eq!(worst(1), (Some(6), Some(0), Some("NaN")));
    }
    assert!(diff(&a, &compacted, &SETTINGS).is_ok_and(|found| !found.exceeds(0.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_compared_as_parquet_is() {
    let (place, one) = (Place::new(), host().await);
    let other = changing(|score| match score {
        6.0 => f32::NAN,
        9.0 => 9.1,
        score => score,
    });
    let other = other.await;
    let a = place.rows("a.parquet", (0..30).filter(|id| *id != 20));
    let b = place.rows("b.parquet", 0..31);
    for (host, file, side) in [(&one, &a, "a"), (&other, &b, "b")] {
        for format in [Format::Parquet, Format::Jsonl] {
            let mut job = place.job(&[file], &[&host.address()]);
            (job.output, job.output_format) =
                (place.path(&format!("{side}-{format}")), Some(format));
            score(job).await.expect("scored");
        }
    }
    let store = |name: &str| Store::local(place.path(name));
    let compacted = store("compacted");
    compact(&store("a-jsonl"), &compacted, 300).expect("compacted");
    let found = |a: &Store, b: &Store| {
        let mut found = diff(a, b, &SETTINGS).expect("compared");
        (found.a, found.b) = Default::default();
        found
    };
    let expected = found(&store("a-parquet"), &store("b-parquet"));
    assert_eq!((expected.rows, expected.only_a, expected.only_b), (29, 0, 2));
    assert_eq!(expected.first_only_b[0]["id"], json!(20));
    assert_eq!(expected.columns[0].unequal, 2);
    assert!(expected.columns[0].largest > 0.09);
    let lines = store("b-jsonl");
    for a in [store("a-jsonl"), store("a-parquet"), compacted] {
        assert_eq!(found(&a, &lines), expected, "{a:?}");
    }
    assert_eq!(found(&store("a-jsonl"), &store("b-parquet")), expected);
    let both = DiffSettings { keys: vec!["OUT_x".to_owned()], ..SETTINGS };
    let refused = diff(&store("a-jsonl"), &lines, &both);
    assert!(
        matches!(&refused, Err(Error::Usage(it)) if it.contains("both a key and a score")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_do_not_fit_are_refused() {
    let place = Place::new();
    let file = place.rows("a.parquet", 0..20);
    scored(&place, (&[&file], &[&file]), |score| score).await;
    let refused = |settings: DiffSettings, fault: &str| match compared(&place, &settings) {
        Err(Error::Usage(message)) if message.contains(fault) => {}
        other => panic!("{fault}: {other:?}"),
    };
    let keys = |name: &str| DiffSettings { keys: vec![name.to_owned()], ..SETTINGS };
    refused(keys("key"), "no column \"key\"");
    let scores = |name: &str| DiffSettings { scores: vec![name.to_owned()], ..SETTINGS };
    refused(scores("id"), "no score column \"id\"; it has OUT_x");
    let named = host().await;
    let mut job = of_numbers(place.job(&[&file], &[&named.address()]));
    job.outputs.insert("score".to_owned(), Output::of("OUT_x"));
    score(Job { output: place.path("c"), ..job }).await.expect("scored");
    let [a, _] = stores(&place);
    let other = diff(&a, &Store::local(place.path("c")), &SETTINGS);
    assert!(
        matches!(&other, Err(Error::Usage(it)) if it.contains("no score column \"score\"")),
        "{other:?}"
    );
    let nothing = diff(&a, &Store::local(place.path("d")), &SETTINGS);
    assert!(matches!(&nothing, Err(Error::Usage(it)) if it.contains("is not a job")));
    fs::remove_file(place.path("b").join("manifest.json")).expect("removed");
    refused(SETTINGS, "is not finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_missing_or_were_changed_are_found() {
    let place = Place::new();
    let file = place.rows("a.parquet", 0..20);
    scored(&place, (&[&file], &[&file]), |score| score).await;
    let [_, b] = stores(&place);
    let manifest = Manifest::read(&b).expect("readable").expect("a manifest");
    let last = manifest.files().last().expect("a file");
    let path = place.path("b").join(&last.name);
    let content = fs::read(&path).expect("a file");
    let mut changed = content.clone();
    changed[10] ^= 1;
    fs::write(&path, changed).expect("written");
    let error = compared(&place, &SETTINGS).expect_err("it was changed").to_string();
    assert!(error.contains(&last.name) && error.contains("was changed"), "{error}");
    fs::remove_file(&path).expect("removed");
    let error = compared(&place, &SETTINGS).expect_err("it is missing").to_string();
    assert!(error.contains(&last.name) && error.contains("is missing"), "{error}");
}
