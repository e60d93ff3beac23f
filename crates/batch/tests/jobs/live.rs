//! Hosts and concurrency that change while a job runs, and hosts that change between two runs of it.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use outrigger_batch::{Control, Error, Host, Job, Watch, run};
use outrigger_testkit::oip::{Answer, Seen, identity};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_of_rows_holds_until_it_is_changed() {
    let (place, host, watch) = (Place::new(), host().await, Watch::default());
    let file = place.rows("a.parquet", 0..60);
    // A request of three rows every three seconds: the job would take a minute.
    let job = Job { rows_per_second: Some(1), ..place.job(&[&file], &[&host.address()]) };
    let before = Instant::now();
    let running = tokio::spawn(run(job, place.store(), watch.clone()));
    while watch.get().hosts.first().is_none_or(|host| host.bound != "user") {
        assert!(!running.is_finished(), "the cap does not hold");
        tokio::time::sleep(LOOK).await;
    }
    // Two requests are sent before the job begins: nobody describes the outputs.
    let most = 3 + before.elapsed().as_secs() / 3;
    assert!(host.count("/ModelInfer") as u64 <= most);
    let many = |control: &mut Control| control.set("rows_per_second=1000000");
    Control::change(&place.store(), many).expect("set");
    let manifest = running.await.expect("no panic").expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (60, 0));
    assert!(before.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_concurrency_holds_for_requests_from_then_on() {
    const CALLS: usize = 6;
    let calls = AtomicUsize::new(0);
    // Requests after the first ones stay in flight.
    let stuck = move |seen: &Seen| match calls.fetch_add(1, Relaxed) {
        ..CALLS => identity::grpc(seen),
        _ => Answer::Never,
    };
    let (place, host, watch) = (Place::new(), model(stuck).await, Watch::default());
    let file = place.rows("a.parquet", 0..60);
    let job = || Job { concurrency: 1, ..place.job(&[&file], &[&host.address()]) };
    let running = tokio::spawn(run(job(), place.store(), watch.clone()));
    let of_host = || watch.get().hosts.first().map_or((0, 0), |host| (host.limit, host.in_flight));
    // The progress has both after a second.
    let reaches = async |concurrency: usize, in_flight: usize| {
        while of_host() != (concurrency, in_flight) {
            tokio::time::sleep(LOOK).await;
        }
        assert_eq!(host.count("/ModelInfer"), CALLS + in_flight);
    };
    reaches(1, 1).await;
    for (concurrency, in_flight) in [(2, 2), (1, 2)] {
        let change = format!("concurrency={concurrency}");
        Control::change(&place.store(), |control| control.set(&change)).expect("set");
        reaches(concurrency, in_flight).await;
    }
    watch.interrupt();
    assert_eq!(running.await.expect("no panic"), Err(Error::Interrupted));
    host.script(identity::server);
    let manifest = score(job()).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (60, 0));
    assert_eq!(scored(&place.output()), expected(0..60));
}
