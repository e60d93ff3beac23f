//! Logs events of the connections.

use outrigger_core::EngineId;
use outrigger_rpc::{Observer, TransportError};

#[derive(Debug)]
pub(crate) struct Log(EngineId);

impl Log {
    pub(crate) fn of(engine: &EngineId) -> Self {
        Self(engine.clone())
    }
}

impl Observer for Log {
    fn lost(&self, error: &TransportError) {
        tracing::warn!(engine = %self.0, error = %error, "lost the engine");
    }

    fn failed(&self, error: &TransportError) {
        tracing::debug!(engine = %self.0, error = %error, "cannot connect");
    }
}
