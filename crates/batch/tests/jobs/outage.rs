//! A store that is away.

use std::{sync::Arc, time::Duration};

use outrigger_batch::{Error, Patience, Watch, run};
use outrigger_testkit::oip::Server;
use tokio::{sync::Notify, task::yield_now, time};

use crate::{
    harness::{Place, expected, host, score_in, scored},
    scripted::{Fate, Scripted},
};

const SECOND: Duration = Duration::from_secs(1);
/// The chunks that are open at a time in the default memory, with a store of objects.
const OPEN: usize = 3;
/// The requests of the start, of which two must agree about outputs that nobody describes.
const START: usize = 2;
/// The batches of a chunk: rows of chunks of 7 by 3.
const BATCHES: usize = 3;

/// Lets the store go away at a commit. Returns the event of that.
fn away_at_commit(objects: &Scripted, number: u32) -> Arc<Notify> {
    let (away, mut commits) = (Arc::new(Notify::new()), 0);
    let event = Arc::clone(&away);
    objects.script(move |method, key| {
        commits += u32::from(method == "put" && key.contains("/commit/"));
        if commits < number {
            return Fate::Answered;
        }
        event.notify_one();
        Fate::Away
    });
    away
}

fn calls(host: &Server) -> usize {
    host.count("/ModelInfer")
}

/// The clock of the hosts stands still but for `advance`, like that of the store.
#[tokio::test]
async fn a_job_waits_forty_minutes_for_its_store() {
    let (objects, patience) = (Scripted::new(), Patience::in_virtual_time());
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..700);
    let away = away_at_commit(&objects, 5);
    let (store, watch) = (objects.store("job", &patience), Watch::default());
    let job = place.job(&[&file], &[&host.address()]);
    let mut job = tokio::spawn(run(job, store, watch.clone()));
    away.notified().await;
    // Each open chunk, and the thread for the rest, waits for the store.
    let waiting = patience.clone();
    let until = tokio::task::spawn_blocking(move || waiting.until_waiting(OPEN + 1));
    until.await.expect("they wait");
    time::pause();
    let (before, requests) = (calls(&host), objects.requests());
    for _ in 0..40 * 60 {
        time::advance(SECOND).await;
        patience.advance(SECOND);
    }
    assert!(!job.is_finished());
    assert_eq!(patience.waiting(), OPEN + 1);
    assert!(watch.get().is_store_away);
    assert_eq!(calls(&host), before, "the job goes no further than its buffers");
    assert!(before <= START + (4 + OPEN) * BATCHES, "{before} calls");
    // A request waits for 5 s to 10 s before it is sent again.
    let most = (OPEN as u64 + 1) * (40 * 60 / 5 + 20);
    assert!(objects.requests() - requests < most, "{} requests", objects.requests() - requests);
    time::resume();
    objects.script(|_, _| Fate::Answered);
    let manifest = loop {
        tokio::select! {
            manifest = &mut job => break manifest,
            () = yield_now() => patience.advance(SECOND),
        }
    };
    let manifest = manifest.expect("no panic").expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (700, 0));
    objects.save("job", &place.output());
    assert_eq!(scored(&place.output()), expected(0..700));
    assert_eq!(calls(&host), START + 100 * BATCHES, "no row was sent twice");
    assert!(!watch.get().is_store_away);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_begins_only_if_its_store_answers() {
    let (objects, patience) = (Scripted::new(), Patience::in_virtual_time());
    objects.script(|_, _| Fate::Away);
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..20);
    let job = place.job(&[&file], &[&host.address()]);
    let mut job = tokio::spawn(score_in(objects.store("job", &patience), job));
    let ended = loop {
        tokio::select! {
            ended = &mut job => break ended,
            () = yield_now() => patience.advance(SECOND),
        }
    };
    let error = ended.expect("no panic").expect_err("there is no store");
    let is_clear = matches!(&error, Error::Failed(it) if it.contains("the store does not answer"));
    assert!(is_clear, "{error}");
    assert_eq!(calls(&host), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_refuses_its_credentials_is_no_fault_of_the_settings() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..20);
    for method in ["get", "list"] {
        let objects = Scripted::new();
        objects.script(move |called, _| match called == method {
            true => Fate::Refused,
            false => Fate::Answered,
        });
        let store = objects.store("job", &Patience::in_virtual_time());
        let job = place.job(&[&file], &[&host.address()]);
        let error = score_in(store, job).await.expect_err("it cannot begin");
        assert!(matches!(&error, Error::Failed(it) if it.contains("ExpiredToken")), "{error}");
    }
    assert_eq!(calls(&host), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_stops_does_not_wait_for_its_store() {
    let (objects, patience) = (Scripted::new(), Patience::in_virtual_time());
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..700);
    // Commits are not answered, and the credentials are refused for the third chunk.
    let mut leases = 0;
    objects.script(move |method, key| {
        leases += u32::from(method == "put" && key.contains("/lease/"));
        match () {
            () if leases > 2 && key.contains("/lease/") => Fate::Refused,
            () if key.contains("/commit/") && method == "put" => Fate::Away,
            () => Fate::Answered,
        }
    });
    let job = place.job(&[&file], &[&host.address()]);
    let error = score_in(objects.store("job", &patience), job).await.expect_err("it stops");
    assert!(matches!(&error, Error::Failed(it) if it.contains("ExpiredToken")), "{error}");
    assert_eq!(patience.waiting(), 0);
}
