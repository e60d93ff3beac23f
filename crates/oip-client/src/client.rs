//! The client: attempts at several hosts.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use outrigger_budget::{Account, Owner};
use reqwest::{Client as HttpClient, redirect};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    Class, Config, Failure, HostConfig, InvalidConfig, ModelRef, Reply, Request,
    config::{Address, Pinned, invalid},
    dial::{self, Dialer},
    host::Host,
    hosts::{CallPlace, Hosts, Key, NoHost, Turn},
    message, parts,
    policy::{Attempts, Cut, Next, Place, RetryBudget},
    room::{Ledger, Room},
};

/// A client of several hosts that have the same models. Dropping it closes its connections.
///
/// # Guarantees
/// - A call ends by its deadline. An answer that arrives later is dropped.
/// - A message that failed on two hosts in a way that may be its own fault is not sent again as a
///   whole.
/// - Retries are at most a share of the successes, and a small number beside.
pub struct Client {
    config: Config,
    list: Vec<Host>,
    hosts: Hosts,
    budget: Mutex<RetryBudget>,
    /// The number of the next request, which its id ends with.
    next: AtomicU64,
    /// The beginning of all ids.
    prefix: String,
    /// The account of answers.
    answers: Option<Account>,
}

impl Client {
    /// Creates a client of the hosts, which need not be up. Connections are driven by `runtimes`,
    /// which must not be empty. Reads the file of certificate authorities, and blocks for it.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    pub fn new(config: Config, runtimes: &[Handle]) -> Result<Self, InvalidConfig> {
        let addresses = config.addresses()?;
        let tls = dial::tls(config.ca.as_deref())?;
        let http = http_client(&config, &tls, None)?;
        let host = |(mut address, host): (Address, &HostConfig)| {
            if let Some(token) = host.token_of_environment(&address.token)? {
                address.headers.insert(address.token.name.clone(), token);
            }
            let dialer = Dialer::new(&address, &tls);
            // A client that looks a name up does so for all hosts of the name.
            let http = match &address.pinned {
                None => http.clone(),
                pinned => http_client(&config, &tls, pinned.as_ref())?,
            };
            Ok(Host::new((address, host), &config, (http, dialer), runtimes))
        };
        let list = addresses.into_iter().zip(&config.hosts).map(host);
        let list = list.collect::<Result<Vec<_>, InvalidConfig>>()?;
        let names = list.iter().map(|host: &Host| Arc::clone(&host.name)).collect();
        let hosts = Hosts::new(names, config.max_in_flight, config.ejection);
        let budget = Mutex::new(RetryBudget::new(config.budget, hosts.now()));
        let prefix = format!("{:016x}", rand::random::<u64>());
        let (next, answers) = (AtomicU64::new(0), None);
        Ok(Self { list, hosts, budget, next, prefix, answers, config })
    }

    /// The same client. The answers to [`Self::infer`] are charged to `account` as one caller's,
    /// while they arrive and are decoded.
    #[must_use]
    pub fn charged_to(self, account: Account) -> Self {
        Self { answers: Some(account), ..self }
    }

    /// Runs a model once, at any of the hosts. A request with rows that is larger than a host takes,
    /// or that has several for a model that takes one, is sent in parts of fewer rows, one after the
    /// other.
    ///
    /// # Errors
    /// The failure of the last attempt.
    pub async fn infer(&self, request: &Request) -> Result<Reply, Failure> {
        if request.row_by_row && request.rows.is_some_and(|rows| rows > 1) {
            return self.infer_parts(request, Cut { rows: Some(1), bytes: None }).await;
        }
        match self.infer_whole(request).await {
            Err(Failure { class: Class::TooLarge(cut), .. }) if request.rows.is_some() => {
                self.infer_parts(request, cut).await
            }
            other => other,
        }
    }

    async fn infer_parts(&self, request: &Request, cut: Cut) -> Result<Reply, Failure> {
        let message = "the request is larger than the host takes, and cannot be cut";
        let too_large = || Failure::new(Class::TooLarge(cut), message);
        let parts = parts::cut(request, cut).ok_or_else(too_large)?;
        let mut replies = Vec::with_capacity(parts.len());
        for part in &parts {
            // A part may be too large for another host.
            replies.push(Box::pin(self.infer(part)).await?);
        }
        parts::join(replies)
    }

    async fn infer_whole(&self, request: &Request) -> Result<Reply, Failure> {
        let key: Key = (Arc::clone(&request.model), request.version.clone());
        let mut attempts = Attempts::new(self.config.backoff, self.config.attempts);
        let mut doubted = Vec::new();
        let mut last = None;
        loop {
            let turn = match self.hosts.turn(&key, &attempts, request.deadline).await {
                Ok(turn) => turn,
                Err(reason) => return Err(last.unwrap_or_else(|| no_host(reason))),
            };
            let host = turn.host;
            let failure = match self.attempt(request, turn).await {
                Ok(reply) => {
                    self.hosts.blame(&doubted, &key, rand::random());
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            if failure.class == Class::Ambiguous {
                doubted.push(host);
            }
            let Next::Retry(pause) = self.next(&mut attempts, host, &failure) else {
                return Err(failure);
            };
            let has_time = Instant::now() + pause < request.deadline;
            // A message that no host has run costs none of them anything.
            let may_retry = || failure.was_not_run() || self.budget().take(self.hosts.now());
            if !has_time || !may_retry() {
                return Err(failure);
            }
            if !pause.is_zero() {
                sleep(pause).await;
            }
            // That a host does not have the model says less than the failure of one that has.
            if last.is_none() || !failure.is_not_served() {
                last = Some(failure);
            }
        }
    }

    fn next(&self, attempts: &mut Attempts, host: usize, failure: &Failure) -> Next {
        let hosts = self.hosts.count();
        if failure.is_not_served() {
            return attempts.lacks(host, hosts);
        }
        attempts.failed(host, failure.class, failure.retry_after, (hosts, rand::random()))
    }

    /// Makes one attempt at the host numbered `host`, for callers that decide on hosts, limits and
    /// retries by themselves. The attempt counts neither for the withdrawal nor for the limit of the
    /// host. The answer is charged to `ledger` while it arrives and is decoded.
    ///
    /// # Errors
    /// The failure of the attempt.
    pub async fn infer_at(
        &self,
        host: usize,
        request: &Request,
        ledger: Option<&dyn Ledger>,
    ) -> Result<Reply, Failure> {
        let until = self.until(request.deadline);
        let result = self.send(request, host, until, (ledger, None)).await;
        result.map_err(|failure| failure.at(&self.list[host].name))
    }

    /// Makes one attempt at the host of `turn`, and records its end.
    async fn attempt(&self, request: &Request, mut turn: Turn<'_>) -> Result<Reply, Failure> {
        let index = turn.host;
        let result = match self.fits(request, index) {
            Ok(()) => {
                let open = |account: &Account| account.open(Owner::of(&self.prefix));
                let charge = self.answers.as_ref().map(open);
                let ledger = charge.as_ref().map(|charge| charge as &dyn Ledger);
                let until = self.until_of(&turn, request.deadline);
                turn.begins(until);
                self.send(request, index, until, (ledger, Some(turn.place()))).await
            }
            Err(too_large) => Err(too_large),
        };
        turn.end(result.as_ref().err(), request.rows.unwrap_or(1), rand::random());
        if result.is_ok() {
            self.budget().succeeded();
        }
        result.map_err(|failure| failure.at(&self.list[index].name))
    }

    /// Sends a request to one host, and checks the answer, which comes by `until`.
    async fn send(
        &self,
        request: &Request,
        index: usize,
        until: Instant,
        (ledger, place): (Option<&dyn Ledger>, Option<CallPlace>),
    ) -> Result<Reply, Failure> {
        let host = &self.list[index];
        let of_one_row = request.row_by_row.then(|| request.of_one_row()).transpose()?;
        let request = of_one_row.as_ref().unwrap_or(request);
        let id = format!("{}-{}", self.prefix, self.next.fetch_add(1, Relaxed));
        let room = Room::new(self.config.max_answer, ledger).for_call(place);
        let answer = timeout_at(until, host.infer(request, &id, &room)).await;
        let (answer, form) = answer.map_err(|_| Failure::timeout())??;
        let (outputs, version) = message::check(answer, request, &id)?;
        let key = (Arc::clone(&request.model), request.version.clone());
        let version_of = |version: &String| self.hosts.answered(index, &key, version);
        let changed_from = version.as_ref().and_then(version_of);
        Ok(Reply { outputs, version, changed_from, host: Arc::clone(&host.name), form })
    }

    /// Refuses a request that is larger than what the host is known to take.
    fn fits(&self, request: &Request, index: usize) -> Result<(), Failure> {
        let size: usize = request.inputs.iter().map(|tensor| tensor.data.len()).sum();
        let most = self.hosts.most(index).and_then(|most| usize::try_from(most).ok());
        match most {
            Some(most) if size > most => Err(Failure::too_large(size, most)),
            _ => Ok(()),
        }
    }

    /// The end of an attempt that begins now.
    pub(crate) fn until(&self, deadline: Instant) -> Instant {
        let attempt = self.config.attempt_timeout.map(|limit| Instant::now() + limit);
        attempt.map_or(deadline, |attempt| attempt.min(deadline))
    }

    /// The end of the attempt of `turn`. A host that failed its last call gets half of the time, so
    /// that another one may answer in the rest.
    fn until_of(&self, turn: &Turn<'_>, deadline: Instant) -> Instant {
        let until = self.until(deadline);
        let now = Instant::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        if turn.is_doubtful { until.min(half) } else { until }
    }

    fn budget(&self) -> MutexGuard<'_, RetryBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hosts' addresses, in the order of the configuration.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<str>> {
        self.list.iter().map(|host| &host.name)
    }

    /// The limits of calls in flight, by host.
    pub fn limits(&self) -> Vec<usize> {
        self.hosts.limits()
    }

    /// The places of the hosts for the calls of a model.
    pub fn places(&self, model: ModelRef<'_>) -> Vec<Place> {
        self.hosts.places(&model.key())
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(crate) fn host(&self, index: usize) -> &Host {
        &self.list[index]
    }
}

/// The client over HTTP, which connects to the address of `pinned` for its name.
fn http_client(
    config: &Config,
    tls: &rustls::ClientConfig,
    pinned: Option<&Pinned>,
) -> Result<HttpClient, InvalidConfig> {
    let mut builder = HttpClient::builder()
        .tls_backend_preconfigured(tls.clone())
        .http1_only()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(config.idle)
        // A server that works on other requests may read nothing of this one for hours. The kernel
        // would take it for dead after 30 s, reqwest's default. It still asks a peer that has read
        // the request whether it is there, from 15 s on.
        .tcp_user_timeout(None);
    if let Some(Pinned { name, address }) = pinned {
        builder = builder.resolve(name, *address);
    }
    builder.build().map_err(|error| invalid("hosts", &error.without_url().to_string()))
}

fn no_host(reason: NoHost) -> Failure {
    match reason {
        NoHost::Out => Failure::new(Class::Unavailable, "no host takes the request"),
        NoHost::Busy => Failure::new(Class::Overloaded, "all hosts were busy until the deadline"),
        NoHost::GivenUp => {
            let message = "all hosts still work on as many calls of this version as it may have, which \
                their callers have given up";
            Failure::new(Class::Overloaded, message)
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.addresses().collect();
        f.debug_struct("Client").field("hosts", &hosts).finish_non_exhaustive()
    }
}
