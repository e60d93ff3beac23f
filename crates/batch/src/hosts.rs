//! The hosts of a job, and their clients.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use outrigger_dispatch::HostId;
use outrigger_oip_client::{Client, Config, HostConfig};
use tokio::runtime::Handle;

use crate::{Error, job::Job};

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
    /// The hosts of a job. A message has at most `max_message` bytes.
    pub(crate) fn new(job: &Job, max_message: usize) -> Self {
        let configured = job.hosts.0.iter().map(|host| host.0.clone()).collect();
        Self { configured, ca: job.ca.clone(), max_message, clients: BTreeMap::new() }
    }

    /// Uses the hosts with these endpoints; those of the job if `endpoints` is `None`. Returns their
    /// numbers.
    ///
    /// # Errors
    /// A host's settings are not valid.
    pub(crate) fn set(&mut self, endpoints: Option<&[String]>) -> Result<Vec<HostId>, Error> {
        let hosts = match endpoints {
            None => self.configured.clone(),
            Some(endpoints) => endpoints.iter().map(|endpoint| self.config(endpoint)).collect(),
        };
        let mut numbers = Vec::with_capacity(hosts.len());
        for host in hosts {
            numbers.push(self.number(host)?);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
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
