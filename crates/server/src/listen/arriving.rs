//! Bodies of requests, of which some are answered before they have come in.

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

/// What may be on its way when the answer goes out; who sends more goes on although
/// it has been answered.
pub(super) const MOST: usize = super::STREAM_WINDOW as usize;
/// For the rest of a body, after the answer.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// The body of a request. Over HTTP/2 what is left of it when it is dropped, as that
/// of a refused request is, is still taken in, and forgotten.
///
/// Otherwise h2 resets the stream. It remembers fifty of those, for a second each;
/// what still comes in for another one is an error of the peer to it, and after 1024
/// of those in a connection's life it closes the connection, with the good requests
/// that are on it.
pub(crate) struct Arriving {
    /// There until it is dropped.
    body: Option<Incoming>,
    shares: bool,
}

impl Arriving {
    /// `shares` says whether the body is one of several on its connection.
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
        // Without a runtime there is no connection any more either.
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(LONGEST, forget(rest)));
        }
    }
}

/// Takes a body in up to its end, or as much of it as is taken.
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
