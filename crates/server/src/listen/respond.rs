//! Sends the answer to a request on its HTTP/2 stream.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use axum::{
    BoxError,
    body::{Bytes, HttpBody as Body},
    http::Response,
};
use futures::{FutureExt as _, future::poll_fn};
use h2::{Reason, SendStream, server::SendResponse};
use http_body::Frame;

/// Waits for the answer and sends it. A request that the peer resets is given up.
pub(super) async fn respond<B>(
    mut answer: impl Future<Output = Response<B>> + Unpin,
    mut respond: SendResponse<Bytes>,
) where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let answered = poll_fn(|context| match answer.poll_unpin(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => respond.poll_reset(context).map(|_reset| None),
    });
    let Some(answer) = answered.await else { return };
    if let Err(error) = send(answer, respond).await {
        tracing::debug!(%error, "an answer was not sent");
    }
}

async fn send<B>(answer: Response<B>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (head, body) = answer.into_parts();
    let mut body = pin!(body);
    let is_end = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(head, ()), is_end)?;
    if is_end {
        return Ok(());
    }
    while let Some(frame) =
        poll_fn(|context| poll_next(&mut stream, body.as_mut(), context)).await?
    {
        let frame = match frame.into_data() {
            Ok(data) => {
                let is_end = body.is_end_stream();
                stream.send_data(data, is_end)?;
                if is_end {
                    return Ok(());
                }
                continue;
            }
            Err(frame) => frame,
        };
        if let Ok(trailers) = frame.into_trailers() {
            return stream.send_trailers(trailers);
        }
    }
    stream.send_data(Bytes::new(), true)
}

/// The next frame of an answer, once the peer takes a byte of it: a stream of events is not read
/// ahead of its peer.
fn poll_next<B>(
    stream: &mut SendStream<Bytes>,
    body: Pin<&mut B>,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Frame<Bytes>>, h2::Error>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match ready!(stream.poll_capacity(context)) {
            Some(capacity) => drop(capacity?),
            None => return Poll::Ready(Err(Reason::CANCEL.into())),
        }
    }
    if let Poll::Ready(reason) = stream.poll_reset(context)? {
        return Poll::Ready(Err(reason.into()));
    }
    match ready!(body.poll_frame(context)) {
        None => Poll::Ready(Ok(None)),
        Some(Ok(frame)) => Poll::Ready(Ok(Some(frame))),
        Some(Err(error)) => {
            let error = error.into();
            tracing::debug!(error, "the body of an answer broke off");
            stream.send_reset(Reason::INTERNAL_ERROR);
            Poll::Ready(Err(Reason::INTERNAL_ERROR.into()))
        }
    }
}
