//! Hosts by a name that stands for several addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use outrigger_batch::{
    Environment, Error, Job, Manifest, Period, Periods, Resolve, Store, Watch, run_in,
};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use tokio::time::timeout;

use crate::harness::{Place, expected, scored};

/// A resolver whose answers the test changes.
#[derive(Debug, Clone, Default)]
struct Names(Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>);

impl Names {
    fn set(&self, name: &str, addresses: &[u8]) {
        let addresses = addresses.iter().map(|last| address(*last)).collect();
        self.0.lock().expect("no panic").insert(name.to_owned(), addresses);
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let found = self.0.lock().expect("no panic").get(name).cloned();
        Box::pin(std::future::ready(found.ok_or_else(|| io::Error::other("no such name"))))
    }
}

/// An address of this machine, by its last part.
fn address(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn environment(names: &Names, lookup: Duration) -> Environment {
    let periods = Periods { lookup, ..Periods::default() };
    Environment { resolver: Arc::new(names.clone()), periods, ..Environment::default() }
}

async fn score_in(environment: &Environment, job: Job) -> Result<Manifest, Error> {
    let store = Store::local(&job.output);
    run_in(environment, job, store, Watch::default()).await
}

/// The script of a server that answers as `script` says, by the number of the request of rows.
fn by_call(
    script: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Answer + Send + Sync + 'static {
    let calls = AtomicUsize::new(0);
    move |seen| match seen.call.ends_with("/ModelInfer") {
        true => script(calls.fetch_add(1, Relaxed), seen),
        false => identity::server(seen),
    }
}

/// The hosts of all commits.
fn hosts(manifest: &Manifest) -> BTreeSet<String> {
    manifest.chunks.iter().flat_map(|chunk| chunk.hosts.iter().cloned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_40_addresses_that_come_and_go_lose_and_repeat_no_row() {
    let (place, names) = (Place::new(), Names::default());
    names.set("model.test", &[1]);
    // The first host answers no more when the second one has come, and is then removed.
    let change = names.clone();
    let first = by_call(move |call, seen| match call {
        ..10 => identity::grpc(seen),
        call => {
            if call == 10 {
                change.set("model.test", &[1, 2]);
            }
            Answer::Never
        }
    });
    let first = Server::start(Protocol::Http2, first).await;
    let change = names.clone();
    let second = by_call(move |call, seen| {
        match call {
            10 => change.set("model.test", &[2]),
            20 => change.set("model.test", &[2, 3]),
            _ => {}
        }
        identity::grpc(seen)
    });
    let second = first.start_beside(address(2), Protocol::Http2, second).await;
    let third = first.start_beside(address(3), Protocol::Http2, identity::server).await;
    let file = place.rows("a.parquet", 0..900);
    let name = format!("model.test:{}", first.port());
    let job = Job { timeout: Period(Duration::from_secs(3600)), ..place.job(&[&file], &[&name]) };
    let environment = environment(&names, Duration::from_millis(5));
    let manifest = score_in(&environment, job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (900, 0));
    assert_eq!(scored(&place.output()), expected(0..900));
    let at = |last: u8| format!("{name} at {}", address(last));
    assert!(hosts(&manifest).contains(&at(1)) && hosts(&manifest).contains(&at(2)));
    assert!(second.count("/ModelInfer") > 20 && third.count("/ModelInfer") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_looked_up_at_once_when_errors_rise() {
    let (place, names) = (Place::new(), Names::default());
    names.set("model.test", &[1]);
    let change = names.clone();
    let first = by_call(move |call, seen| match call {
        ..10 => identity::grpc(seen),
        _ => {
            change.set("model.test", &[2]);
            Answer::Status(14, "shutting down".to_owned())
        }
    });
    let first = Server::start(Protocol::Http2, first).await;
    let second = first.start_beside(address(2), Protocol::Http2, identity::server).await;
    let file = place.rows("a.parquet", 0..300);
    let job = place.job(&[&file], &[&format!("model.test:{}", first.port())]);
    let environment = environment(&names, Periods::default().lookup);
    let half = Periods::default().lookup / 2;
    let manifest = timeout(half, score_in(&environment, job)).await.expect("long before the next");
    assert_eq!(manifest.expect("scored").scored, 300);
    assert_eq!(scored(&place.output()), expected(0..300));
    assert!(second.count("/ModelInfer") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_needs_one_host_with_an_address() {
    let (place, names) = (Place::new(), Names::default());
    let server = Server::start(Protocol::Http2, identity::server).await;
    let file = place.rows("a.parquet", 0..20);
    let environment = environment(&names, Duration::from_secs(120));
    let unknown = format!("model.test:{}", server.port());
    let refused = score_in(&environment, place.job(&[&file], &[&unknown])).await;
    let Err(Error::Failed(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("model.test") && message.contains("no such name"), "{message}");
    assert!(!place.output().exists());
    let job = place.job(&[&file], &[&unknown, &server.address()]);
    assert_eq!(score_in(&environment, job).await.expect("scored").scored, 20);
}
