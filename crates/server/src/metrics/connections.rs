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

/// The cause for which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Places,
    Flood,
    Protocol,
    FlowControl,
    FrameSize,
    Calm,
    Peer,
    Http1,
}

impl Ending {
    const ALL: [Self; 8] = [
        Self::Places,
        Self::Flood,
        Self::Protocol,
        Self::FlowControl,
        Self::FrameSize,
        Self::Calm,
        Self::Peer,
        Self::Http1,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Places => "places",
            Self::Flood => "flood",
            Self::Protocol => "protocol",
            Self::FlowControl => "flow_control",
            Self::FrameSize => "frame_size",
            Self::Calm => "calm",
            Self::Peer => "peer",
            Self::Http1 => "http1",
        }
    }
}

/// Counts a connection that ends.
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
