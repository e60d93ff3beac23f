//! Request bodies. Some requests are answered before their body has arrived.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{runtime::Handle, time::timeout};

/// The most bytes that are read after the answer: a window may be in transit when the answer is
/// sent. A peer that sends more ignores the answer.
pub(super) const MOST: usize = super::STREAM_WINDOW as usize;
/// The longest time for the rest of a body after the answer.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// The body of a request. If it is dropped before its end, as for a refused request, an HTTP/2
/// connection still reads the rest and discards it.
///
/// Otherwise h2 resets the stream. It remembers fifty reset streams, for a second each; a frame for
/// any other reset stream counts as an error of the peer, and after 1024 of those h2 closes the
/// connection, together with the good requests on it.
pub(crate) struct Arriving {
    /// Present until the drop.
    body: Option<Incoming>,
    shares: bool,
}

impl Arriving {
    /// Wraps a body; `shares` is true if its connection may carry others (HTTP/2).
    pub(super) fn new(body: Incoming, shares: bool) -> Self {
        Self { body: Some(body), shares }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| self.shares && !body.is_end_stream());
        // Without a runtime the connection is gone too.
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(LONGEST, forget(rest)));
        }
    }
}

/// Reads a body up to its end or the limit, and discards it.
async fn forget(mut body: Incoming) {
    let mut left = MOST;
    while let Some(Ok(frame)) = body.frame().await {
        let size = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(size) {
            Some(less) => left = less,
            None => return,
        }
    }
}
