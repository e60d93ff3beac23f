//! What a call runs.

use std::{fmt, sync::Arc};

use outrigger_core::ServableId;

use crate::wire::Parts;

/// A signature of a servable. Made once for all its calls: it holds what their
/// requests have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    servable: ServableId,
    signature: Arc<str>,
    parts: Parts,
}

impl Target {
    /// The signature of that name, with the inputs and outputs that calls of it
    /// usually name, in their order. A call is free to name others, but what these
    /// take in a request is encoded here, and not call by call.
    pub fn new(
        servable: ServableId,
        signature: impl Into<Arc<str>>,
        inputs: impl IntoIterator<Item = Arc<str>>,
        outputs: impl IntoIterator<Item = Arc<str>>,
    ) -> Self {
        let signature = signature.into();
        Self { parts: Parts::new(&servable, &signature, inputs, outputs), servable, signature }
    }

    /// What is run.
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
