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
use outrigger_core::{Failure, Reason};
use outrigger_proto::raw::unary::{self, Bounds, Payload, Unreadable};
use tokio::{runtime::Handle, time::timeout};

use super::bodies::Body;
use crate::held::Held;

/// The most bytes that are read after the answer: a window may be in transit when the answer is
/// sent. A peer that sends more ignores the answer.
pub(super) const MOST: usize = super::STREAM_WINDOW as usize;
/// The longest time for the rest of a body after the answer.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// The body of a request. If it is dropped before its end, as for a refused request, an HTTP/2
/// connection still reads the rest and discards it.
///
/// Otherwise the stream is reset after the answer. hyper remembers fifty reset streams, for a second
/// each; a frame for any other reset stream counts as an error of the peer, and after 1024 of those
/// the connection is closed, together with the good requests on it.
pub(crate) struct Arriving {
    /// Present until the drop.
    body: Option<Source>,
    shares: bool,
}

enum Source {
    Hyper(Incoming),
    Stream(Stream),
}

/// The body of a stream of h2.
struct Stream {
    /// Its place among the unread bodies.
    body: Option<Body>,
    received: RecvStream,
    /// The bytes that were passed on, and are to be given back to the windows.
    passed: usize,
}

impl Arriving {
    /// Wraps a body; `shares` is true if its connection may carry others (HTTP/2).
    pub(super) fn new(body: Incoming, shares: bool) -> Self {
        Self { body: Some(Source::Hyper(body)), shares }
    }

    /// The body of a request on a stream. `body` is its place among those that are unread.
    pub(super) fn on_stream(received: RecvStream, body: Option<Body>) -> Self {
        let stream = Stream { body, received, passed: 0 };
        Self { body: Some(Source::Stream(stream)), shares: true }
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
        let mut refused = None;
        let admit =
            |bytes: usize| held.receive(bytes, None).map_err(|it| refused = Some(it)).is_ok();
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
            Self::Stream(stream) => stream.poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body) => body.is_end_stream(),
            Self::Stream(stream) => stream.received.is_end_stream(),
        }
    }

    /// The same without a reader.
    fn given_up(mut self) -> Self {
        if let Self::Stream(stream) = &mut self {
            stream.body = None;
        }
        self
    }

    /// The most bytes that are read of it after the answer. On a stream of h2 it is what the peer can
    /// send by the windows that it has.
    fn rest(&mut self) -> usize {
        match self {
            Self::Hyper(_) => MOST,
            Self::Stream(stream) => {
                let flow = stream.received.flow_control();
                let window = usize::try_from(flow.available_capacity()).unwrap_or(0);
                (window + flow.used_capacity()).min(MOST)
            }
        }
    }
}

impl Stream {
    /// The next frame. Its bytes are given back to the windows when no more are there.
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(body) = &mut self.body {
            body.read();
        }
        match self.received.poll_data(context)? {
            Poll::Ready(Some(data)) => {
                self.passed += data.len();
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            Poll::Ready(None) => {}
            Poll::Pending => {
                let passed = std::mem::take(&mut self.passed);
                if passed > 0 {
                    self.received.flow_control().release_capacity(passed)?;
                }
                return Poll::Pending;
            }
        }
        let trailers = ready!(self.received.poll_trailers(context)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| self.shares && !body.is_end_stream());
        let rest = rest.map(Source::given_up);
        // Without a runtime the connection is gone too.
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(LONGEST, forget(rest)));
        }
    }
}

/// Reads a body up to its end or the limit, and discards it.
async fn forget(mut body: Source) {
    let mut left = body.rest();
    while left > 0 {
        let next = std::future::poll_fn(|context| body.poll_frame(context)).await;
        let Some(Ok(frame)) = next else { return };
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
    }
}

/// The failure of a message that cannot be read.
pub(crate) fn unread(unreadable: &Unreadable) -> Failure {
    let reason = match unreadable {
        Unreadable::TooLarge { .. } => Reason::TooLarge,
        Unreadable::Unsupported => Reason::EncodingUnsupported,
        _ => Reason::RequestMalformed,
    };
    Failure::new(reason, unreadable.to_string())
}
