//! The caller's deadline.

use std::{future::Future, time::Duration};

use http::HeaderMap;
use outrigger_proto::raw::unary;
use tokio::time::{Instant, timeout_at};
use tonic::Code;

use crate::status::Status;

/// Time by which the answer precedes the deadline. At the deadline the caller's own
/// transport would report the call as cancelled instead.
const MARGIN: Duration = Duration::from_millis(2);

/// The times by which a call is over.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Deadlines {
    /// The time by which the answer must be sent; `None` if the caller set no timeout.
    pub(super) answer: Option<Instant>,
    /// The time by which the run must have begun. The control plane's callers wait no longer, and it
    /// waits for the end of a run that has begun.
    pub(super) begin: Option<Instant>,
}

impl Deadlines {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let answer = of(headers, "grpc-timeout");
        Self { answer, begin: of(headers, unary::CALLER_TIMEOUT).or(answer) }
    }
}

fn of(headers: &HeaderMap, name: &str) -> Option<Instant> {
    let timeout = unary::timeout(headers.get(name)?.to_str().ok()?)?;
    Instant::now().checked_add(timeout.saturating_sub(MARGIN.min(timeout / 4)))
}

/// The result of `work`, or DEADLINE_EXCEEDED.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Status> {
    match deadline {
        None => Ok(work.await),
        Some(deadline) => timeout_at(deadline, work).await.map_err(|_| exceeded()),
    }
}

/// The error with TensorFlow's message.
pub(super) fn exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "Timed out waiting for notification")
}
