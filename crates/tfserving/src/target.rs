//! The target of a call: a signature of a servable.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use outrigger_core::ServableId;
use outrigger_rpc::{Places, Share};

use crate::wire::Parts;

/// A signature of a servable. Created once for all its calls, with the parts that their requests
/// have in common.
#[derive(Clone)]
pub struct Target {
    servable: ServableId,
    signature: Arc<str>,
    parts: Parts,
    /// The places of its calls.
    share: OnceLock<Share>,
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
        let parts = Parts::new(&servable, &signature, inputs, outputs);
        Self { parts, servable, signature, share: OnceLock::new() }
    }

    /// The servable to run.
    pub fn servable(&self) -> &ServableId {
        &self.servable
    }

    /// The signature's name.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    /// The share of its calls in the places of its engine.
    pub(crate) fn share(&self, places: &Places) -> &Share {
        self.share.get_or_init(|| places.share())
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
