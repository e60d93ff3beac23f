//! The parts of a call: a batch whose users have different arms runs on two versions.

use outrigger_core::{Arm, Failure};

use super::Call;
use crate::metrics::ServedAs;

/// The part of a call that runs on one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole call, or of a batch whose users have different arms the users on the arm of the one
    /// who stands for the batch.
    Main,
    /// The other users of the batch, who are on this arm.
    Other(Arm),
}

impl Call {
    /// The part of the call for the users of a batch who are on another arm.
    pub(crate) fn other(&self, arm: Arm) -> Self {
        Self { part: Part::Other(arm), ..self.clone() }
    }

    /// Charges the memory that this part of the request is turned into, in place of what it was
    /// turned into before.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn charge_work(&self, bytes: u64) -> Result<(), Failure> {
        self.held().work(self.part, bytes)
    }

    /// Reduces the charge for the memory that this part of the request was turned into to `bytes`.
    pub(crate) fn keep_work(&self, bytes: u64) {
        self.held().keep_work(self.part, bytes);
    }

    /// Charges the model's outputs for this part, in place of what was charged for them before.
    ///
    /// # Errors
    /// They do not fit.
    pub(crate) fn charge_outputs(&self, bytes: u64) -> Result<(), Failure> {
        self.held().outputs(self.part, bytes)
    }

    /// Releases the charge for the model's outputs for this part, which have been freed.
    pub(crate) fn release_outputs(&self) {
        self.held().release_outputs(self.part);
    }

    /// Charges the answer of this part, in place of what was charged for it before.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn charge_answer(&self, bytes: u64) -> Result<(), Failure> {
        self.held().answer(self.part, bytes)
    }

    /// The labels of the version that answers this part; empty if there is none.
    pub(crate) fn served_as(&self) -> ServedAs {
        let by = self.inner.served_as();
        match self.part {
            Part::Other(arm) if self.inner.stood_in.get().is_none() => {
                ServedAs { arm: Some(arm), ..by }
            }
            Part::Main | Part::Other(_) => by,
        }
    }
}
