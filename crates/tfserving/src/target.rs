//! The target of a call: a signature of a servable.

use std::{fmt, sync::Arc};

use outrigger_core::ServableId;

use crate::wire::Parts;

/// A signature of a servable. Created once for all its calls, with the parts that their requests
/// have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    servable: ServableId,
    signature: Arc<str>,
    parts: Parts,
}

impl Target {
    /// Creates a target for a signature, with the inputs and outputs that its calls usually name,
    /// in their order. A call may name others, but the usual ones are encoded here once instead of
    /// in every call.
    pub fn new(
        servable: ServableId,
        signature: impl Into<Arc<str>>,
        inputs: impl IntoIterator<Item = Arc<str>>,
        outputs: impl IntoIterator<Item = Arc<str>>,
    ) -> Self {
        let signature = signature.into();
        Self { parts: Parts::new(&servable, &signature, inputs, outputs), servable, signature }
    }

    /// The servable to run.
    pub fn servable(&self) -> &ServableId {
        &self.servable
    }

    /// The signature's name.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("servable", &self.servable)
            .field("signature", &self.signature)
            .finish()
    }
}
