//! The first answers of a job.
//!
//! Rows are tried until hosts agree about the outputs (`agreement`). A host that is silent for some seconds keeps its call, and
//! another one is asked beside it. Hosts that process nothing are waited for. Rows that fail are
//! tried on one more host, and then other rows are. After rows that may have ended their host, other
//! rows come at once, and requests with some of the same rows are sent to two hosts at most.

use std::time::Duration;

use bytesize::ByteSize;
use outrigger_dispatch::HostId;
use outrigger_oip_client::{Failure, Request};
use outrigger_resilience::{Backoff, Class};
use tokio::{
    select,
    task::{JoinError, JoinSet, spawn_blocking},
    time::{Instant, sleep_until},
};

use super::{
    Learned,
    agreement::{ANSWERS, Agreement},
    samples::{Sample, Samples},
    suspect::{self, Suspect},
};
use crate::{
    Answer, Error,
    hosts::Hosts,
    memory::{Allowance, Memory, Used},
};

/// The silence after which another host is asked too; it doubles each time.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// The most doublings of it.
const DOUBLINGS: u32 = 6;
/// The time for which hosts are waited for that process nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// The same while other hosts fail on all rows.
const SECOND_HOST: Duration = Duration::from_secs(60);
/// The most hosts that try the same rows.
const HOSTS: usize = 2;
/// The most reasons in an error.
const REASONS: usize = 3;

/// The trial.
pub(super) struct Trial<'a> {
    hosts: &'a Hosts,
    states: Vec<State>,
    memory: Memory,
    request: Request,
    timeout: Duration,
    /// The rows that are not tried yet; `None` while they are read.
    samples: Option<Samples>,
    agreement: Agreement,
    /// The time at which the last ones were taken.
    exhausted: Option<Instant>,
    tries: Vec<Try>,
    /// The number of those that are tried now.
    at: Option<usize>,
    suspects: Vec<Suspect>,
    calls: JoinSet<Ended>,
    /// The time from which on another host is asked although calls are in flight.
    next: Instant,
    silences: u32,
    /// The time since which hosts process nothing.
    unprocessed_since: Option<Instant>,
    reasons: Vec<String>,
}

/// A host.
#[derive(Debug)]
struct State {
    host: HostId,
    is_busy: bool,
    /// True if it does not have the model.
    is_absent: bool,
    /// True if rows may have ended it.
    is_ended: bool,
    failures: u32,
    /// The calls in a row that it has not processed, and the time of the next one.
    unprocessed: u32,
    not_before: Instant,
}

/// Rows that are tried.
#[derive(Debug)]
struct Try {
    sample: Sample,
    /// The hosts that have failed on the rows, or work on them.
    seen: Vec<HostId>,
    /// True if no host gets them again.
    is_over: bool,
}

/// The end of a call.
struct Ended {
    number: usize,
    host: HostId,
    result: Result<Answer, Failure>,
    used: Used,
}

/// The next step.
enum Step {
    Call(HostId),
    /// Nothing can be done before this moment, unless a call ends.
    Wait(Option<Instant>),
    /// Other rows are tried before these.
    Defer,
    /// No further host may get the rows.
    Over,
}

