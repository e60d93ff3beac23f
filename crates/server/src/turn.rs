//! Waiting for a turn: at the gate of a version, and for a place in the process. Most requests wait
//! at their headers, with their bodies unread, so that the bodies stay with their senders.

use std::{sync::Arc, time::Duration};

use outrigger_budget::{Charge, Owner};
use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::{Ask, Entry, Late, Load};
use outrigger_net::timeout_at;
use tokio::time::Instant;

use crate::{
    admission::WAITED,
    call::Call,
    caller::Party,
    front::Method,
    held::Held,
    metrics::{self, Counted, Limit, WaitsFor},
    priority::{self, Priority},
    request_limits::RequestLimits,
    spare,
};

/// The memory of a request that waits at its headers, in bytes: its stream, its task and its
/// headers.
const WAITING: u64 = 5 << 10;

const CROWDED: &str = "the version has as many calls in progress as it can work on";

/// A wait, which is counted. The memory of the waiting request is charged meanwhile.
struct Wait<'a> {
    call: &'a Call,
    began: Instant,
    _charge: Option<Charge>,
    _counted: Counted,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.call.waited(self.began.elapsed());
    }
}

impl RequestLimits {
    /// Gives a call that computes its place, after it waited for its turn if need be: first at the
    /// gate of the version that its connection asks for lately, if that is crowded, and then for a
    /// place. A call of low priority waits until others leave room instead.
    ///
    /// # Errors
    /// `OVERLOADED`: it would be answered after its deadline, it waited for a place until then, or there
    /// is no room for one that waits.
    pub(crate) async fn seat(
        &self,
        call: &Call,
        method: Method,
        priority: Priority,
    ) -> Result<(), Failure> {
        let (party, peer) = (call.caller().party(), call.caller().peer());
        let crowded = method.runs().then(|| peer.habit().crowded(call.started())).flatten();
        match (priority, crowded) {
            (Priority::Batch, _) => self.give_way(call, &party).await?,
            (Priority::Online, Some(load)) => self.enter_version(call, &load, false).await?,
            (Priority::Online, None) => {}
        }
        let seat = match self.admission.enter(&party, peer) {
            Ok(seat) => seat,
            Err(mut waiting) => {
                // Requests with a place may wait for its turn.
                call.lose_turn();
                let _wait = self.wait(call, WaitsFor::Place, Some(&party))?;
                let seat = timeout_at(call.deadline(), waiting.admitted()).await;
                seat.ok().flatten().ok_or_else(|| self.admission.refusal(&party))?
            }
        };
        let counted = metrics::in_flight(method);
        call.seat(Held::new(seat, (&party, peer.clone()), &self.budget, counted));
        Ok(())
    }

    /// Lets a call of low priority begin once others leave room.
    async fn give_way(&self, call: &Call, party: &Party) -> Result<(), Failure> {
        let _wait = self.wait(call, WaitsFor::Room, Some(party))?;
        let place = timeout_at(call.deadline(), self.low.place()).await;
        call.gives_way(place.ok().flatten().ok_or_else(priority::refusal)?);
        Ok(())
    }

    /// True if predictions that do not give way are in progress, or were lately.
    pub(crate) fn has_others(&self) -> bool {
        self.low.has_others()
    }

    /// Lets a call of low priority use a version once no other call waits for it. The call is not
    /// part of the version's load, whose estimates are those of calls that do not give way.
    ///
    /// # Errors
    /// `OVERLOADED`: others waited until its deadline.
    pub(crate) async fn give_way_at(&self, call: &Call, load: &Load) -> Result<(), Failure> {
        let _wait = self.wait(call, WaitsFor::Room, None)?;
        let calm = timeout_at(call.deadline(), spare::calm(load)).await;
        calm.map_err(|_| priority::refusal())
    }

    /// Lets a call of low priority go on with its next piece at a version, once others leave room.
    /// It yields to them for at most `patience`; returns what is left of that.
    ///
    /// # Errors
    /// `OVERLOADED`: others left no room until its deadline.
    pub(crate) async fn give_way_again(
        &self,
        call: &Call,
        load: &Load,
        patience: Duration,
    ) -> Result<Duration, Failure> {
        let _wait = self.wait(call, WaitsFor::Room, None)?;
        let room = timeout_at(call.deadline(), self.low.room_for_more(load, patience)).await;
        room.map_err(|_| priority::refusal())
    }

    /// Lets a call enter a version, after it waited for its turn if the version is crowded. If its
    /// body has been read (`is_read`), its duration is measured from then on.
    ///
    /// # Errors
    /// `OVERLOADED`: it would be answered after its deadline, or there is no room for one that waits.
    pub(crate) async fn enter_version(
        &self,
        call: &Call,
        load: &Arc<Load>,
        is_read: bool,
    ) -> Result<(), Failure> {
        let (party, deadline) = (call.caller().party(), call.deadline());
        let (caller, is_first) = (self.hash(&party), call.has_lost_its_turn());
        let ask = Ask { caller, now: Instant::now(), deadline, is_first };
        let mut waiting = match load.enter(&ask).map_err(|late| self.late(late))? {
            Entry::Running(running) => {
                if is_read {
                    running.begins_at_once();
                }
                call.enters(running);
                return Ok(());
            }
            Entry::Waiting(waiting) => waiting,
        };
        let _wait = self.wait(call, WaitsFor::Version, Some(&party))?;
        let turn = async {
            let admitted = timeout_at(waiting.latest(), waiting.admitted()).await;
            admitted.unwrap_or_else(|_| Err(waiting.late())).map_err(|late| self.late(late))
        };
        if !is_read {
            call.enters(turn.await?);
            return Ok(());
        }
        let running = call.held().aside(turn).await?;
        running.begins(Instant::now());
        call.enters(running);
        Ok(())
    }

    /// The failure of a request that waits, or would wait, until its deadline.
    fn late(&self, late: Late) -> Failure {
        let failure = match late {
            Late::Engine(failure) => return failure,
            Late::Model => {
                let failure = self.per_model.refusal();
                return failure.map_message(|message| format!("{message}; {WAITED}"));
            }
            Late::Crowd(None) => Failure::new(Reason::Overloaded, format!("{CROWDED}; {WAITED}")),
            Late::Crowd(Some(wait)) => {
                let message =
                    format!("the answer would take about {wait:.0?}, beyond the deadline");
                Failure::new(Reason::Overloaded, message).retry_after(wait)
            }
        };
        metrics::refused(Limit::Deadline);
        failure
    }

    /// Begins a wait of `call`, whose memory is charged to `party` if it has no place meanwhile.
    fn wait<'a>(
        &self,
        call: &'a Call,
        waits_for: WaitsFor,
        party: Option<&Party>,
    ) -> Result<Wait<'a>, Failure> {
        let charge = |party| self.budget.waiting.charge(Owner::of(party), WAITING);
        let full = |failure| {
            metrics::refused(Limit::Memory);
            failure
        };
        let charge = party.map(charge).transpose().map_err(full)?;
        let counted = metrics::waiting(waits_for);
        Ok(Wait { call, began: Instant::now(), _charge: charge, _counted: counted })
    }
}
