//! Carries out the dispatcher's decisions: sends the requests, checks the answers, and passes
//! batches that are settled to their outputs.

mod open;
mod report;
mod room;
mod spending;
mod tally;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use outrigger_core::Moment;
use outrigger_dispatch::{
    BatchId, Call, CallId, Dead, Dispatcher, End, Failure, HostId, Purpose, Settings,
    Settled as Decided,
};
use outrigger_oip_client::{Failure as CallFailure, HostConfig, Request, Status as CallStatus};
use outrigger_resilience::Class;
use tokio::{
    task::{AbortHandle, JoinError, JoinSet},
    time::Instant,
};

use self::{
    open::Open,
    room::{Charged, Room},
    spending::usage_of,
    tally::Tally,
};
use crate::{
    Answer, Error, Health, Usage,
    batch::{Batch, Death, Piece},
    decode,
    discovery::Asked,
    hosts::Hosts,
    language::{self, Quotas},
    memory::{Allowance, Charge, Memory},
    plan::Scoring,
    readers::Sizes,
};

/// The end of a request.
type Ended = (CallId, Result<Answer, CallFailure>);

/// Sends the rows of batches to the hosts.
pub(crate) struct Conductor {
    dispatcher: Dispatcher,
    pub(crate) hosts: Hosts,
    scoring: Arc<Scoring>,
    room: Room,
    timeout: Duration,
    batches: BTreeMap<BatchId, Open>,
    last_batch: u64,
    calls: JoinSet<Ended>,
    flights: HashMap<CallId, Flight>,
    /// The rows that hosts are tested with, and their tokens.
    reference: Option<(Request, u64)>,
    start: (Instant, SystemTime),
    scored: u64,
    dead: u64,
    tally: Tally,
    quotas: Quotas,
    /// The calls that have ended, and those that have failed without fault of their rows.
    ended: u64,
    faults: u64,
    /// The last answers about the health of hosts.
    health: BTreeMap<HostId, Health>,
}

/// A request in flight.
struct Flight {
    call: Call,
    /// The estimated tokens, for language models.
    tokens: u64,
    allowance: Arc<Allowance>,
    /// True if no other call had a part of the reserve when it was sent.
    is_alone: bool,
    abort: AbortHandle,
}

impl Conductor {
    /// A conductor without batches. `hosts` are those of the job.
    pub(crate) fn new(
        (scoring, sizes, memory): (Arc<Scoring>, Arc<Sizes>, Memory),
        (hosts, timeout): (Hosts, Duration),
        settings: Settings,
    ) -> Self {
        let dispatcher = Dispatcher::new(settings, [], (rand::random(), Moment::default()));
        Self {
            dispatcher,
            hosts,
            scoring,
            room: Room::new(sizes, memory),
            timeout,
            batches: BTreeMap::new(),
            last_batch: 0,
            calls: JoinSet::new(),
            flights: HashMap::new(),
            reference: None,
            start: (Instant::now(), SystemTime::now()),
            scored: 0,
            dead: 0,
            tally: Tally::default(),
            quotas: Quotas::default(),
            ended: 0,
            faults: 0,
            health: BTreeMap::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment::at(self.start.0.elapsed())
    }

    /// The dispatcher, for its settings.
    pub(crate) fn dispatcher(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }

    /// Uses these hosts, and the engines of the job. Returns them all, to be asked for their health.
    ///
    /// # Errors
    /// A host's settings are not valid.
    pub(crate) fn set_hosts(&mut self, hosts: &[HostConfig]) -> Result<Vec<Asked>, Error> {
        let numbers = self.hosts.set(hosts)?;
        let decided = self.dispatcher.set_hosts(&numbers, self.now());
        self.carry_out(decided, None)?;
        self.hosts.close_others();
        self.tally.keep(&numbers);
        self.quotas.keep(&numbers);
        self.health.retain(|host, _| numbers.contains(host));
        let asked = |host| Some((host, self.hosts.endpoint(host)?));
        Ok(numbers.into_iter().filter_map(asked).collect())
    }

    /// Uses other hosts than those of this worker's part while these are away.
    ///
    /// # Errors
    /// A decision cannot be carried out.
    pub(crate) fn review_hosts(&mut self) -> Result<(), Error> {
        let now = self.now();
        let numbers = self.hosts.review(&self.dispatcher.snapshot(now), now);
        let Some(numbers) = numbers else { return Ok(()) };
        let decided = self.dispatcher.set_hosts(&numbers, now);
        self.carry_out(decided, None)
    }

    /// Takes the health of a host into account. One that is withdrawn and ready is tried again at
    /// once.
    pub(crate) fn set_health(&mut self, host: HostId, health: Health) {
        self.health.insert(host, health);
        if health == Health::Ready {
            self.dispatcher.may_return(host, self.now());
        }
    }

    /// The calls that have ended, and those that have failed without fault of their rows.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (self.ended, self.faults)
    }

