//! The outputs of the model, as the answers of the hosts confirm them.
//!
//! Where the job or the hosts describe all of them, one answer that has them is enough: a host with
//! another answer is at fault, and another one is asked. Where something is left open, two answers must
//! agree about it: those of two hosts, or of one if no other one answers.

use outrigger_dispatch::HostId;
use outrigger_oip::Tensor;

use super::Learned;
use crate::{
    Error,
    columns::{Expected, OutputColumn, stated},
};

/// The most answers of one host.
pub(super) const ANSWERS: usize = 2;

/// The answers so far.
#[derive(Debug)]
pub(super) struct Agreement {
    expected: Expected,
    fitting: Vec<Heard>,
    contradictions: Vec<Contradiction>,
}

/// An answer that fits to all that is known.
#[derive(Debug)]
struct Heard {
    host: HostId,
    learned: Learned,
    /// The dimensions of the tensor of each column.
    ranks: Vec<usize>,
    setting: String,
}

/// An answer that does not.
#[derive(Debug)]
struct Contradiction {
    host: HostId,
    fault: String,
    /// The setting with which it would fit.
    setting: String,
}

impl Agreement {
    pub(super) fn new(expected: Expected) -> Self {
        Self { expected, fitting: Vec::new(), contradictions: Vec::new() }
    }

    /// The answers of a host so far.
    pub(super) fn answers_of(&self, host: HostId) -> usize {
        let fitting = self.fitting.iter().filter(|it| it.host == host).count();
        fitting + self.contradictions.iter().filter(|it| it.host == host).count()
    }

    /// Takes an answer, of which `learn` keeps what the job needs beside its columns.
    ///
    /// # Errors
    /// The answer contradicts what is known.
    pub(super) fn take(
        &mut self,
        host: HostId,
        answer: &[Tensor],
        learn: impl FnOnce(Vec<OutputColumn>) -> Learned,
    ) -> Result<(), String> {
        let setting = stated(answer);
        match self.expected.columns(answer) {
            Ok(columns) => {
                let rank = |column: &OutputColumn| {
                    let tensor = answer.iter().find(|tensor| *tensor.name == column.tensor);
                    tensor.map_or(0, |tensor| tensor.shape.len())
                };
                let ranks = columns.iter().map(rank).collect();
                self.fitting.push(Heard { host, learned: learn(columns), ranks, setting });
            }
            Err(fault) => {
                self.contradictions.push(Contradiction { host, fault: fault.clone(), setting });
                return Err(fault);
            }
        }
        Ok(())
    }

    /// One of the answers that agree, once they are enough: the first one with the most lists. `is_last`:
    /// no other answer is to be had.
    pub(super) fn agreed(&self, is_last: bool) -> Option<&Learned> {
        let is_enough = |it: &&Heard| {
            let like = || self.fitting.iter().filter(|other| it.is_like(other));
            let is_only = || like().count() == self.fitting.len() && like().count() >= ANSWERS;
            self.expected.is_complete()
                || like().any(|other| other.host != it.host)
                || (is_last && is_only())
        };
        let enough = self.fitting.iter().find(is_enough)?;
        let like = self.fitting.iter().filter(|other| enough.is_like(other));
        like.rev().max_by_key(|it| it.lists()).map(|it| &it.learned)
    }

    /// The error of a job whose hosts do not agree. `None` if they do, as far as they have answered.
    pub(super) fn error(&self) -> Option<Error> {
        let message = match (&self.fitting[..], &self.contradictions[..]) {
            ([], [.., Contradiction { fault, setting, .. }]) => format!(
                "outputs: the answers of all hosts contradict what the job or their description of \
                 the model states: {fault}. If the answers are right, state their outputs in the job: \
                 {setting}"
            ),
            ([first, others @ ..], _) => {
                let other = others.iter().find(|it| !it.is_like(first))?;
                format!(
                    "outputs: the hosts do not describe them, and answer with different ones. State \
                     the right ones in the job: {}, or {}",
                    first.setting, other.setting
                )
            }
            ([], []) => return None,
        };
        Some(Error::usage(message))
    }
}

impl Heard {
    /// True if both answers have the same outputs, in whatever order. One value in a row may be a list
    /// of any size where the shape has a dimension for it.
    fn is_like(&self, other: &Self) -> bool {
        let all = |it: &Self| -> Vec<_> {
            it.learned.columns.iter().cloned().zip(it.ranks.iter().copied()).collect()
        };
        let is_same = |(one, rank): &(OutputColumn, usize), (other, of): &(OutputColumn, usize)| {
            let as_deep = OutputColumn { depth: other.depth, ..one.clone() };
            as_deep == *other && (one.depth == other.depth || rank == of)
        };
        let [one, other] = [self, other].map(all);
        one.len() == other.len() && one.iter().all(|it| other.iter().any(|of| is_same(it, of)))
    }

    /// The lists of its columns.
    fn lists(&self) -> usize {
        self.learned.columns.iter().map(|column| column.depth).sum()
    }
}
