//! The hosts of a job, and their clients.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use outrigger_core::Moment;
use outrigger_dispatch::{Breaker, HostId, Status};
use outrigger_oip_client::{Client, Config, HostConfig};
use tokio::runtime::Handle;

use crate::{
    Error,
    job::Job,
    part::{Part, Reach},
};

/// A header of all requests: a host that is Outrigger runs them in the room that others leave.
const LOW_PRIORITY: (&str, &str) = ("outrigger-priority", "batch");

/// The hosts that a job has or had, with a client each: which host gets a request is the
/// dispatcher's decision.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// The hosts of the job, whose settings hold when they are named again.
    configured: Vec<HostConfig>,
    ca: Option<PathBuf>,
    max_message: usize,
    clients: BTreeMap<HostId, (String, Arc<Client>)>,
    /// The worker, the hosts that were set last, and those of them that are its part.
    part: Part,
    all: Vec<HostId>,
    own: Vec<HostId>,
    reach: Reach,
}

impl Hosts {
    /// The hosts of a job. A message has at most `max_message` bytes.
    pub(crate) fn new(job: &Job, max_message: usize) -> Self {
        let configured = job.hosts.0.iter().map(|host| host.0.clone()).collect();
        Self {
            configured,
            ca: job.ca.clone(),
            max_message,
            clients: BTreeMap::new(),
            part: job.worker,
            all: Vec::new(),
            own: Vec::new(),
            reach: Reach::default(),
        }
    }

    /// Sets the hosts to those with these endpoints, or to the job's if `endpoints` is `None`.
    /// Returns the numbers of those that this worker uses.
    ///
    /// # Errors
    /// A host's settings are not valid.
    pub(crate) fn set(&mut self, endpoints: Option<&[String]>) -> Result<Vec<HostId>, Error> {
        let hosts = match endpoints {
            None => self.configured.clone(),
            Some(endpoints) => endpoints.iter().map(|endpoint| self.config(endpoint)).collect(),
        };
        let mut all = Vec::with_capacity(hosts.len());
        for host in hosts {
            let number = self.number(host)?;
            if !all.contains(&number) {
                all.push(number);
            }
        }
        // In the order of their names, which is the same for all workers.
        all.sort_by(|one, other| self.name(*one).cmp(self.name(*other)));
        self.own = self.part.of(&all);
        self.all = all;
        Ok(self.used())
    }

    /// The numbers of the hosts that this worker uses.
    fn used(&self) -> Vec<HostId> {
        let mut used = if self.reach.is_all() { self.all.clone() } else { self.own.clone() };
        used.sort_unstable();
        used
    }

    /// The numbers of the hosts that this worker uses from now on, if they are others: all hosts while
    /// those of its part are away.
    pub(crate) fn review(&mut self, status: &Status, now: Moment) -> Option<Vec<HostId>> {
        if self.own.len() == self.all.len() {
            return None;
        }
        let mut own = status.hosts.iter().filter(|host| self.own.contains(&host.host));
        let serves = own.any(|host| host.breaker == Breaker::Closed);
        self.reach.review(serves, now).then(|| self.used())
    }

    fn config(&self, endpoint: &str) -> HostConfig {
        let known = self.configured.iter().find(|host| host.endpoint == endpoint);
        known.cloned().unwrap_or_else(|| HostConfig::new(endpoint))
    }

    /// The number of a host, which gets a client if it has none.
    fn number(&mut self, mut host: HostConfig) -> Result<HostId, Error> {
        let same = |(_, (endpoint, _)): &(&HostId, &(String, _))| *endpoint == host.endpoint;
        if let Some((number, _)) = self.clients.iter().find(same) {
            return Ok(*number);
        }
        let number = self.clients.len();
        let number = HostId(u32::try_from(number).map_err(Error::usage)?);
        let endpoint = host.endpoint.clone();
        let (name, value) = LOW_PRIORITY;
        if !host.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            host.headers.push((name.to_owned(), value.to_owned()));
        }
        let config = Config {
            ca: self.ca.clone(),
            max_request: self.max_message,
            max_answer: self.max_message,
            ..Config::new(vec![host])
        };
        let client = Client::new(config, &[Handle::current()]);
        let client = client.map_err(|error| Error::usage(format!("hosts: {endpoint}: {error}")))?;
        self.clients.insert(number, (endpoint, Arc::new(client)));
        Ok(number)
    }

    /// The endpoint of a host.
    pub(crate) fn name(&self, host: HostId) -> &str {
        self.clients.get(&host).map_or("", |(endpoint, _)| endpoint)
    }

    /// The client of a host, which has no other.
    pub(crate) fn client(&self, host: HostId) -> Option<Arc<Client>> {
        self.clients.get(&host).map(|(_, client)| Arc::clone(client))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use outrigger_dispatch::{Dispatcher, Settings};

    use super::*;
    use crate::Host;

    #[tokio::test]
    async fn a_worker_whose_hosts_are_away_uses_all() {
        let endpoints = ["d:1", "b:1", "c:1", "a:1", "b:1"];
        let mut job = Job::new(Vec::new(), "out", "m", endpoints.map(Host::new).to_vec());
        job.worker = "1/2".parse().expect("a part");
        let mut hosts = Hosts::new(&job, 1 << 20);
        let used = hosts.set(None).expect("hosts");
        let names: BTreeSet<_> = used.iter().map(|host| hosts.name(*host)).collect();
        assert_eq!(names, BTreeSet::from(["b:1", "d:1"]));
        let at = |second| Moment::at(Duration::from_secs(second));
        let status = |breaker| {
            let dispatcher = Dispatcher::new(Settings::default(), used.clone(), (1, at(0)));
            let mut status = dispatcher.snapshot(at(0));
            status.hosts.iter_mut().for_each(|host| host.breaker = breaker);
            status
        };
        let (closed, open) = (status(Breaker::Closed), status(Breaker::Open(at(1000))));
        assert_eq!(hosts.review(&closed, at(0)), None);
        assert_eq!(hosts.review(&open, at(1)), None);
        assert_eq!(hosts.review(&open, at(61)).map(|used| used.len()), Some(4));
        // Also those that are set meanwhile.
        let other: Vec<_> = ["a:1", "e:1", "f:1", "g:1"].map(str::to_owned).to_vec();
        assert_eq!(hosts.set(Some(&other)).expect("hosts").len(), 4);
        // None of its part is among those that serve.
        assert_eq!(hosts.review(&closed, at(200)), None);
        // A single worker has all hosts anyway.
        let mut hosts = Hosts::new(&Job { worker: Part::default(), ..job }, 1 << 20);
        assert_eq!(hosts.set(None).expect("hosts").len(), 4);
        assert_eq!([hosts.review(&open, at(1)), hosts.review(&open, at(100))], [None, None]);
    }
}
