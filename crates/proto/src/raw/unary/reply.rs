//! The body of a response.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};

/// The body of a successful response: one message, then the status in the trailers.
#[derive(Debug)]
pub struct Reply {
    next: Next,
}

#[derive(Debug)]
enum Next {
    Message(Bytes),
    Status,
    End,
}

impl Reply {
    /// A body that sends `framed`, which is a message with its [`prefix`](super::prefix).
    pub fn new(framed: Bytes) -> Self {
        Self { next: Next::Message(framed) }
    }

    /// The response with this body.
    pub fn into_response<B>(self, body: impl FnOnce(Self) -> B) -> http::Response<B> {
        let mut response = http::Response::new(body(self));
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
        response
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let (frame, next) = match std::mem::replace(&mut self.next, Next::End) {
            Next::Message(framed) => (Frame::data(framed), Next::Status),
            Next::Status => (Frame::trailers(ok()), Next::End),
            Next::End => return Poll::Ready(None),
        };
        self.next = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Next::End)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.next {
            Next::Message(framed) => SizeHint::with_exact(framed.len() as u64),
            Next::Status | Next::End => SizeHint::with_exact(0),
        }
    }
}

fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::raw::unary::framed;

    #[test]
    fn a_reply_is_a_message_and_a_status() {
        let mut reply = pin!(Reply::new(framed(b"x")));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut next = || match reply.as_mut().poll_frame(&mut context) {
            Poll::Ready(frame) => frame.map(Result::unwrap),
            Poll::Pending => unreachable!("a reply is always ready"),
        };
        assert_eq!(next().unwrap().into_data().unwrap(), framed(b"x"));
        assert_eq!(next().unwrap().into_trailers().unwrap()["grpc-status"], "0");
        assert!(next().is_none());
    }
}
