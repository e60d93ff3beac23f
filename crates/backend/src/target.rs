//! What a call runs.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use outrigger_core::ServableId;

use crate::wire;

/// A signature of a servable. Made once for all its calls: it holds what their
/// requests have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    servable: ServableId,
    signature: Arc<str>,
    /// Field `model_spec` of every request.
    spec: Bytes,
}

impl Target {
    /// The signature of that name.
    pub fn new(servable: ServableId, signature: impl Into<Arc<str>>) -> Self {
        let signature = signature.into();
        Self { spec: wire::model_spec(&servable, &signature), servable, signature }
    }

    /// What is run.
    pub fn servable(&self) -> &ServableId {
        &self.servable
    }

    /// The signature's name.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    pub(crate) fn spec(&self) -> &[u8] {
        &self.spec
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
