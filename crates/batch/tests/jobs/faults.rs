//! Jobs that cannot run, or stop.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use outrigger_batch::{Error, Job, Manifest, MaxErrors, Source, Watch, run};
use outrigger_testkit::oip::{Answer, Protocol, Server, identity};

use crate::harness::{Place, expected, host, ids, model, score, scored};

async fn refused(job: Job, fault: &str) {
    match score(job).await {
        Err(Error::Usage(message)) if message.contains(fault) => {}
        other => panic!("{fault}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_found_before_anything_is_written() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..20);
    let job = || place.job(&[&file], &[&host.address()]);
    refused(Job { keys: Some(vec!["key".to_owned()]), ..job() }, "no column \"key\"").await;
    let mut other = job();
    other.inputs.clear();
    refused(other, "do not describe").await;
    let mut other = job();
    let y = Source { columns: vec!["y".to_owned()], ..job().inputs["x"].clone() };
    other.inputs.insert("x".to_owned(), y);
    refused(other, "no column \"y\"").await;
    let mut other = job();
    other.input.0 = vec![place.path("b.parquet").to_string_lossy().into_owned()];
    refused(other, "b.parquet").await;
    let none =
        Server::start(Protocol::Http2, |_| Answer::Status(5, "unknown model".to_owned())).await;
    refused(place.job(&[&file], &[&none.address()]), "the model \"m\" is not there").await;
    assert!(!place.output().exists());
    fs::create_dir(place.output()).expect("a directory");
    fs::write(place.output().join("notes.txt"), "mine").expect("a file");
    refused(job(), "is not a job").await;
    assert_eq!(fs::read_dir(place.output()).expect("a directory").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_found_before_the_first_row() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..20);
    let content = fs::read(&file).expect("a file");
    fs::write(&file, &content[..content.len() / 2]).expect("a shorter file");
    refused(place.job(&[&file], &[&host.address()]), "a.parquet").await;
    assert_eq!(host.count("/ModelInfer"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_job_does_not_get_the_output_of_one() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..20);
    let job = || place.job(&[&file], &[&host.address()]);
    score(job()).await.expect("scored");
    refused(Job { chunk_rows: Some(9), ..job() }, "another chunk_rows").await;
    place.rows("a.parquet", 0..21);
    refused(job(), "another input").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_model_changes_stops_and_keeps_one_version() {
    let (place, calls) = (Place::new(), AtomicUsize::new(0));
    let server = model(move |seen| {
        let calls = calls.fetch_add(1, Relaxed);
        identity::grpc_with(seen, |reply| {
            reply.model_version = if calls < 6 { "1" } else { "2" }.to_owned();
        })
    })
    .await;
    let file = place.rows("a.parquet", 0..60);
    let job = || place.job(&[&file], &[&server.address()]);
    let error = score(job()).await.expect_err("the version changed");
    assert!(
        matches!(&error, Error::Failed(it) if it.contains("version 2 of the model m")),
        "{error}"
    );
    assert_eq!(Manifest::read(&place.store()), Ok(None));
    server.script(identity::server);
    let manifest = score(job()).await.expect("the first version is there again");
    assert!(manifest.chunks.iter().all(|chunk| chunk.version.as_deref() == Some("1")));
    assert_eq!(scored(&place.output()), expected(0..60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_does_not_mix_answers_with_and_without_a_version() {
    for (first, second, fault) in
        [("1", "", "answered with no version"), ("", "1", "the host that was first named none")]
    {
        let (place, calls) = (Place::new(), AtomicUsize::new(0));
        let server = model(move |seen| {
            let is_first = calls.fetch_add(1, Relaxed) < 6;
            identity::grpc_with(seen, |reply| {
                reply.model_version = if is_first { first } else { second }.to_owned();
            })
        });
        let (file, server) = (place.rows("a.parquet", 0..60), server.await);
        let error = score(place.job(&[&file], &[&server.address()])).await.expect_err(fault);
        assert!(matches!(&error, Error::Failed(it) if it.contains(fault)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_recorded_as_that_of_the_model() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let answered = digest.clone();
    let server = model(move |seen| {
        identity::grpc_with(seen, |reply| reply.model_version.clone_from(&answered))
    });
    let (place, server) = (Place::new(), server.await);
    let file = place.rows("a.parquet", 0..9);
    let manifest = score(place.job(&[&file], &[&server.address()])).await.expect("scored");
    assert_eq!(manifest.digest.as_deref(), Some(&*digest));
    assert!(manifest.chunks.iter().all(|chunk| chunk.version.as_deref() == Some(&*digest)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_too_many_dead_rows_stops() {
    let script = |seen: &_| match ids(seen).iter().any(|id| *id >= 10) {
        true => Answer::Status(3, "not this one".to_owned()),
        false => identity::grpc(seen),
    };
    let (place, one, two) = (Place::new(), model(script).await, model(script).await);
    let file = place.rows("a.parquet", 0..60);
    let mut job = place.job(&[&file], &[&one.address(), &two.address()]);
    job.max_errors = Some(MaxErrors::Rows(5));
    let error = score(job).await.expect_err("too many");
    assert_eq!(error, Error::TooManyDead);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_sent_count_for_max_errors() {
    for most in [MaxErrors::Rows(50), MaxErrors::Share(0.1)] {
        let (place, host) = (Place::new(), host().await);
        // The first rows are valid, and all others have no numbers.
        let file = place.rows("a.parquet", (0..20_000).map(|id| if id < 100 { id } else { -1 }));
        let mut job = place.job(&[&file], &[&host.address()]);
        (job.batch_size, job.chunk_rows) = (10, Some(100));
        job.max_errors = Some(most);
        let watch = Watch::default();
        let error = run(job, place.store(), watch.clone()).await.expect_err("too many");
        assert_eq!(error, Error::TooManyDead, "{most:?}");
        assert!(watch.get().dead < 19_900, "{most:?}: it stops before the end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_counts_in_the_end_of_a_job_with_few_rows() {
    let (place, host) = (Place::new(), host().await);
    // Ten rows of a hundred are dead.
    let file = place.rows("a.parquet", (0..100).map(|id| if id % 10 == 0 { -1 } else { id }));
    let mut job = place.job(&[&file], &[&host.address()]);
    job.max_errors = Some(MaxErrors::Share(0.09));
    assert_eq!(score(job.clone()).await, Err(Error::TooManyDead));
    assert_eq!(score(job.clone()).await, Err(Error::TooManyDead), "also when it is run again");
    assert_eq!(Manifest::read(&place.store()), Ok(None));
    job.max_errors = Some(MaxErrors::Share(0.1));
    let manifest = score(job).await.expect("no more than a tenth");
    assert_eq!((manifest.scored, manifest.dead), (90, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_of_earlier_runs_count_for_max_errors() {
    let (place, host) = (Place::new(), host().await);
    // Two rows of each chunk are dead.
    let file = place.rows("a.parquet", (0..70).map(|id| if id % 7 > 4 { -1 } else { id }));
    let mut job = place.job(&[&file], &[&host.address()]);
    job.max_errors = Some(MaxErrors::Rows(11));
    assert_eq!(score(job.clone()).await, Err(Error::TooManyDead));
    let commits = place.store().list("commit").expect("commits").len() as u64;
    assert!(commits > 0);
    // Only committed rows count.
    job.max_errors = Some(MaxErrors::Rows(2 * commits - 1));
    let sent = host.count("/ModelInfer");
    assert_eq!(score(job.clone()).await, Err(Error::TooManyDead));
    assert_eq!(host.count("/ModelInfer"), sent, "it stops before the first row");
    job.max_errors = Some(MaxErrors::Rows(19));
    assert_eq!(score(job.clone()).await, Err(Error::TooManyDead));
    assert_eq!(Manifest::read(&place.store()), Ok(None));
    job.max_errors = Some(MaxErrors::Rows(20));
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (50, 20));
}
