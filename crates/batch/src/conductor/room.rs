//! The memory of answers.
//!
//! Each call has memory for an answer of the size that was seen before. An answer that is larger
//! takes more while it is received. If there is no more, the call is given up, and until a batch is
//! settled the first batch alone is sent, which has a reserve. If its answer does not fit although
//! no other answer has a part of the reserve, the rows are sent in smaller calls.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytesize::ByteSize;
use outrigger_dispatch::{BatchId, Call, End, Purpose};

use super::{CallFailure, Conductor, Flight, open::needed};
use crate::{
    Answer, Error,
    memory::{Allowance, Charge, Memory, Used},
    readers::{CALL_BYTES, Sizes},
};

/// The memory of answers.
pub(super) struct Room {
    sizes: Arc<Sizes>,
    memory: Memory,
    /// The bytes of an answer for one row for which all batches have memory; `None` if some may have
    /// less.
    provided: Option<u64>,
    /// True while a call was given up for lack of memory and no batch was settled since.
    is_scarce: bool,
    /// True if a call of the first batch was given up, or if that batch has too little memory: its
    /// calls are sent when no other call and no output has a part of the reserve.
    is_alone: bool,
    is_short: bool,
    /// True if some batches have too little memory.
    is_held: bool,
}

/// The memory of a call that has ended.
pub(super) enum Charged {
    /// The memory of its answer; nothing if it has failed.
    Answer(Charge),
    /// There was too little memory. The call has this end.
    Refused(End),
}

impl Room {
    pub(super) fn new(sizes: Arc<Sizes>, memory: Memory) -> Self {
        Self {
            sizes,
            memory,
            provided: None,
            is_scarce: false,
            is_alone: false,
            is_short: false,
            is_held: false,
        }
    }

    /// A batch may have too little memory.
    pub(super) fn has_changed(&mut self) {
        self.provided = None;
    }

    /// A batch was settled.
    pub(super) fn settled(&mut self) {
        (self.is_scarce, self.is_alone) = (false, false);
        self.has_changed();
    }

    fn row_bytes(&self) -> u64 {
        self.sizes.answer_bytes.load(Relaxed)
    }

    /// Records the memory of an answer to `rows`.
    fn record(&self, bytes: u64, rows: u64) {
        self.sizes.answer_bytes.fetch_max(bytes.div_ceil(rows.max(1)), Relaxed);
    }
}

impl Conductor {
    /// True if batches wait for memory, so that [`Self::send`] is to be called when it has changed.
    pub(crate) fn is_held(&self) -> bool {
        self.room.is_held
    }

    /// Tries other batches than the first one again, which may take long.
    pub(crate) fn review_memory(&mut self) {
        self.room.is_scarce = false;
        self.room.has_changed();
    }

    /// True if a batch is the first one of those that are not settled.
    pub(super) fn is_first(&self, batch: BatchId) -> bool {
        self.batches.first_key_value().is_some_and(|(first, _)| *first == batch)
    }

    /// Provides memory for answers, in the order of the batches. Those that have too little are not
    /// sent, and no further rows are read.
    pub(super) fn provide(&mut self) {
        let row_bytes = self.room.row_bytes();
        if !self.room.is_held && !self.room.is_scarce && self.room.provided == Some(row_bytes) {
            return;
        }
        let sizes = (row_bytes, self.room.memory.reserve());
        let mut batches = self.batches.iter_mut();
        let first = batches.next();
        let mut last = first.as_ref().map(|(number, _)| **number);
        self.room.is_short = first.is_some_and(|(_, open)| !open.provide(sizes, true));
        let is_only = self.room.is_scarce || self.room.is_alone || self.room.is_short;
        let mut is_held = is_only && last.is_some();
        for (number, open) in batches.take_while(|_| !is_only) {
            if !open.provide(sizes, false) {
                is_held = true;
                break;
            }
            last = Some(*number);
        }
        self.dispatcher.hold_after(last.filter(|_| is_held));
        self.room.memory.want(is_held);
        self.room.is_held = is_held;
        self.room.provided = (!is_held).then_some(row_bytes);
    }

