//! Chunks that are committed in parts: those that take long, and those of jobs that are interrupted.

use std::time::Duration;

use outrigger_batch::{Environment, Error, Job, MaxErrors, Periods, Status, Watch, run_in};
use outrigger_testkit::oip::{Answer, Server, identity};
use tokio::time::sleep;

use crate::harness::{
    Place, expected, failing_on, host, ids, model, reasons, requests, score, scored,
};

/// The surroundings in which each batch is a part of its chunk, or in which no part is due.
fn environment(part: Duration, drain: Duration) -> Environment {
    let periods = Periods { part, drain, ..Periods::default() };
    Environment { periods, ..Environment::default() }
}

/// Interrupts a job when so many rows are done. `drain` is the wait for its requests.
async fn interrupted(job: Job, place: &Place, done: u64, drain: Duration) {
    let watch = Watch::default();
    let watched = watch.clone();
    let store = place.store();
    let environment = environment(Duration::from_secs(3600), drain);
    let running = tokio::spawn(async move { run_in(&environment, job, store, watched).await });
    while watch.get().done() < done {
        sleep(Duration::from_millis(5)).await;
    }
    watch.interrupt();
    assert_eq!(running.await.expect("no panic"), Err(Error::Interrupted));
}

/// The ids in all requests of a host but the first ones, with which a job begins.
fn sent(host: &Server) -> Vec<i64> {
    requests(host).concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_takes_long_is_committed_in_parts() {
    let bad = |id: i64| [4, 8].contains(&id);
    let (place, one, two) =
        (Place::new(), model(failing_on(bad)).await, model(failing_on(bad)).await);
    let file = place.rows("a.parquet", (0..40).map(|id| if id == 11 { -1 } else { id }));
    let mut job = place.job(&[&file], &[&one.address(), &two.address()]);
    job.chunk_rows = Some(20);
    let environment = environment(Duration::ZERO, Duration::ZERO);
    let manifest = run_in(&environment, job.clone(), place.store(), Watch::default()).await;
    let manifest = manifest.expect("scored");
    assert_eq!((manifest.rows, manifest.scored, manifest.dead), (40, 37, 3));
    let starts: Vec<_> = manifest.chunks.iter().map(|part| (part.chunk, part.start)).collect();
    assert!(starts.len() > 2 && starts.is_sorted(), "{starts:?}");
    let rows = expected((0..40).filter(|id| !bad(*id) && *id != 11));
    assert_eq!(scored(&place.output()), rows);
    let dead: Vec<_> = reasons(&place.output()).into_iter().map(|(row, _)| row).collect();
    assert_eq!(dead, [4, 8, 11]);
    assert_eq!(place.store().list("commit").expect("listed").len(), 2, "the parts are in these");
    // Its dead letters and rows are found again.
    let again = Job {
        retry: Some(place.output()),
        ..Job::new(Vec::new(), place.path("again"), "", job.hosts.0)
    };
    assert_eq!(score(again).await.expect("ended").dead, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_job_keeps_what_is_scored() {
    let place = Place::new();
    let slow = model(|seen| match ids(seen)[0] {
        12.. => Answer::Never,
        _ => identity::grpc(seen),
    });
    let slow = slow.await;
    let file = place.rows("a.parquet", 0..60);
    let mut job = place.job(&[&file], &[&slow.address()]);
    job.chunk_rows = Some(1000);
    interrupted(job.clone(), &place, 12, Duration::ZERO).await;
    let status = Status::read(&place.store()).expect("a job");
    assert_eq!((status.scored, status.dead, status.committed), (12, 0, 0));
    let other = host().await;
    job.hosts.0 = vec![outrigger_batch::Host::new(&other.address())];
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.chunks.len()), (60, 2));
    assert_eq!(scored(&place.output()), expected(0..60));
    let again = sent(&other).into_iter().filter(|id| *id < 12).count();
    assert_eq!(again, 0, "nothing was scored twice");
    assert_eq!(Status::read(&place.store()).expect("a job").scored, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answers_in_flight_are_waited_for_when_a_job_is_interrupted() {
    let place = Place::new();
    let slow = model(|seen| match ids(seen)[0] {
        12.. => Answer::After(Duration::from_millis(300), Box::new(identity::grpc(seen))),
        _ => identity::grpc(seen),
    });
    let slow = slow.await;
    let file = place.rows("a.parquet", 0..600);
    let mut job = place.job(&[&file], &[&slow.address()]);
    (job.chunk_rows, job.concurrency) = (Some(1000), 2);
    interrupted(job, &place, 12, Duration::from_secs(60)).await;
    let in_flight = sent(&slow).into_iter().max().expect("requests");
    let status = Status::read(&place.store()).expect("a job");
    assert!(status.scored > 12 && status.scored == in_flight as u64 + 1, "{}", status.scored);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_of_a_job_with_too_many_are_tried_again() {
    let place = Place::new();
    let host = model(failing_on(|id| id >= 12)).await;
    let file = place.rows("a.parquet", 0..60);
    let mut job = place.job(&[&file], &[&host.address()]);
    (job.chunk_rows, job.max_errors) = (Some(1000), Some(MaxErrors::Rows(2)));
    assert_eq!(score(job.clone()).await, Err(Error::TooManyDead));
    assert_eq!(Status::read(&place.store()).expect("a job").dead, 0);
}
