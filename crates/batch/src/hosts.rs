//! The hosts of a job, and their clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use outrigger_core::Moment;
use outrigger_dispatch::{Breaker, HostId, Status};
use outrigger_oip_client::{Client, Config, HostConfig};
use tokio::runtime::Handle;

use crate::{
    Endpoint, Error,
    environment::Engine,
    job::{Job, Protocol},
    language::{self, LanguageHost},
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
    protocol: Protocol,
    max_message: usize,
    /// The names of all hosts so far.
    names: BTreeMap<HostId, String>,
    /// The clients of the present hosts, and of those that were removed lately.
    clients: BTreeMap<HostId, Arc<dyn Endpoint>>,
    /// The engines of the job, which are hosts as long as it runs.
    engines: BTreeSet<HostId>,
    /// The worker, the hosts that were set last, and those of them that are its part.
    part: Part,
    all: Vec<HostId>,
    own: Vec<HostId>,
    reach: Reach,
    /// The hosts that rows may have ended before the job began. All workers use them, so that these
    /// rows need no third one.
    ended: BTreeSet<HostId>,
}

/// Checks the endpoint of a host.
///
/// # Errors
/// It is none: a job that used it would stop.
pub(crate) fn check(endpoint: &str) -> Result<(), Error> {
    let checked = Config::new(vec![HostConfig::new(endpoint)]).check();
    checked.map_err(|error| Error::usage(format!("hosts: {endpoint}: {error}")))
}

impl Hosts {
    /// The hosts of a job, which may have `engines` of its own. A message has at most `max_message`
    /// bytes.
    pub(crate) fn new(job: &Job, engines: Vec<Engine>, max_message: usize) -> Self {
        let mut names = BTreeMap::new();
        let mut clients = BTreeMap::new();
        for (number, Engine { name, endpoint }) in (0..).map(HostId).zip(engines) {
            names.insert(number, name);
            clients.insert(number, endpoint);
        }
        Self {
            configured: job.hosts.0.iter().map(|host| host.0.clone()).collect(),
            ca: job.ca.clone(),
            protocol: job.protocol,
            max_message,
            engines: clients.keys().copied().collect(),
            names,
            clients,
            part: job.worker,
            all: Vec::new(),
            own: Vec::new(),
            reach: Reach::default(),
            ended: BTreeSet::new(),
        }
    }

    /// The configured hosts with these endpoints; those of the job if `endpoints` is `None`. A job
    /// with engines of its own has no others.
    pub(crate) fn configured(&self, endpoints: Option<&[String]>) -> Vec<HostConfig> {
        match endpoints {
            Some(_) if !self.engines.is_empty() => Vec::new(),
            None => self.configured.clone(),
            Some(endpoints) => endpoints.iter().map(|endpoint| self.config(endpoint)).collect(),
        }
    }

    fn config(&self, endpoint: &str) -> HostConfig {
        let known = self.configured.iter().find(|host| host.endpoint == endpoint);
        known.cloned().unwrap_or_else(|| HostConfig::new(endpoint))
    }

