//! Connections that break the protocol, counted by cause and logged now and then.

use std::{
    error::Error,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use h2::Reason;
use tokio::time::Instant;

use super::frames::Flood;
use crate::metrics::{self, Ending};

/// The shortest time between two warnings of a listener.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The connections of a listener that ended with an error. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Endings {
    listener: &'static str,
    warned: Arc<Mutex<Warned>>,
}

#[derive(Debug, Default)]
struct Warned {
    at: Option<Instant>,
    /// The connections since then.
    others: u64,
}

impl Endings {
    pub(super) fn of(listener: &'static str) -> Self {
        Self { listener, warned: Arc::default() }
    }

    /// Records a connection that ended with an error. Peers may disconnect at any time, which is
    /// logged at debug only.
    pub(super) fn record(&self, peer: SocketAddr, error: &(dyn Error + 'static)) {
        let listener = self.listener;
        let Some(cause) = cause(error) else {
            tracing::debug!(listener, %peer, error, "a connection broke");
            return;
        };
        metrics::connection_ended(listener, cause);
        let cause = cause.as_str();
        match self.warns() {
            Some(others) => {
                let text = "a connection ended because of an error of the protocol";
                tracing::warn!(listener, %peer, cause, error, others, "{text}");
            }
            None => tracing::debug!(listener, %peer, cause, error, "a connection ended"),
        }
    }

    /// Returns the number of connections that were not warned of, if it is time for a warning.
    fn warns(&self) -> Option<u64> {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.at.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            warned.others += 1;
            return None;
        }
        warned.at = Some(Instant::now());
        Some(std::mem::take(&mut warned.others))
    }
}

/// The error of the protocol that ended a connection; `None` if the connection broke otherwise.
fn cause(error: &(dyn Error + 'static)) -> Option<Ending> {
    let mut errors = std::iter::successors(Some(error), |error| (**error).source());
    errors.find_map(|error| {
        let io = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if error.is::<Flood>() || io.is_some_and(|inner| inner.is::<Flood>()) {
            return Some(Ending::Flood);
        }
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return Some(Ending::Http1);
        }
        error.downcast_ref().and_then(of_http2)
    })
}

fn of_http2(error: &h2::Error) -> Option<Ending> {
    let reason = error.reason()?;
    if error.is_remote() {
        return Some(Ending::Peer);
    }
    Some(match reason {
        Reason::FLOW_CONTROL_ERROR => Ending::FlowControl,
        Reason::FRAME_SIZE_ERROR => Ending::FrameSize,
        Reason::ENHANCE_YOUR_CALM => Ending::Calm,
        _ => Ending::Protocol,
    })
}

#[cfg(test)]
mod tests;
