//! Workers that prefer their part of the hosts and chunks, and workers that are interrupted.

use std::time::Duration;

use outrigger_batch::{Error, Watch, run};
use outrigger_testkit::oip::{Answer, identity};

use crate::harness::{Halted, Place, expected, host, model, score, scored};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_uses_the_hosts_of_its_part() {
    let place = Place::new();
    let mut hosts = [host().await, host().await, host().await, host().await];
    hosts.sort_by_key(|host| host.address());
    let file = place.rows("a.parquet", 0..300);
    let addresses = hosts.each_ref().map(|host| host.address());
    let mut job = place.job(&[&file], &addresses.each_ref().map(|address| &**address));
    job.worker = "1/2".parse().expect("a part");
    score(job).await.expect("scored");
    assert_eq!(scored(&place.output()), expected(0..300));
    let calls = hosts.each_ref().map(|host| !host.seen().is_empty());
    assert_eq!(calls, [false, true, false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_begin_at_once_do_one_job() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..200);
    let workers = (0..3).map(|index| {
        let mut job = place.job(&[&file], &[&host.address()]);
        job.worker = format!("{index}/3").parse().expect("a part");
        let watch = Watch::default();
        (tokio::spawn(run(job, place.store(), watch.clone())), watch)
    });
    for (worker, watch) in workers.collect::<Vec<_>>() {
        let manifest = worker.await.expect("no panic").expect("scored");
        assert_eq!((manifest.rows, manifest.scored), (200, 200));
        // A worker that came when all was done reports nothing.
        let progress = watch.get();
        assert!(progress.worker.is_empty() || progress.done() == 200, "{progress:?}");
    }
    assert_eq!(scored(&place.output()), expected(0..200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_interrupted_gives_its_chunks_back() {
    let mut halted = Halted::new().await;
    assert!(!halted.place.store().list("lease").expect("listed").is_empty());
    halted.interrupt().await;
    let Halted { place, server, job, .. } = halted;
    assert!(place.store().list("lease").expect("listed").is_empty());
    server.script(identity::server);
    score(job).await.expect("scored");
    assert_eq!(scored(&place.output()), expected(0..60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_interrupted_before_its_first_answer() {
    let (place, server) = (Place::new(), model(|_| Answer::Never).await);
    let file = place.rows("a.parquet", 0..60);
    let job = place.job(&[&file], &[&server.address()]);
    let watch = Watch::default();
    let running = tokio::spawn(run(job, place.store(), watch.clone()));
    while server.count("/ModelInfer") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    watch.interrupt();
    assert_eq!(running.await.expect("no panic"), Err(Error::Interrupted));
}