    /// Sets the names of the hosts that rows may have ended before the job began. Those among the
    /// job's hosts are part of each worker's when the hosts are set the next time.
    pub(crate) fn set_ended<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.ended = names.into_iter().map(|name| self.named(name)).collect();
    }

    /// Sets the hosts to these and the engines of the job. Returns the numbers of those that this
    /// worker uses.
    ///
    /// # Errors
    /// A host's settings are not valid.
    pub(crate) fn set(&mut self, hosts: &[HostConfig]) -> Result<Vec<HostId>, Error> {
        let mut shared = Vec::with_capacity(hosts.len());
        for host in hosts {
            let number = self.number(host)?;
            if !shared.contains(&number) {
                shared.push(number);
            }
        }
        // In the order of their names, which is the same for all workers.
        shared.sort_by(|one, other| self.name(*one).cmp(self.name(*other)));
        let engines = || self.engines.iter().copied();
        let mut part = self.part.of(&shared);
        let is_further = |host: &&HostId| self.ended.contains(*host) && !part.contains(*host);
        let further: Vec<_> = shared.iter().filter(is_further).copied().collect();
        part.extend(further);
        self.own = engines().chain(part).collect();
        self.all = engines().chain(shared).collect();
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

    /// The number of a host, which gets a client if it has none.
    fn number(&mut self, host: &HostConfig) -> Result<HostId, Error> {
        let number = self.named(&host.to_string());
        if !self.clients.contains_key(&number) {
            let client = self.client_of(host.clone())?;
            self.clients.insert(number, client);
        }
        Ok(number)
    }

    /// The number of the host with this name, which need not be one of the job.
    pub(crate) fn named(&mut self, name: &str) -> HostId {
        if let Some((number, _)) = self.names.iter().find(|(_, known)| *known == name) {
            return *number;
        }
        let number = HostId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.insert(number, name.to_owned());
        number
    }

    /// True if they serve language models.
    pub(crate) fn is_language(&self) -> bool {
        self.protocol.is_language()
    }

    /// The most bytes of an answer.
    pub(crate) fn max_answer(&self) -> usize {
        match self.protocol {
            Protocol::Oip => self.max_message,
            Protocol::OpenAi => self.max_message.min(language::MOST_ANSWER),
        }
    }

    fn client_of(&self, mut host: HostConfig) -> Result<Arc<dyn Endpoint>, Error> {
        let endpoint = host.endpoint.clone();
        let (name, value) = LOW_PRIORITY;
        if !host.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            host.headers.push((name.to_owned(), value.to_owned()));
        }
        let config = Config {
            ca: self.ca.clone(),
            max_request: self.max_message,
            max_answer: self.max_answer(),
            ..Config::new(vec![host])
        };
        let client = Client::new(config, &[Handle::current()])
            .map_err(|error| Error::usage(format!("hosts: {endpoint}: {error}")))?;
        Ok(match self.protocol {
            Protocol::Oip => Arc::new(client),
            Protocol::OpenAi => Arc::new(LanguageHost(client)),
        })
    }

    /// Closes the connections of hosts that are not among those that were set last. Calls in flight
    /// have them until they end.
    pub(crate) fn close_others(&mut self) {
        self.clients.retain(|number, _| self.all.contains(number));
    }

    /// The name of a host.
    pub(crate) fn name(&self, host: HostId) -> &str {
        self.names.get(&host).map_or("", String::as_str)
    }

    /// The end of a host's requests; `None` for one that was removed.
    pub(crate) fn endpoint(&self, host: HostId) -> Option<Arc<dyn Endpoint>> {
        self.clients.get(&host).map(Arc::clone)
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
        let mut hosts = Hosts::new(&job, Vec::new(), 1 << 20);
        let used = hosts.set(&hosts.configured(None)).expect("hosts");
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
        assert_eq!(hosts.set(&hosts.configured(Some(&other))).expect("hosts").len(), 4);
        // None of its part is among those that serve.
        assert_eq!(hosts.review(&closed, at(200)), None);
        // Those that rows have ended before the job began are part of each worker's.
        let mut other = Hosts::new(&job, Vec::new(), 1 << 20);
        other.set_ended(["a:1", "b:1", "gone:1"]);
        let used = other.set(&other.configured(None)).expect("hosts");
        let names: BTreeSet<_> = used.iter().map(|host| other.name(*host)).collect();
        assert_eq!(names, BTreeSet::from(["a:1", "b:1", "d:1"]));
        // A single worker has all hosts anyway.
        let job = Job { worker: Part::default(), ..job };
        let mut hosts = Hosts::new(&job, Vec::new(), 1 << 20);
        assert_eq!(hosts.set(&hosts.configured(None)).expect("hosts").len(), 4);
        assert_eq!([hosts.review(&open, at(1)), hosts.review(&open, at(100))], [None, None]);
    }
}