    /// True if another batch is wanted.
    pub(crate) fn has_room(&self) -> bool {
        self.dispatcher.has_room()
    }

    /// Takes a batch.
    pub(crate) fn add(&mut self, batch: Batch) {
        self.last_batch += 1;
        let number = BatchId(self.last_batch);
        self.dispatcher.add(number, u32::try_from(batch.rows.len()).unwrap_or(u32::MAX));
        if !batch.ended.is_empty() {
            let ended: Vec<_> = batch.ended.iter().map(|name| self.hosts.named(name)).collect();
            self.dispatcher.may_have_ended(number, &ended);
        }
        self.batches.insert(number, Open::new(batch));
        self.room.has_changed();
    }

    /// Sends all requests that may be sent now. Returns the time at which to ask again.
    pub(crate) fn send(&mut self) -> Option<Instant> {
        self.provide();
        while self.may_send()
            && let Some(call) = self.dispatcher.next(self.now())
        {
            self.call(call);
        }
        self.dispatcher.wake_at(self.now()).map(|at| self.start.0 + at.elapsed())
    }

    fn call(&mut self, call: Call) {
        let tokens = self.spend(&call);
        let rows = call.rows.start as usize..call.rows.end as usize;
        let request = match call.purpose {
            Purpose::Check => self.reference.as_ref().map(|(request, _)| request.clone()),
            Purpose::Score | Purpose::Hedge => {
                self.batches.get(&call.batch).map(|open| open.batch.request.part(rows))
            }
        };
        let (id, endpoint) = (call.id, self.hosts.endpoint(call.host));
        let is_alone = self.is_alone();
        let allowance = Arc::new(self.allowance(&call));
        let ledger = Arc::clone(&allowance);
        let deadline = Instant::now() + self.timeout;
        let abort = self.calls.spawn(async move {
            let (Some(endpoint), Some(request)) = (endpoint, request) else {
                return (id, Err(CallFailure::not_sent()));
            };
            (id, endpoint.infer(&Request { deadline, ..request }, &*ledger).await)
        });
        self.flights.insert(id, Flight { call, tokens, allowance, is_alone, abort });
    }

    /// The end of the next request; `None` while there is none in flight.
    pub(crate) async fn answer(&mut self) -> Option<Result<Ended, JoinError>> {
        self.calls.join_next().await
    }

