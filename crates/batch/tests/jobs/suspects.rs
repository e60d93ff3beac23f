//! Rows that have ended hosts before the job began, for its other workers and after a restart.

use std::sync::{Mutex, mpsc};

use outrigger_batch::{Error, Job};
use outrigger_testkit::oip::{Answer, Server, identity};
use tokio::task::spawn_blocking;

use crate::harness::{Place, expected, ids, model, reasons, requests, score, score_in, scored};

/// The step of the store after which all workers have the plan.
const PLANNED: &str = "plan.json: done";

/// Hosts that the row 0 ends, in the order of their names.
async fn fragile(count: usize) -> Vec<Server> {
    let mut hosts = Vec::new();
    for _ in 0..count {
        let host = model(|seen| match ids(seen).contains(&0) {
            true => Answer::Close,
            false => identity::grpc(seen),
        });
        hosts.push(host.await);
    }
    hosts.sort_by_key(Server::address);
    hosts
}

/// A job over a file with these hosts.
fn job<'a>(place: &Place, file: &str, hosts: impl Iterator<Item = &'a Server>) -> Job {
    let addresses: Vec<_> = hosts.map(Server::address).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    // One call at a time, so that no other row is in flight at a host when it ends.
    Job { concurrency: 1, ..place.job(&[file], &addresses) }
}

/// For each host, true if the row 0 has ended it.
fn ended(hosts: &[Server]) -> Vec<bool> {
    hosts.iter().map(|host| requests(host).concat().contains(&0)).collect()
}

fn check_output(place: &Place, rows: i64) {
    assert_eq!(scored(&place.output()), expected(1..rows));
    assert_eq!(reasons(&place.output()), [(0, "host_lost".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_have_ended_hosts_are_known_after_a_restart() {
    // With three rows both hosts of the start end, and else one of them.
    for (rows, at_start) in [(3, 2), (30, 1)] {
        let (place, hosts) = (Place::new(), fragile(6).await);
        let file = place.rows("a.parquet", 0..rows);
        let ends = |step: &str| assert!(step != PLANNED, "the process ends here");
        let first = score_in(place.store().observed(ends), job(&place, &file, hosts[..2].iter()));
        let error = first.await.expect_err("it has ended");
        assert!(matches!(&error, Error::Failed(it) if it.contains("panic")), "{error}");
        assert_eq!(ended(&hosts).into_iter().filter(|is_hit| *is_hit).count(), at_start);
        // The hosts that are still whole come first.
        let all = job(&place, &file, hosts.iter().rev());
        score(all).await.expect("scored");
        check_output(&place, rows);
        assert_eq!(ended(&hosts).into_iter().filter(|is_hit| *is_hit).count(), 2, "{rows} rows");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_have_ended_hosts_are_known_to_workers_with_other_hosts() {
    let (place, hosts) = (Place::new(), fragile(4).await);
    let file = place.rows("a.parquet", 0..3);
    let worker = |part: &str| {
        let worker = part.parse().expect("a part");
        Job { worker, ..job(&place, &file, hosts.iter()) }
    };
    // The first worker plans the job with two of the hosts, and waits for the second one.
    let (planned, has_planned) = mpsc::channel();
    let (goes_on, go_on) = mpsc::channel::<()>();
    let go_on = Mutex::new(go_on);
    let store = place.store().observed(move |step| {
        if step == PLANNED {
            planned.send(()).expect("the test waits");
            go_on.lock().expect("no panic").recv().expect("the test goes on");
        }
    });
    let first = tokio::spawn(score_in(store, worker("0/2")));
    let has_planned = spawn_blocking(move || has_planned.recv()).await.expect("no panic");
    has_planned.expect("planned");
    assert_eq!(ended(&hosts), [true, false, true, false]);
    let manifest = score(worker("1/2")).await.expect("scored");
    goes_on.send(()).expect("the first worker waits");
    assert_eq!(first.await.expect("no panic").expect("scored"), manifest);
    check_output(&place, 3);
    assert_eq!(ended(&hosts), [true, false, true, false], "no other host");
}
