//! Decompresses the messages of queries and changes, which tonic's services take as they are.
//!
//! tonic can decompress too, but its limit on messages holds for the compressed bytes only.

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use outrigger_core::Failure;
use outrigger_proto::raw::unary::{framed, read_admitted};

use super::QUESTION;
use crate::{
    call::Call,
    compression::{Declared, Policy, decompress_small},
    failure,
    listen::unread,
};

/// The services whose requests are streams: their messages are small, and are not decompressed.
const STREAMS: &str = "/grpc.reflection.";

/// Gives the services behind it requests that are not compressed.
pub(crate) async fn decompressed(
    State(policy): State<Policy>,
    request: Request,
    next: Next,
) -> Response {
    if !policy.declares(request.headers()) {
        return next.run(request).await;
    }
    let call = Call::of(request.extensions());
    match plain(policy, request).await {
        Ok(request) => next.run(request).await,
        Err(failure) => {
            call.failed(&failure);
            let mut refused = failure::to_status(&failure).into_http();
            policy.explain(&failure, refused.headers_mut());
            refused
        }
    }
}

/// The request with its message decompressed.
async fn plain(policy: Policy, mut request: Request) -> Result<Request, Failure> {
    let declared = policy.message(request.headers());
    policy.forget(request.headers_mut());
    if request.uri().path().starts_with(STREAMS) {
        return Ok(request);
    }
    let (head, body) = request.into_parts();
    let message = message(declared, body).await?;
    Ok(Request::from_parts(head, Body::from(framed(&message))))
}

async fn message(declared: Declared, body: Body) -> Result<Bytes, Failure> {
    let read = read_admitted(body, declared.bounds(QUESTION), |_| true).await;
    match declared.of(read.map_err(|error| unread(&error)))? {
        (None, message) => Ok(message),
        (Some(encoding), compressed) => decompress_small(encoding, compressed, QUESTION),
    }
}
