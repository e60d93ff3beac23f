//! Request bodies. Some requests are answered before their body has arrived.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    BoxError,
    body::{Bytes, HttpBody},
};
use h2::RecvStream;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use outrigger_core::Failure;
use outrigger_proto::raw::unary::{self, Bounds, Payload};
use tokio::{runtime::Handle, time::timeout};

use super::{
    inbox::{Inbox, unread},
    streams::Body,
};
use crate::held::Held;

/// The most bytes that are read after the answer: a window may be in transit when the answer is
/// sent. A peer that sends more ignores the answer.
pub(super) const MOST: usize = super::STREAM_WINDOW as usize;
/// The longest time for the rest of a body after the answer.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// The body of a request. If it is dropped before its end, as for a refused request, an HTTP/2
/// connection still reads the rest and discards it.
///
/// Otherwise h2 resets the stream after the answer. It remembers fifty reset streams, for a second
/// each; a frame for any other reset stream counts as an error of the peer, and after 1024 of those
/// h2 closes the connection, together with the good requests on it. Frames of messages do not reach
/// h2, so the stream of a message is reset as soon as its peer would need an update of its window.
pub(crate) struct Arriving {
    /// Present until the drop.
    body: Option<Source>,
    /// The message, if the body is one and the connection keeps it together.
    inbox: Option<Inbox>,
    shares: bool,
}

enum Source {
    Hyper(Incoming),
    Stream(RecvStream, Option<Counted>),
}

/// The count of a body's bytes that h2 passes on. They are discarded when this is dropped.
struct Counted(Inbox);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Arriving {
    /// Wraps a body; `shares` is true if its connection may carry others (HTTP/2).
    pub(super) fn new(body: Incoming, shares: bool) -> Self {
        Self { body: Some(Source::Hyper(body)), inbox: None, shares }
    }

    /// The body of a request on a stream. What is `taken` is not in `body`.
    pub(super) fn on_stream(body: RecvStream, taken: Body) -> Self {
        let (inbox, counted) = match taken {
            Body::Taken(inbox) => (Some(inbox), None),
            Body::Passed(inbox) => (None, Some(Counted(inbox))),
            Body::Other => (None, None),
        };
        Self { body: Some(Source::Stream(body, counted)), inbox, shares: true }
    }

    /// Reads the body as one message within `bounds`, which is charged to `held` as it arrives.
    ///
    /// # Errors
    /// The body is not exactly one message within the bounds, or there is no room for it.
    pub(crate) async fn message(
        mut self,
        held: &Arc<Held>,
        bounds: Bounds,
    ) -> Result<Payload, Failure> {
        if let Some(inbox) = &self.inbox {
            let message = inbox.message(held, bounds).await?;
            self.inbox = None;
            // The message ended with the body.
            self.body = None;
            return Ok(message);
        }
        let mut refused = None;
        let admit =
            |arrived, whole| held.receive(arrived, whole).map_err(|it| refused = Some(it)).is_ok();
        let read = unary::read_admitted(&mut self, bounds, admit).await;
        read.map_err(|unreadable| refused.unwrap_or_else(|| unread(&unreadable)))
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.body {
            Some(body) => body.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Source::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(Source::Hyper(body)) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

impl Source {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Hyper(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Self::Stream(body, counted) => {
                let polled = poll_stream(body, context).map_err(Into::into);
                if let (Some(Counted(inbox)), Poll::Pending) = (&counted, &polled) {
                    inbox.drained();
                }
                if matches!(polled, Poll::Ready(None)) {
                    *counted = None;
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body) => body.is_end_stream(),
            Self::Stream(body, _) => body.is_end_stream(),
        }
    }
}

/// The next frame of a stream, for whose bytes the windows are updated.
fn poll_stream(
    body: &mut RecvStream,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
    if let Some(data) = ready!(body.poll_data(context)) {
        let released = data.and_then(|data| {
            body.flow_control().release_capacity(data.len())?;
            Ok(Frame::data(data))
        });
        return Poll::Ready(Some(released));
    }
    let trailers = ready!(body.poll_trailers(context)).transpose();
    Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let ends = self.inbox.as_ref().is_none_or(Inbox::give_up);
        let rest = self.body.take().filter(|body| self.shares && ends && !body.is_end_stream());
        // Without a runtime the connection is gone too.
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(LONGEST, forget(rest, self.inbox.take())));
        }
    }
}

/// Reads a body up to its end or the limit, and discards it. A message that was given up, `inbox`, is
/// discarded by the connection; it is not waited for when its peer cannot send more of it.
async fn forget(mut body: Source, inbox: Option<Inbox>) {
    let mut left = MOST;
    let next = |body: &mut Source, context: &mut Context<'_>| match body.poll_frame(context) {
        Poll::Pending => match &inbox {
            Some(inbox) => inbox.poll_stuck(context).map(|()| None),
            None => Poll::Pending,
        },
        frame => frame,
    };
    while let Some(Ok(frame)) = std::future::poll_fn(|context| next(&mut body, context)).await {
        let size = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(size) {
            Some(less) => left = less,
            None => return,
        }
    }
}
