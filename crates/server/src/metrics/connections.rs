//! The metrics of connections.

use super::{CONNECTIONS, Counted, ENDED, HANDSHAKES, UNREAD};

/// Counts an open connection.
pub(crate) fn connection(listener: &'static str) -> Counted {
    Counted::one(metrics::gauge!(CONNECTIONS, "listener" => listener))
}

/// Registers the metrics of a listener's connections at zero.
pub(crate) fn listener_begins(listener: &'static str, tls: bool) {
    metrics::gauge!(CONNECTIONS, "listener" => listener).increment(0.0);
    for cause in Ending::ALL {
        let labels = [("listener", listener), ("cause", cause.as_str())];
        metrics::counter!(ENDED, &labels).absolute(0);
    }
    metrics::counter!(UNREAD, "listener" => listener).absolute(0);
    if tls {
        metrics::counter!(HANDSHAKES, "listener" => listener).absolute(0);
    }
}

/// The cause for which the server ends a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending {
    Places,
    Flood,
}

impl Ending {
    const ALL: [Self; 2] = [Self::Places, Self::Flood];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Places => "places",
            Self::Flood => "flood",
        }
    }
}

/// Counts a connection that the server ends.
pub(crate) fn connection_ended(listener: &'static str, cause: Ending) {
    metrics::counter!(ENDED, "listener" => listener, "cause" => cause.as_str()).increment(1);
}

/// Counts a connection whose peer did not take an answer.
pub(crate) fn unread(listener: &'static str) {
    metrics::counter!(UNREAD, "listener" => listener).increment(1);
}

/// Counts a handshake that failed.
pub(crate) fn handshake_failed(listener: &'static str) {
    metrics::counter!(HANDSHAKES, "listener" => listener).increment(1);
}
