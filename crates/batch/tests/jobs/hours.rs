//! Requests that take hours.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use outrigger_batch::{Environment, Period, Periods, Store, Watch, run_in};
use outrigger_testkit::oip::{Answer, identity};
use serde_json::Value;
use tokio::time;

use crate::harness::{Place, expected, model, scored};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// The pause between two looks at something that a test waits for.
const LOOK: Duration = Duration::from_millis(5);

/// The ends of the leases of two chunks, in seconds since 1970.
fn leases(place: &Place) -> [u64; 2] {
    [0, 1].map(|chunk| {
        let path = place.output().join(format!("lease/{chunk:08}.json"));
        let lease = std::fs::read(path).expect("a lease");
        let lease: Value = serde_json::from_slice(&lease).expect("JSON");
        lease["until"].as_u64().expect("a time")
    })
}

/// The leases are renewed by a thread whose clock is real.
#[tokio::test]
async fn a_request_of_two_hours_is_sent_once_and_its_chunk_stays_leased() {
    // The first requests measure the answers, which nobody describes.
    let calls = AtomicUsize::new(0);
    let host = model(move |seen| match calls.fetch_add(1, Relaxed) {
        0 | 1 => identity::grpc(seen),
        _ => Answer::After(2 * HOUR, Box::new(identity::grpc(seen))),
    });
    let (place, host) = (Place::new(), host.await);
    let file = place.rows("a.parquet", 0..14);
    let mut job = place.job(&[&file], &[&host.address()]);
    (job.batch_size, job.timeout) = (7, Period(3 * HOUR));
    let periods = Periods { renewal: Duration::ZERO, ..Periods::default() };
    let environment = Environment { periods, ..Environment::default() };
    let store = Store::local(&job.output);
    let job = tokio::spawn(async move { run_in(&environment, job, store, Watch::default()).await });
    let sent = || host.count("/ModelInfer");
    while sent() < 4 {
        time::sleep(LOOK).await;
    }
    let before = leases(&place);
    while leases(&place).iter().zip(before).any(|(now, before)| *now <= before) {
        time::sleep(LOOK).await;
    }
    time::pause();
    for second in 0..2 * 3600 + 60 {
        // Some seconds have passed before.
        assert!(second > 2 * 3600 - 60 || !job.is_finished(), "after {second} s");
        time::advance(SECOND).await;
    }
    time::resume();
    let manifest = job.await.expect("no panic").expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (14, 0));
    assert_eq!(scored(&place.output()), expected(0..14));
    assert_eq!(sent(), 4, "no request was repeated");
}
