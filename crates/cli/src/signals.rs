//! The signals that stop a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// SIGTERM and SIGINT, which no longer end the process by themselves.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// The system failed.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub(crate) fn listen() -> Result<Self, Exit> {
        let listen = |kind| signal(kind).map_err(Exit::failed);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