impl<'a> Trial<'a> {
    pub(super) fn new(
        (samples, agreement): (Samples, Agreement),
        (request, timeout): (Request, Duration),
        (hosts, numbers): (&'a Hosts, &[HostId]),
        memory: Memory,
    ) -> Self {
        let now = Instant::now();
        let state = |host: &HostId| State {
            host: *host,
            is_busy: false,
            is_absent: false,
            is_ended: false,
            failures: 0,
            unprocessed: 0,
            not_before: now,
        };
        Self {
            hosts,
            states: numbers.iter().map(state).collect(),
            memory,
            request,
            timeout,
            samples: Some(samples),
            agreement,
            exhausted: None,
            tries: Vec::new(),
            at: None,
            suspects: Vec::new(),
            calls: JoinSet::new(),
            next: now,
            silences: 0,
            unprocessed_since: None,
            reasons: Vec::new(),
        }
    }

    /// The first answers.
    ///
    /// # Errors
    /// The hosts do not agree, all rows that were tried have failed, no host has the model, none has processed a request for
    /// [`PATIENCE`], or the answer for one row is larger than the memory.
    pub(super) async fn run(mut self) -> Result<Learned, Error> {
        loop {
            let wake = self.start().await?;
            if self.calls.is_empty() && wake.is_none() {
                return Err(self.error());
            }
            select! {
                Some(ended) = self.calls.join_next() => {
                    if let Some(learned) = self.ended(ended)? {
                        return Ok(learned);
                    }
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Sends a call if one may be sent. Returns the time at which to ask again; `None` if nothing
    /// can be done before a call ends.
    async fn start(&mut self) -> Result<Option<Instant>, Error> {
        loop {
            let now = Instant::now();
            if !self.calls.is_empty() && now < self.next {
                return Ok(Some(self.next));
            }
            let Some(number) = self.current().await? else { return Ok(None) };
            match self.step(number, now) {
                Step::Defer => self.at = None,
                Step::Over => self.give_up(number),
                Step::Wait(until) => {
                    self.check_patience(now)?;
                    return Ok(until);
                }
                Step::Call(host) => {
                    self.call(number, host, now);
                    return Ok(Some(self.next));
                }
            }
        }
    }

    /// The number of the rows that are tried now; `None` if there are no more.
    async fn current(&mut self) -> Result<Option<usize>, Error> {
        if self.at.is_none() && self.exhausted.is_none() {
            let Some(mut samples) = self.samples.take() else { return Ok(None) };
            let read = spawn_blocking(move || samples.next().map(|sample| (samples, sample)));
            let (samples, sample) = read.await.map_err(Error::failed)??;
            self.samples = Some(samples);
            match sample {
                Some(sample) => {
                    self.at = Some(self.tries.len());
                    self.tries.push(Try { sample, seen: Vec::new(), is_over: false });
                }
                None => self.exhausted = Some(Instant::now()),
            }
        }
        // A single host is no evidence against the model while there is another one.
        if self.at.is_none() && self.states.iter().filter(|it| it.failures > 0).count() < HOSTS {
            self.at = self.tries.iter().position(|it| !it.is_over);
        }
        Ok(self.at)
    }

    /// Sends these rows to no further host.
    fn give_up(&mut self, number: usize) {
        self.at = self.at.filter(|at| *at != number);
        self.tries[number].is_over = true;
        self.tries[number].sample.give_up();
    }

    /// The next step for these rows.
    fn step(&self, number: usize, now: Instant) -> Step {
        let Try { sample, seen, .. } = &self.tries[number];
        let ended = match &sample.place {
            Some((file, rows)) => suspect::hosts(&self.suspects, *file, rows),
            None => Vec::new(),
        };
        let may_try = |it: &&State| {
            let is_allowed = ended.len() < HOSTS || ended.contains(&self.hosts.name(it.host));
            let is_asked = self.agreement.answers_of(it.host) < ANSWERS;
            !it.is_absent && is_allowed && is_asked && !seen.contains(&it.host)
        };
        let hosts: Vec<_> = self.states.iter().filter(may_try).collect();
        if seen.len() >= HOSTS || hosts.is_empty() {
            return Step::Over;
        }
        let free = || hosts.iter().filter(|it| !it.is_busy);
        let ready = free().filter(|it| it.not_before <= now);
        // A model that ends its hosts does not end all of them.
        let is_spared = |it: &State| !it.is_ended && self.ended_hosts() >= HOSTS;
        let answers = |it: &State| self.agreement.answers_of(it.host);
        match ready.min_by_key(|it| (is_spared(it), it.failures, answers(it), it.unprocessed)) {
            Some(state) => Step::Call(state.host),
            None if !seen.is_empty() && self.exhausted.is_none() => Step::Defer,
            None => Step::Wait(free().map(|it| it.not_before).min()),
        }
    }

    fn ended_hosts(&self) -> usize {
        self.states.iter().filter(|it| it.is_ended).count()
    }

    fn check_patience(&self, now: Instant) -> Result<(), Error> {
        if !self.calls.is_empty() {
            return Ok(());
        }
        if self.exhausted.is_some_and(|since| since + SECOND_HOST <= now) {
            return Err(self.error());
        }
        match self.unprocessed_since.is_some_and(|since| since + PATIENCE <= now) {
            true => Err(Error::failed(format!("no host takes a request: {}", self.reasons()))),
            false => Ok(()),
        }
    }

    fn call(&mut self, number: usize, host: HostId, now: Instant) {
        self.next = now + SILENCE * (1 << self.silences.min(DOUBLINGS));
        self.silences += 1;
        let Try { sample, seen, .. } = &mut self.tries[number];
        seen.push(host);
        let request = Request {
            inputs: sample.tensors.clone(),
            rows: Some(sample.count),
            deadline: now + self.timeout,
            ..self.request.clone()
        };
        if let Some(state) = self.states.iter_mut().find(|it| it.host == host) {
            state.is_busy = true;
        }
        let (endpoint, memory) = (self.hosts.endpoint(host), self.memory.clone());
        let charge = sample.charge.clone();
        self.calls.spawn(async move {
            let _charge = charge;
            let allowance = Allowance::new(memory.open(), true);
            let result = match endpoint {
                Some(endpoint) => endpoint.infer(&request, &allowance).await,
                None => Err(Failure::not_sent()),
            };
            let size = result.as_ref().ok().map(Answer::bytes);
            Ended { number, host, result, used: allowance.end(size) }
        });
    }

    /// Takes the end of a call into account. Returns what the job needs if the answers so far agree.
    fn ended(&mut self, ended: Result<Ended, JoinError>) -> Result<Option<Learned>, Error> {
        let ended = ended.map_err(|error| Error::failed(format!("a request failed: {error}")))?;
        let Ended { number, host, result, used } = ended;
        let now = Instant::now();
        (self.next, self.silences) = (now, 0);
        let Some(state) = self.states.iter_mut().find(|it| it.host == host) else {
            return Ok(None);
        };
        state.is_busy = false;
        let class = match result {
            _ if used.is_refused => {
                self.give_up(number);
                self.unprocessed_since = None;
                let reason = self.too_large(host, self.tries[number].sample.count, &used);
                // No other answer has a part of the memory.
                if self.tries[number].sample.count == 1 && self.calls.is_empty() {
                    return Err(Error::Failed(reason));
                }
                self.add_reason(reason);
                return Ok(None);
            }
            Ok(answer) => {
                state.unprocessed = 0;
                self.unprocessed_since = None;
                return Ok(self.answered(number, host, &answer));
            }
            // A line of a batch names its model by itself.
            Err(failure) if failure.is_not_served() && !self.hosts.is_language() => {
                state.is_absent = true;
                self.tries[number].seen.retain(|it| *it != host);
                self.add_reason(failure.to_string());
                return Ok(None);
            }
            Err(failure) => {
                let class = failure.class;
                if matches!(class, Class::Unavailable | Class::Overloaded) {
                    state.unprocessed += 1;
                    let pause = Backoff::default().pause(state.unprocessed, rand::random());
                    state.not_before = now + failure.retry_after.unwrap_or(pause).max(pause);
                    self.unprocessed_since.get_or_insert(now);
                } else {
                    (state.unprocessed, state.failures) = (0, state.failures + 1);
                    state.is_ended |= matches!(class, Class::Lost | Class::Timeout);
                    self.unprocessed_since = None;
                }
                self.add_reason(failure.to_string());
                class
            }
        };
        let tried = &mut self.tries[number];
        match class {
            Class::Unavailable | Class::Overloaded => tried.seen.retain(|it| *it != host),
            Class::TooLarge(_) => self.give_up(number),
            Class::Lost | Class::Timeout => {
                self.at = self.at.filter(|at| *at != number);
                if let Some((file, rows)) = &tried.sample.place {
                    let host = self.hosts.name(host).to_owned();
                    self.suspects.push(Suspect { file: *file, rows: rows.clone(), host });
                }
            }
            Class::Refused | Class::Ambiguous => {}
        }
        Ok(None)
    }

    /// Takes an answer to these rows, which may be asked for again.
    fn answered(&mut self, number: usize, host: HostId, answer: &Answer) -> Option<Learned> {
        let Try { sample, seen, .. } = &mut self.tries[number];
        seen.retain(|it| *it != host);
        let learn = |columns| Learned {
            columns,
            version: answer.version.clone(),
            answer_bytes: answer.bytes().div_ceil(sample.count),
            row_bytes: sample.bytes.div_ceil(sample.count),
            scored: sample.first.clone(),
            suspects: Vec::new(),
        };
        if let Err(fault) = self.agreement.take(host, &answer.outputs, learn) {
            let name = self.hosts.name(host);
            self.add_reason(format!("{name}: {fault}"));
        }
        let may_answer = |it: &State| {
            let is_well = !it.is_absent && it.failures == 0 && it.unprocessed == 0;
            is_well && !it.is_busy && self.agreement.answers_of(it.host) < ANSWERS
        };
        let is_last = !self.states.iter().any(may_answer);
        let learned = self.agreement.agreed(is_last)?.clone();
        Some(Learned { suspects: std::mem::take(&mut self.suspects), ..learned })
    }

    /// The reason why an answer was refused that has `used` memory.
    fn too_large(&self, host: HostId, rows: u64, used: &Used) -> String {
        let (name, memory) = (self.hosts.name(host), &self.memory);
        let others = memory.used().0.saturating_sub(used.charge.bytes());
        let (peak, left) = (ByteSize(used.peak), ByteSize(memory.limit().saturating_sub(others)));
        format!(
            "an answer of {name} for {rows} rows needs {peak} or more, and the job's memory has {left} \
             for it: run the job with more memory or a smaller batch_size"
        )
    }

    fn add_reason(&mut self, reason: String) {
        self.reasons.retain(|it| *it != reason);
        self.reasons.push(reason);
        if self.reasons.len() > REASONS {
            self.reasons.remove(0);
        }
    }

    fn reasons(&self) -> String {
        self.reasons.join("; ")
    }

    /// The error of a job whose rows have all failed, or whose hosts do not agree.
    fn error(&self) -> Error {
        if let Some(error) = self.agreement.error() {
            return error;
        }
        let invalid = self.samples.as_ref().and_then(|samples| samples.invalid.as_ref());
        Error::failed(match (self.tries.len(), invalid) {
            (0, Some(invalid)) => {
                return Error::usage(format!(
                    "none of the rows that were looked at can be sent: {invalid}"
                ));
            }
            (0 | 1, _) => format!("the first rows cannot be scored: {}", self.reasons()),
            (tries, _) => format!(
                "the first rows cannot be scored, and {} other requests with rows of the input have \
                 failed: the model or the columns may be wrong: {}",
                tries - 1,
                self.reasons()
            ),
        })
    }
}
