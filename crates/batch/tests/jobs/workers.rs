//! Several workers on one job.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_batch::{
    Compacted, Compaction, Control, Error, MaxErrors, Patience, Size, Store, Watch, run,
};
use outrigger_testkit::oip::identity;
use tokio::sync::Notify;

use crate::{
    harness::{Halted, Place, expected, host, score, score_in, scored},
    scripted::{Fate, Scripted},
};

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_on_one_job_double_nothing() {
    let (place, host) = (Place::new(), host().await);
    host.script(|seen| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        identity::server(seen)
    });
    let file = place.rows("a.parquet", 0..300);
    let job = || place.job(&[&file], &[&host.address()]);
    let workers = [tokio::spawn(score(job())), tokio::spawn(score(job()))];
    let mut manifests = Vec::new();
    for worker in workers {
        manifests.push(worker.await.expect("no panic").expect("scored"));
    }
    assert_eq!(manifests[0], manifests[1]);
    assert_eq!(scored(&place.output()), expected(0..300));
    // The files that the manifest does not name are gone.
    let chunks = manifests[0].chunks.iter();
    let named: BTreeSet<_> =
        chunks.filter_map(|chunk| chunk.data.as_ref()).map(|data| data.name.clone()).collect();
    let entries = fs::read_dir(place.output().join("data")).expect("a directory");
    let found: BTreeSet<_> = entries
        .map(|entry| format!("data/{}", entry.expect("an entry").file_name().to_string_lossy()))
        .collect();
    assert_eq!(found, named);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_of_all_workers_count_for_max_errors() {
    let (place, host) = (Place::new(), host().await);
    host.script(|seen| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        identity::server(seen)
    });
    // Two rows of each of 40 chunks are dead.
    let file = place.rows("a.parquet", (0..280).map(|id| if id % 7 > 4 { -1 } else { id }));
    let job = || {
        let mut job = place.job(&[&file], &[&host.address()]);
        job.max_errors = Some(MaxErrors::Rows(79));
        job
    };
    let workers = [tokio::spawn(score(job())), tokio::spawn(score(job()))];
    for worker in workers {
        let result = worker.await.expect("no panic");
        assert_eq!(result, Err(Error::TooManyDead));
    }
    let mut job = job();
    job.max_errors = Some(MaxErrors::Rows(80));
    assert_eq!(score(job).await.expect("scored").dead, 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_begins_while_another_is_at_work_obeys_the_cancellation() {
    let mut halted = Halted::new().await;
    halted.interrupt().await;
    let Halted { place, server, job, .. } = halted;
    let cancelled = set_cancelled(&place.store(), true);
    // The worker has not read the control object yet.
    place.store().create("lease/00000005.json", elsewhere().as_bytes()).expect("created");
    let calls = server.count("/ModelInfer");
    assert_eq!(score(job.clone()).await, Err(Error::Cancelled));
    assert_eq!(server.count("/ModelInfer"), calls);
    assert_eq!(Control::read(&place.store()), Ok(cancelled));
    // It has stopped.
    place.store().remove("lease/00000005.json").expect("removed");
    server.script(identity::server);
    assert_eq!(score(job).await.expect("scored").scored, 60);
    assert_eq!(Control::read(&place.store()), Ok(Control::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_if_another_revokes_the_cancellation_while_it_begins() {
    let objects = Scripted::new();
    let place = Place::new();
    let host = host().await;
    let file = place.rows("a.parquet", 0..60);
    let job = place.job(&[&file], &[&host.address()]);
    let watch = Watch::default();
    let planned = watch.clone();
    let observed = objects.store("job", &Patience::default()).observed(move |step| {
        if step == "plan.json: done" {
            planned.interrupt();
        }
    });
    assert_eq!(run(job.clone(), observed, watch).await, Err(Error::Interrupted));
    let store = objects.store("job", &Patience::default());
    set_cancelled(&store, true);
    let time = humantime::format_rfc3339(SystemTime::now()).to_string();
    let report = serde_json::json!({"worker": "elsewhere", "time": time}).to_string();
    store.create("worker/elsewhere.json", report.as_bytes()).expect("created");
    // The worker looks for others after it has read the control object.
    let looks = Arc::new(Notify::new());
    let is_revoked = Arc::new(AtomicBool::new(false));
    let event = Arc::clone(&looks);
    let revoked = Arc::clone(&is_revoked);
    objects.script(move |_, key| {
        if !key.contains("/worker") || revoked.load(Relaxed) {
            return Fate::Answered;
        }
        event.notify_one();
        Fate::Away
    });
    let worker = tokio::spawn(score_in(store.clone(), job));
    looks.notified().await;
    set_cancelled(&store, false);
    is_revoked.store(true, Relaxed);
    assert_eq!(worker.await.expect("no panic").expect("scored").scored, 60);
}

/// The lease of a worker on another machine.
fn elsewhere() -> String {
    let until = UNIX_EPOCH.elapsed().expect("after 1970").as_secs() + 600;
    let process = serde_json::json!({"scope": "", "pid": 1, "started": 1});
    serde_json::json!({"worker": "elsewhere", "until": until, "process": process}).to_string()
}

fn set_cancelled(store: &Store, cancelled: bool) -> Control {
    let change = |control: &mut Control| {
        control.cancelled = cancelled;
        Ok(())
    };
    Control::change(store, change).expect("changed")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_on_a_job_with_a_compaction_both_succeed() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..300);
    let to = place.path("large");
    let job = || {
        let mut job = place.job(&[&file], &[&host.address()]);
        job.compact = Some(Compaction { to: to.clone(), file_size: Size(100_000) });
        job
    };
    let workers = [tokio::spawn(score(job())), tokio::spawn(score(job()))];
    for worker in workers {
        let manifest = worker.await.expect("no panic").expect("scored");
        assert_eq!(manifest.scored, 300);
    }
    let compacted = Compacted::open(&Store::local(&to)).expect("readable").expect("compacted");
    assert_eq!(compacted.rows, 300);
}