    /// True if a call may be sent now.
    pub(super) fn may_send(&self) -> bool {
        let has_reserve =
            |flight: &Flight| flight.allowance.is_first() && flight.call.purpose == Purpose::Score;
        !self.is_alone() || (self.room.memory.due() == 0 && !self.flights.values().any(has_reserve))
    }

    /// True if calls are sent one at a time.
    pub(super) fn is_alone(&self) -> bool {
        self.room.is_alone || self.room.is_short
    }

    /// The memory for the answer to a call.
    pub(super) fn allowance(&mut self, call: &Call) -> Allowance {
        let (is_first, row_bytes) = (self.is_first(call.batch), self.room.row_bytes());
        let nothing = || self.room.memory.open();
        match call.purpose {
            Purpose::Check => Allowance::new(nothing(), true),
            Purpose::Hedge => Allowance::new(nothing(), false),
            Purpose::Score => {
                let open = self.batches.get_mut(&call.batch);
                let rows = call.rows.end - call.rows.start;
                let charge = open.map_or_else(nothing, |open| open.send(rows, row_bytes));
                Allowance::new(charge, is_first)
            }
        }
    }

    /// A call was cancelled. Its memory is given back when its task has ended.
    pub(super) fn cancelled(&mut self, call: &Call) {
        let nothing = self.room.memory.open();
        let open = self.batches.get_mut(&call.batch).filter(|_| call.purpose == Purpose::Score);
        if let Some(open) = open {
            open.take_back(call.rows.end - call.rows.start, nothing);
        }
    }

    /// Ends the allowance of a call.
    ///
    /// # Errors
    /// The answer for one row is larger than the memory.
    pub(super) fn charged(
        &mut self,
        Flight { call, allowance, is_alone, .. }: &Flight,
        result: &Result<Answer, CallFailure>,
    ) -> Result<Charged, Error> {
        let size = result.as_ref().ok().map(Answer::bytes);
        let Used { mut charge, peak, is_refused } = allowance.end(size);
        let rows = call.rows.end - call.rows.start;
        if is_refused || size.is_some() {
            let bytes = peak.saturating_sub(CALL_BYTES).max(size.unwrap_or(0));
            self.room.record(bytes, rows.into());
        }
        let nothing = charge.split(0);
        let row_bytes = self.room.row_bytes();
        let open = self.batches.get_mut(&call.batch).filter(|_| call.purpose == Purpose::Score);
        match (size, is_refused, open) {
            (Some(_), false, open) => {
                if let Some(open) = open {
                    open.take_back(rows, nothing);
                }
                return Ok(Charged::Answer(charge));
            }
            (_, true, open) => {
                drop(charge);
                if let Some(open) = open {
                    open.take_back(rows, nothing);
                }
            }
            (None, false, Some(open)) => {
                charge.shrink(needed(rows.into(), row_bytes));
                open.take_back(rows, charge);
                return Ok(Charged::Answer(nothing));
            }
            (None, false, None) => return Ok(Charged::Answer(nothing)),
        }
        self.room.is_scarce = true;
        match call.purpose == Purpose::Score && allowance.is_first() {
            true if *is_alone => self.too_large(call, peak).map(Charged::Refused),
            is_first => {
                self.room.is_alone |= is_first;
                Ok(Charged::Refused(End::Withdrawn))
            }
        }
    }

    /// The end of a call whose answer has more than the memory that the first batch can have, and
    /// needs `peak` bytes or more.
    fn too_large(&self, call: &Call, peak: u64) -> Result<End, Error> {
        if call.rows.end - call.rows.start > 1 {
            return Ok(End::Oversized);
        }
        let memory = &self.room.memory;
        let (used, limit) = (ByteSize(memory.used().0), ByteSize(memory.limit()));
        Err(Error::failed(format!(
            "an answer of {} for one row needs {} or more, and does not fit into the memory for \
             rows, requests and answers: {used} of {limit} are in use for the rows before it and for \
             those that were read. Run the job again with a smaller batch_size or more memory",
            self.hosts.name(call.host),
            ByteSize(peak)
        )))
    }
}