    /// True if no request is in flight.
    pub(crate) fn is_silent(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes the end of a request into account.
    ///
    /// # Errors
    /// The model's version has changed, or the answer for one row is larger than the memory.
    pub(crate) fn ended(&mut self, ended: Result<Ended, JoinError>) -> Result<(), Error> {
        let (id, result) = match ended {
            Ok(ended) => ended,
            // It was cancelled.
            Err(error) if error.is_cancelled() => return Ok(()),
            Err(error) => return Err(Error::failed(format!("a request panicked: {error}"))),
        };
        let Some(flight) = self.flights.remove(&id) else { return Ok(()) };
        let Flight { call, tokens, .. } = &flight;
        self.spent(call.host, *tokens, usage_of(&result));
        if let Ok(answer) = &result {
            self.check_version(call.host, answer)?;
        }
        let (end, answer) = match self.charged(&flight, &result)? {
            Charged::Refused(end) => (end, None),
            Charged::Answer(charge) => {
                let (end, answer) = self.end_of(call, result);
                (end, answer.map(|answer| (answer, charge)))
            }
        };
        if end != End::Scored {
            // Its rows need memory again.
            self.room.has_changed();
        }
        self.tally.ended(call.host, &end);
        self.ended += 1;
        self.faults += u64::from(is_fault(&end));
        let decided = self.dispatcher.ended(id, end, self.now());
        self.carry_out(decided, answer)
    }

    /// Stops a job whose model is another one than at its start, or may be: an answer without a
    /// version could be of any, unless the request names one.
    fn check_version(&self, host: HostId, answer: &Answer) -> Result<(), Error> {
        let Scoring { version, is_pinned, model, .. } = &*self.scoring;
        if *version == answer.version || (*is_pinned && answer.version.is_none()) {
            return Ok(());
        }
        let found = match &answer.version {
            Some(version) => format!("version {version}"),
            None => "no version".to_owned(),
        };
        let host = self.hosts.name(host);
        Err(Error::failed(match version {
            Some(version) => format!(
                "{host} answered with {found} of the model {model}, and the job has version \
                 {version}; what is committed is all of version {version}. Serve that version \
                 again, or run a job with another output"
            ),
            None => format!(
                "{host} answered with {found} of the model {model}, and the host that was first \
                 named none: they may have different models. Use hosts that all name the version, \
                 or name it in the job"
            ),
        }))
    }

    /// The end of a call for the dispatcher, and its answer if it may be used.
    fn end_of(&self, call: &Call, result: Result<Answer, CallFailure>) -> (End, Option<Answer>) {
        let failure = match result {
            Ok(answer) => match decode::check(&answer.outputs, &self.scoring.outputs) {
                Ok(()) => return (End::Scored, Some(answer)),
                Err(fault) => {
                    let message = format!("{}: {fault}", self.hosts.name(call.host));
                    let failure = Failure::new(Class::Ambiguous, message);
                    Failure { is_bad_reply: true, ..failure }
                }
            },
            Err(failure) => {
                // Another host may have it, or the same one later: the rows are not at fault.
                // A line of a batch names its model by itself.
                let is_absent = failure.is_not_served() && !self.scoring.protocol.is_language();
                let class = if is_absent { Class::Unavailable } else { failure.class };
                Failure {
                    is_bad_reply: failure.status == CallStatus::Invalid,
                    may_pass: self.may_pass(&failure, class),
                    retry_after: failure.retry_after,
                    ..Failure::new(class, failure.to_string())
                }
            }
        };
        (End::Failed(failure), None)
    }

    /// True if the host, or a proxy before it, has answered with a failure that another try may not
    /// meet. Servers of language models answer so to lines that they take a moment later.
    fn may_pass(&self, failure: &CallFailure, class: Class) -> bool {
        match failure.status {
            CallStatus::Http(status) if self.scoring.protocol.is_language() => {
                language::may_pass(status, class)
            }
            CallStatus::Http(_) | CallStatus::Grpc(_) => {
                matches!(class, Class::Unavailable | Class::Overloaded)
            }
            CallStatus::Engine => class == Class::Overloaded,
            CallStatus::None | CallStatus::Invalid => false,
        }
    }

    /// Carries out a decision of the dispatcher. `answer` is the one that it is about.
    fn carry_out(
        &mut self,
        decided: Decided,
        answer: Option<(Answer, Charge)>,
    ) -> Result<(), Error> {
        let Decided { scored, dead, cancel, keep } = decided;
        for id in &cancel {
            let Some(flight) = self.flights.remove(id) else { continue };
            self.tally.withdrawn(flight.call.host);
            self.cancelled(&flight.call);
            // Its host may have done the work.
            self.spent(flight.call.host, flight.tokens, Usage::default());
            flight.abort.abort();
        }
        // The batch may be gone after its last rows.
        if let Some((batch, rows)) = keep {
            let rows = rows.start as usize..rows.end as usize;
            let open = self.batches.get(&batch);
            self.reference = open.map(|open| (open.batch.request.part(rows), open.batch.tokens));
        }
        if let (Some(scored), Some((answer, charge))) = (scored, answer) {
            self.scored += u64::from(scored.rows.end - scored.rows.start);
            let host = self.hosts.name(scored.host).to_owned();
            if let Some(open) = self.batches.get_mut(&scored.batch) {
                open.take(Piece { rows: scored.rows, outputs: answer.outputs, host }, charge);
            }
            if scored.is_last {
                self.settle(scored.batch);
            }
        }
        for row in dead {
            self.bury(row);
        }
        Ok(())
    }

    fn bury(&mut self, dead: Dead) {
        self.dead += 1;
        self.tally.dead(dead.reason);
        let death = self.death(&dead);
        let Some(open) = self.batches.get_mut(&dead.batch) else { return };
        open.left = open.left.saturating_sub(1);
        let row = open.batch.rows.get(dead.row as usize).copied().unwrap_or(u32::MAX);
        open.batch.dead.push((row, death));
        if dead.is_last {
            self.settle(dead.batch);
        }
    }

    fn death(&self, dead: &Dead) -> Death {
        let time =
            |at: Moment| humantime::format_rfc3339_millis(self.start.1 + at.elapsed()).to_string();
        Death {
            reason: dead.reason.name().to_owned(),
            error: dead.message.to_string(),
            hosts: dead.hosts.iter().map(|host| self.hosts.name(*host).to_owned()).collect(),
            attempts: dead.attempts,
            first: time(dead.first),
            last: time(dead.last),
        }
    }

    /// Passes a batch on whose rows are all settled.
    fn settle(&mut self, number: BatchId) {
        // Batches of a chunk come in their order.
        let is_first = self.is_first(number);
        let Some(Open { mut batch, pieces, answer_bytes, .. }) = self.batches.remove(&number)
        else {
            return;
        };
        batch.request.inputs.clear();
        batch.charge.shrink(batch.keys_bytes + answer_bytes);
        self.room.settled();
        // An output that has failed reports it.
        let _ = batch.settle(pieces, is_first);
    }
}

/// True if the call has failed, and for another reason than its rows or too much work.
fn is_fault(end: &End) -> bool {
    use Class::{Ambiguous, Lost, Timeout, Unavailable};
    let is_fault = |class| matches!(class, Ambiguous | Lost | Timeout | Unavailable);
    matches!(end, End::Failed(failure) if is_fault(failure.class))
}
