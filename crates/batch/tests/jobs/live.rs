//! Hosts that change while a job runs, and between two runs of it.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use outrigger_batch::{Control, Error, Host};
use outrigger_testkit::oip::{Answer, identity};

use crate::harness::{Place, expected, host, model, score, scored};

/// The pause between two looks at something that a test waits for.
const LOOK: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_are_set_get_the_rows_of_a_job_that_runs() {
    const CALLS: usize = 6;
    let calls = AtomicUsize::new(0);
    let old = model(move |seen| match calls.fetch_add(1, Relaxed) {
        ..CALLS => identity::grpc(seen),
        _ => Answer::Status(14, "it goes down".to_owned()),
    });
    let (place, old, new) = (Place::new(), old.await, host().await);
    let file = place.rows("a.parquet", 0..60);
    let job = tokio::spawn(score(place.job(&[&file], &[&old.address()])));
    while old.count("/ModelInfer") <= CALLS {
        tokio::time::sleep(LOOK).await;
    }
    assert_eq!(new.count("/ModelInfer"), 0);
    let hosts = format!("hosts={}", new.address());
    Control::change(&place.store(), |control| control.set(&hosts)).expect("set");
    let manifest = job.await.expect("no panic").expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (60, 0));
    assert_eq!(scored(&place.output()), expected(0..60));
    let hosts: Vec<_> = manifest.chunks.iter().flat_map(|chunk| &chunk.hosts).collect();
    assert!(hosts.iter().any(|host| host.contains(&new.address())), "{hosts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_run_again_uses_the_hosts_that_were_set() {
    let calls = AtomicUsize::new(0);
    // Another version stops the job.
    let old = model(move |seen| {
        let is_first = calls.fetch_add(1, Relaxed) < 6;
        identity::grpc_with(seen, |reply| {
            reply.model_version = if is_first { "1" } else { "2" }.to_owned();
        })
    });
    let (place, old, new) = (Place::new(), old.await, host().await);
    let file = place.rows("a.parquet", 0..60);
    let mut job = place.job(&[&file], &[&old.address()]);
    let error = score(job.clone()).await.expect_err("another version");
    assert!(matches!(&error, Error::Failed(it) if it.contains("version 2")), "{error}");
    let hosts = format!("hosts={}", new.address());
    Control::change(&place.store(), |control| control.set(&hosts)).expect("set");
    // The job's own name is gone.
    job.hosts.0 = vec![Host::new("no-such-name.invalid:1")];
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (60, 0));
    assert_eq!(scored(&place.output()), expected(0..60));
}
