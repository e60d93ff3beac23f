//! Response streams that end when the server stops.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::Frame;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::failure;

/// A response body that continues as long as its caller listens, such as a watch. When the server
/// stops, it ends with SHUTTING_DOWN. Otherwise it would keep its connection open until the
/// connection is cut.
pub(super) struct UntilStop {
    body: Body,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    over: bool,
}

impl UntilStop {
    pub(super) fn wrap(body: Body, stop: &CancellationToken) -> Body {
        let stop = Box::pin(stop.clone().cancelled_owned());
        Body::new(Self { body, stop, over: false })
    }
}

impl HttpBody for UntilStop {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        // Frames that are ready are sent before the stream ends.
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        ready!(self.stop.as_mut().poll(context));
        self.over = true;
        let (parts, ()) = failure::to_status(&failure::stopping()).into_http::<()>().into_parts();
        Poll::Ready(Some(Ok(Frame::trailers(parts.headers))))
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }
}
