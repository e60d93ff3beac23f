//! The hosts of a job, and their clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use outrigger_dispatch::HostId;
use outrigger_oip_client::{Client, Config, HostConfig};
use tokio::runtime::Handle;

use crate::{Endpoint, Error, environment::Engine, job::Job};

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
    /// The names of all hosts so far.
    names: BTreeMap<HostId, String>,
    /// The clients of the present hosts, and of those that were removed lately.
    clients: BTreeMap<HostId, Arc<dyn Endpoint>>,
    /// The engines of the job, which are hosts as long as it runs.
    engines: BTreeSet<HostId>,
}

impl Hosts {
    /// The hosts of a job, which may have `engines` of its own. A message has at most `max_message`
    /// bytes.
    pub(crate) fn new(job: &Job, engines: Vec<Engine>, max_message: usize) -> Self {
        let configured = job.hosts.0.iter().map(|host| host.0.clone()).collect();
        let mut names = BTreeMap::new();
        let mut clients = BTreeMap::new();
        for (number, Engine { name, endpoint }) in (0..).map(HostId).zip(engines) {
            names.insert(number, name);
            clients.insert(number, endpoint);
        }
        let engines = clients.keys().copied().collect();
        let ca = job.ca.clone();
        Self { configured, ca, max_message, names, clients, engines }
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

    /// Uses these hosts, and the engines of the job. Returns their numbers.
    ///
    /// # Errors
    /// A host's settings are not valid.
    pub(crate) fn set(&mut self, hosts: &[HostConfig]) -> Result<Vec<HostId>, Error> {
        let mut numbers: Vec<_> = self.engines.iter().copied().collect();
        for host in hosts {
            numbers.push(self.number(host)?);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// The number of a host, which gets a client if it has none.
    fn number(&mut self, host: &HostConfig) -> Result<HostId, Error> {
        let name = host.to_string();
        let known = self.names.iter().find(|(_, known)| **known == name).map(|(id, _)| *id);
        let number = match known {
            Some(number) if self.clients.contains_key(&number) => return Ok(number),
            Some(number) => number,
            None => HostId(u32::try_from(self.names.len()).map_err(Error::usage)?),
        };
        let client = self.client_of(host.clone())?;
        self.names.insert(number, name);
        self.clients.insert(number, Arc::new(client));
        Ok(number)
    }

    fn client_of(&self, mut host: HostConfig) -> Result<Client, Error> {
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
        Client::new(config, &[Handle::current()])
            .map_err(|error| Error::usage(format!("hosts: {endpoint}: {error}")))
    }

    /// Closes the connections of hosts that are not among these. Calls in flight have them until
    /// they end.
    pub(crate) fn keep(&mut self, numbers: &[HostId]) {
        self.clients.retain(|number, _| numbers.contains(number));
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
