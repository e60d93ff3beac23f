//! The memory of a call to the engine, beyond that of its run.

use outrigger_budget::{Budget, Charge, Owner};
use outrigger_core::{Failure, Reason, Tensor};
use outrigger_features::Meter;
use tokio::time::Instant;

/// The charges for a call.
#[derive(Debug)]
pub(super) struct CallMemory {
    tensors: Charge,
    answer: Charge,
    deadline: Instant,
}

impl CallMemory {
    /// Charges nothing yet.
    pub(super) fn open(budget: &Budget, deadline: Instant) -> Self {
        // Not the owner of the run's own share, so that it does not count against the tensors.
        let owner = Owner::of(&"calls of a validation");
        Self { tensors: budget.requests.open(owner), answer: budget.answers.open(owner), deadline }
    }

    /// Charges the outputs and the answer that is made of them.
    ///
    /// # Errors
    /// They do not fit.
    pub(super) fn answer(&self, outputs: &[Tensor]) -> Result<(), Failure> {
        self.answer.grow(outputs.iter().map(|output| 2 * output.size() as u64).sum())
    }
}

impl Meter for CallMemory {
    fn admit(&self, bytes: u64) -> Result<(), Failure> {
        self.tensors.grow(bytes)
    }

    fn proceed(&self) -> Result<(), Failure> {
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(Failure::new(Reason::Deadline, "the caller's deadline passed")),
        }
    }
}
