//! The calls of one version that wait for a batch. Without I/O: the time is passed in.

use std::{collections::VecDeque, time::Duration};

use outrigger_core::Tensor;
use outrigger_run::{Call, RunError};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    Settings,
    form::{Extent, Form},
};

/// The result of a call.
pub(crate) type Answer = Result<Vec<Tensor>, RunError>;

/// A call that waits, or that is part of a batch.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) call: Call,
    pub(crate) extent: Extent,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// A call in the queue.
#[derive(Debug)]
struct Waiting {
    number: u64,
    form: Form,
    arrived: Instant,
    /// The time at which it waits for others no longer.
    due: Instant,
    member: Member,
}

/// The limit for which a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Calls,
    Bytes,
}

/// The next work of a queue.
#[derive(Debug)]
pub(crate) enum Next {
    /// A batch that is run now, with the time since the arrival of its first call.
    Run(Vec<Member>, Duration),
    /// A batch that is due then, if nothing changes before.
    WaitUntil(Instant),
    /// Nothing waits.
    Nothing,
}

/// The waiting calls in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Queue {
    settings: Settings,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    newest: u64,
}

/// The rows of a batch that is being put together.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    rows: usize,
    treatments: usize,
    /// The most treatments of a row.
    widest: usize,
}

impl Sum {
    /// The rows with those of one more call.
    fn with(self, extent: Extent) -> Self {
        Self {
            rows: self.rows + extent.rows,
            treatments: self.treatments + extent.rows * extent.treatments,
            widest: self.widest.max(extent.treatments),
        }
    }

    /// True if padding takes no more room than the treatments themselves.
    fn is_dense(self) -> bool {
        self.rows.saturating_mul(self.widest) <= self.treatments.saturating_mul(2)
    }
}

impl Queue {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, waiting: VecDeque::new(), bytes: 0, newest: 0 }
    }

    /// The calls that wait, and the size of their inputs in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.waiting.len(), self.bytes)
    }

    /// Adds a call that arrives at `now`. Returns its number.
    ///
    /// # Errors
    /// The queue is full.
    pub(crate) fn push(&mut self, form: Form, member: Member, now: Instant) -> Result<u64, Full> {
        let Settings { max_delay, max_calls, max_bytes, .. } = self.settings;
        if self.waiting.len() >= max_calls {
            return Err(Full::Calls);
        }
        let bytes = self.bytes.saturating_add(member.extent.bytes);
        if bytes > max_bytes {
            return Err(Full::Bytes);
        }
        self.bytes = bytes;
        self.newest += 1;
        let half = member.call.deadline.saturating_duration_since(now) / 2;
        let due = now + max_delay.min(half);
        self.waiting.push_back(Waiting { number: self.newest, form, arrived: now, due, member });
        Ok(self.newest)
    }

    /// Removes a call if it still waits.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Ok(index) = self.waiting.binary_search_by_key(&number, |it| it.number) {
            self.take(index);
        }
    }

    /// The next batch. It has the call that is due first, and in the order of their arrival the
    /// others of its form that fit. A call is due at most `max_delay` after its arrival, so later
    /// ones cannot overtake it for ever.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        let Some((indices, due, is_full)) = self.batch() else { return Next::Nothing };
        if !is_full && due > now {
            return Next::WaitUntil(due);
        }
        let first = indices.iter().map(|index| self.waiting[*index].arrived).min();
        let waited = first.map_or_else(Default::default, |arrived| now - arrived);
        // From the end, so that the other positions stay as they are.
        let mut members: Vec<_> =
            indices.into_iter().rev().filter_map(|index| self.take(index)).collect();
        members.reverse();
        Next::Run(members, waited)
    }

    /// The positions of the calls of the next batch, the time when it is due, and whether it has
    /// room for no more.
    fn batch(&self) -> Option<(Vec<usize>, Instant, bool)> {
        let indices = 0..self.waiting.len();
        let opener = indices.clone().min_by_key(|index| self.waiting[*index].due)?;
        let first = &self.waiting[opener];
        let (mut chosen, mut sum) = (vec![opener], Sum::default().with(first.member.extent));
        for index in indices.filter(|index| *index != opener) {
            let call = &self.waiting[index];
            if call.form != first.form {
                continue;
            }
            let next = sum.with(call.member.extent);
            if next.rows > self.settings.max_rows {
                return Some((sorted(chosen), first.due, true));
            }
            // A much wider or narrower call is left for a batch of its own.
            if next.is_dense() {
                chosen.push(index);
                sum = next;
            }
        }
        Some((sorted(chosen), first.due, sum.rows >= self.settings.max_rows))
    }

    fn take(&mut self, index: usize) -> Option<Member> {
        let waiting = self.waiting.remove(index)?;
        self.bytes -= waiting.member.extent.bytes;
        Some(waiting.member)
    }
}

fn sorted(mut indices: Vec<usize>) -> Vec<usize> {
    indices.sort_unstable();
    indices
}

#[cfg(test)]
mod tests;
