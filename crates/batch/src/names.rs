//! The names of hosts, and their addresses.

use std::{fmt, io, net::IpAddr, time::Duration};

use futures::future::{BoxFuture, join_all};
use outrigger_oip_client::HostConfig;
use tokio::{net::lookup_host, time::timeout};

/// The time limit of a look-up.
const LIMIT: Duration = Duration::from_secs(20);
/// The most addresses of a name that are used.
const MOST: usize = 1024;

/// Finds the addresses of names.
pub trait Resolve: fmt::Debug + Send + Sync + 'static {
    /// The present addresses of a name, in any order. It may take any time: the caller has a limit.
    ///
    /// # Errors
    /// The name does not exist, or no answer came.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the system: files such as `/etc/hosts`, and the DNS.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let addresses = lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}

/// The hosts that one configured host stands for: itself if it has an address, or else one for each
/// address of its name.
///
/// # Errors
/// The name has no address now.
async fn hosts_of(resolver: &dyn Resolve, host: &HostConfig) -> Result<Vec<HostConfig>, String> {
    let name = match host.name() {
        Ok(Some(name)) if host.address.is_none() => name,
        // The client reports an endpoint that is not valid.
        _ => return Ok(vec![host.clone()]),
    };
    let failed = |problem: &dyn fmt::Display| Err(format!("{}: {problem}", host.endpoint));
    match timeout(LIMIT, resolver.resolve(&name)).await {
        Err(_) => failed(&"the name was not resolved in time"),
        Ok(Err(error)) => failed(&error),
        Ok(Ok(addresses)) if addresses.is_empty() => failed(&"the name has no address"),
        Ok(Ok(addresses)) => {
            let at = |address| HostConfig { address: Some(address), ..host.clone() };
            Ok(of_one_family(addresses).into_iter().map(at).collect())
        }
    }
}

/// The addresses in order. Of a name with addresses of both families those of IPv4: machines with one
/// of each would be two hosts otherwise.
fn of_one_family(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    if addresses.iter().any(IpAddr::is_ipv4) {
        addresses.retain(IpAddr::is_ipv4);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MOST);
    addresses
}

/// A configured host with those that it stands for, and the problem with its name if there is one:
/// then they are those of before.
async fn looked_up(
    resolver: &dyn Resolve,
    (host, before): (HostConfig, Vec<HostConfig>),
) -> ((HostConfig, Vec<HostConfig>), Option<String>) {
    match hosts_of(resolver, &host).await {
        Ok(found) => ((host, found), None),
        Err(problem) => ((host, before), Some(problem)),
    }
}

/// The configured hosts, with those that each of them stands for, as the last successful look-up
/// found them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    hosts: Vec<(HostConfig, Vec<HostConfig>)>,
}

impl Names {
    /// The configured hosts, before a look-up.
    pub(crate) fn new(configured: Vec<HostConfig>) -> Self {
        Self { hosts: configured.into_iter().map(|host| (host, Vec::new())).collect() }
    }

    /// Looks all names up at the same time. A name that has no address now keeps those that it had.
    /// Returns the names with their addresses, and a message for each name that failed.
    pub(crate) async fn looked_up(self, resolver: &dyn Resolve) -> (Self, Vec<String>) {
        let each = self.hosts.into_iter().map(|known| looked_up(resolver, known));
        let (hosts, problems): (Vec<_>, Vec<_>) = join_all(each).await.into_iter().unzip();
        (Self { hosts }, problems.into_iter().flatten().collect())
    }

    /// All hosts.
    pub(crate) fn hosts(&self) -> Vec<HostConfig> {
        self.hosts.iter().flat_map(|(_, found)| found).cloned().collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex},
    };

    use super::*;

    /// A resolver whose answers the test changes. A name without an entry does not exist.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Scripted(Arc<Mutex<State>>);

    #[derive(Debug, Default)]
    struct State {
        names: BTreeMap<String, Vec<IpAddr>>,
        lookups: usize,
    }

    impl Scripted {
        pub(crate) fn set(&self, name: &str, addresses: &[&str]) {
            let addresses = addresses.iter().map(|it| it.parse().expect("an address")).collect();
            self.0.lock().expect("no panic").names.insert(name.to_owned(), addresses);
        }

        pub(crate) fn remove(&self, name: &str) {
            self.0.lock().expect("no panic").names.remove(name);
        }

        /// The number of look-ups so far.
        pub(crate) fn lookups(&self) -> usize {
            self.0.lock().expect("no panic").lookups
        }
    }

    impl Resolve for Scripted {
        fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            let mut state = self.0.lock().expect("no panic");
            state.lookups += 1;
            let found = state.names.get(name).cloned();
            let found = found.ok_or_else(|| io::Error::other("no such name"));
            Box::pin(std::future::ready(found))
        }
    }

    pub(crate) fn shown(hosts: &[HostConfig]) -> Vec<String> {
        hosts.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn a_name_is_a_host_for_each_address() {
        let resolver = Scripted::default();
        resolver.set("triton", &["10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1"]);
        let configured = ["http://triton:8001", "10.0.0.9:1", "[::1]:1"].map(HostConfig::new);
        let (names, problems) = Names::new(configured.to_vec()).looked_up(&resolver).await;
        let triton = ["http://triton:8001 at 10.0.0.1", "http://triton:8001 at 10.0.0.2"];
        assert_eq!(shown(&names.hosts()), [&triton[..], &["10.0.0.9:1", "[::1]:1"]].concat());
        assert!(problems.is_empty() && resolver.lookups() == 1);
    }

    #[tokio::test]
    async fn a_name_that_is_gone_keeps_its_addresses() {
        let resolver = Scripted::default();
        resolver.set("a", &["10.0.0.1"]);
        let names = Names::new(["a:1", "b:1"].map(HostConfig::new).to_vec());
        let (names, problems) = names.looked_up(&resolver).await;
        assert_eq!(problems, ["b:1: no such name"]);
        assert_eq!(shown(&names.hosts()), ["a:1 at 10.0.0.1"]);
        resolver.set("b", &["fd00::2"]);
        resolver.remove("a");
        let (names, problems) = names.looked_up(&resolver).await;
        assert_eq!(problems, ["a:1: no such name"]);
        assert_eq!(shown(&names.hosts()), ["a:1 at 10.0.0.1", "b:1 at fd00::2"]);
        resolver.set("a", &[]);
        let (names, problems) = names.looked_up(&resolver).await;
        assert_eq!(problems, ["a:1: the name has no address"]);
        assert_eq!(names.hosts().len(), 2);
    }

    #[derive(Debug)]
    struct Silent;

    impl Resolve for Silent {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_does_not_answer_is_given_up() {
        let names = Names::new(vec![HostConfig::new("a:1")]);
        let (names, problems) = names.looked_up(&Silent).await;
        assert_eq!(problems, ["a:1: the name was not resolved in time"]);
        assert!(names.hosts().is_empty());
    }

    #[tokio::test]
    async fn the_system_knows_this_machine() {
        let names = Names::new(vec![HostConfig::new("localhost:1")]);
        let (names, problems) = names.looked_up(&SystemResolver).await;
        assert_eq!(
            (shown(&names.hosts()), problems),
            (vec!["localhost:1 at 127.0.0.1".to_owned()], vec![])
        );
        let unknown = Names::new(vec![HostConfig::new("no-such-name.invalid:1")]);
        let (unknown, problems) = unknown.looked_up(&SystemResolver).await;
        assert!(unknown.hosts().is_empty() && problems.len() == 1, "{problems:?}");
    }
}
