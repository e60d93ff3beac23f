//! Settings of connections.

use std::time::Duration;

/// Settings of a set of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The number of connections; at least one is made for each runtime. Several are useful because
    /// a server reads each on one thread.
    pub connections: usize,
    /// The time limit of one attempt to connect.
    pub connect_timeout: Duration,
    /// The time for which calls wait for a new connection after the last one was lost. After that
    /// they fail at once until there is one.
    pub reconnect_window: Duration,
    /// The pause after the first failed attempt to connect; it doubles with each further failure.
    pub first_retry: Duration,
    /// The longest pause between two attempts.
    pub last_retry: Duration,
    /// Whether a connection counts as open only after the server has answered a ping: a Unix
    /// socket accepts connections also for a server that is gone. Only for [`crate::Calls`].
    pub confirm: bool,
    /// The limits announced to the server.
    pub http2: Http2,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 1,
            connect_timeout: Duration::from_secs(1),
            reconnect_window: Duration::from_millis(250),
            first_retry: Duration::from_millis(10),
            last_retry: Duration::from_millis(100),
            confirm: false,
            http2: Http2::default(),
        }
    }
}

/// HTTP/2 limits for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2 {
    /// The bytes of one answer that the server may send without waiting for a window update.
    pub stream_window: u32,
    /// The bytes of all answers on a connection that the server may send without waiting for a
    /// window update.
    pub connection_window: u32,
    /// The largest frame in bytes.
    pub frame: u32,
}

impl Default for Http2 {
    /// The default windows hold several answers of a megabyte.
    fn default() -> Self {
        Self { stream_window: 8 << 20, connection_window: 32 << 20, frame: 1 << 20 }
    }
}
