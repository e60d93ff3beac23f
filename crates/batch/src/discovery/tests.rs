//! Look-ups and questions in virtual time.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
};

use futures::future::BoxFuture;
use outrigger_oip_client::{Failure, Ledger, Request};
use tokio::time::timeout;

use super::*;
use crate::{
    Answer, Description,
    names::tests::{Scripted, shown},
};

const HEALTHY: u8 = 0;
const UNREADY: u8 = 1;
const ABSENT: u8 = 2;
const MUTE: u8 = 3;

/// A host that is only asked for its health.
#[derive(Debug, Default)]
struct Host {
    state: AtomicU8,
    questions: AtomicU64,
}

impl Endpoint for Host {
    fn infer<'a>(
        &'a self,
        _: &'a Request,
        _: &'a dyn Ledger,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        unreachable!("the question has no rows")
    }

    fn describe<'a>(
        &'a self,
        _: ModelRef<'a>,
        _: Instant,
    ) -> BoxFuture<'a, Result<Description, Failure>> {
        unreachable!("this is another question")
    }

    fn is_ready<'a>(
        &'a self,
        model: ModelRef<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        assert_eq!((model.name, model.version), ("m", Some("2")));
        self.questions.fetch_add(1, Relaxed);
        let state = self.state.load(Relaxed);
        Box::pin(async move {
            match state {
                HEALTHY => Ok(true),
                UNREADY => Ok(false),
                ABSENT => Err(Failure::not_sent()),
                _ => {
                    sleep_until(deadline).await;
                    Err(Failure::not_sent())
                }
            }
        })
    }
}

/// The discovery of the hosts of the name `triton`, which has this address.
async fn discovery(resolver: &Scripted) -> Discovery {
    resolver.set("triton", &["10.0.0.1"]);
    let names = Names::new(vec![HostConfig::new("triton:1")]);
    let (names, problems) = names.looked_up(resolver).await;
    assert!(problems.is_empty());
    let surroundings = (Arc::new(resolver.clone()) as Arc<dyn Resolve>, Periods::default());
    Discovery::new(surroundings, ("m".into(), Some("2".into())), names)
}

/// The addresses of the hosts in the next finding, and the time until it in seconds.
async fn hosts(discovery: &mut Discovery) -> (Vec<String>, u64) {
    let start = Instant::now();
    match discovery.next().await {
        Finding::Hosts(hosts) => (shown(&hosts), start.elapsed().as_secs()),
        other => panic!("{other:?}"),
    }
}

/// Asserts that there is no finding for so many seconds.
async fn is_calm(discovery: &mut Discovery, seconds: u64) {
    let found = timeout(Duration::from_secs(seconds), discovery.next()).await;
    assert!(found.is_err(), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn names_are_looked_up_every_two_minutes() {
    let resolver = Scripted::default();
    let mut discovery = discovery(&resolver).await;
    is_calm(&mut discovery, 130).await;
    assert_eq!(resolver.lookups(), 2);
    resolver.set("triton", &["10.0.0.1", "10.0.0.2"]);
    let both = ["triton:1 at 10.0.0.1", "triton:1 at 10.0.0.2"].map(str::to_owned).to_vec();
    assert_eq!(hosts(&mut discovery).await, (both, 110));
    // A name that is gone for a while keeps its hosts.
    resolver.remove("triton");
    is_calm(&mut discovery, 130).await;
    assert_eq!(discovery.problems, ["triton:1: no such name"]);
    resolver.set("triton", &["10.0.0.2"]);
    assert_eq!(hosts(&mut discovery).await, (vec!["triton:1 at 10.0.0.2".to_owned()], 110));
    assert!(discovery.problems.is_empty());
}

#[tokio::test(start_paused = true)]
async fn hosts_are_asked_every_quarter_of_an_hour() {
    let mut discovery = discovery(&Scripted::default()).await;
    let all = [HEALTHY, UNREADY, ABSENT, MUTE];
    let all = all.map(|state| Arc::new(Host { state: state.into(), ..Host::default() }));
    let ids = (0..).map(HostId);
    let asked = ids.zip(&all).map(|(id, host)| (id, Arc::clone(host) as Arc<dyn Endpoint>));
    discovery.ask(asked.collect());
    let start = Instant::now();
    for time in [900, 1800] {
        let mut found = BTreeSet::new();
        for _ in &all {
            match discovery.next().await {
                Finding::Health(HostId(host), health) => found.insert((host, health.name())),
                other => panic!("{other:?}"),
            };
        }
        let expected = [(0, "ready"), (1, "not_ready"), (2, "silent"), (3, "silent")];
        assert_eq!(found, BTreeSet::from(expected));
        assert_eq!(start.elapsed().as_secs(), time + 30, "the last one is given up");
    }
    // A host that was removed is not asked any more.
    discovery.ask(vec![(HostId(0), Arc::clone(&all[0]) as _)]);
    assert_eq!(discovery.next().await, Finding::Health(HostId(0), Health::Ready));
    assert_eq!(all.map(|host| host.questions.load(Relaxed)), [3, 2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn both_happen_at_once_when_errors_rise() {
    let resolver = Scripted::default();
    let mut discovery = discovery(&resolver).await;
    let host = Arc::new(Host::default());
    discovery.ask(vec![(HostId(0), Arc::clone(&host) as _)]);
    discovery.calls(100, 1);
    is_calm(&mut discovery, 60).await;
    assert_eq!((resolver.lookups(), host.questions.load(Relaxed)), (1, 0));
    discovery.calls(110, 9);
    resolver.set("triton", &["10.0.0.7"]);
    let mut found = [discovery.next().await, discovery.next().await];
    found.sort_by_key(|finding| matches!(finding, Finding::Hosts(_)));
    let [health, Finding::Hosts(hosts)] = &found else { panic!("{found:?}") };
    assert_eq!(*health, Finding::Health(HostId(0), Health::Ready));
    assert_eq!(shown(hosts), ["triton:1 at 10.0.0.7"]);
    // The next periodic ones are counted from these.
    is_calm(&mut discovery, 119).await;
    assert_eq!((resolver.lookups(), host.questions.load(Relaxed)), (2, 1));
    is_calm(&mut discovery, 2).await;
    assert_eq!(resolver.lookups(), 3);
}

#[tokio::test(start_paused = true)]
async fn other_hosts_are_looked_up_at_once() {
    let resolver = Scripted::default();
    let mut discovery = discovery(&resolver).await;
    discovery.configure(["10.0.0.9:1", "later:1"].map(HostConfig::new).to_vec());
    assert_eq!(hosts(&mut discovery).await, (vec!["10.0.0.9:1".to_owned()], 0));
    assert_eq!(discovery.problems, ["later:1: no such name"]);
    resolver.set("later", &["10.0.0.3"]);
    let both = ["10.0.0.9:1", "later:1 at 10.0.0.3"].map(str::to_owned).to_vec();
    assert_eq!(hosts(&mut discovery).await, (both, 120));
    // The hosts of before are used until a name of the new ones has an address.
    discovery.configure(vec![HostConfig::new("unknown:1")]);
    is_calm(&mut discovery, 119).await;
    resolver.set("unknown", &["10.0.0.4"]);
    let (hosts, _) = hosts(&mut discovery).await;
    assert_eq!(hosts, ["unknown:1 at 10.0.0.4"]);
    // The same hosts are reported again when they were configured again.
    discovery.configure(vec![HostConfig::new("unknown:1")]);
    assert!(matches!(discovery.next().await, Finding::Hosts(_)));
}
