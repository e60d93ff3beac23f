//! The answer to a prediction: one message, and the status after it.

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Response, StatusCode};
use outrigger_core::ServableId;
use outrigger_proto::raw::unary::Message;
use tonic::{Code, Status};

use super::{status, unavailable};
use crate::Error;

const STATUS: &str = "grpc-status";

/// The message of an answer, of at most `limit` bytes.
pub(super) async fn read(
    response: Response<RecvStream>,
    servable: &ServableId,
    limit: usize,
) -> Result<Bytes, Error> {
    let (head, mut body) = response.into_parts();
    // A call that failed at once has its status there, and no message.
    let mut is_told = is_told(&head.headers, servable)?;
    let mut message = Message::default();
    while let Some(data) = body.data().await {
        let data = data.map_err(unavailable)?;
        body.flow_control().release_capacity(data.len()).map_err(unavailable)?;
        message.push(data, limit)?;
    }
    if let Some(trailers) = body.trailers().await.map_err(unavailable)? {
        is_told |= self::is_told(&trailers, servable)?;
    }
    match is_told {
        true => Ok(message.finish()?),
        false => Err(status::of_predict(&untold(head.status), servable)),
    }
}

/// Whether there is a status, which is an error unless it is success.
fn is_told(headers: &HeaderMap, servable: &ServableId) -> Result<bool, Error> {
    match headers.get(STATUS) {
        None => Ok(false),
        // The usual one; making a status of it would copy the headers.
        Some(code) if code == "0" => Ok(true),
        Some(_) => match Status::from_header_map(headers) {
            Some(status) => Err(status::of_predict(&status, servable)),
            None => Ok(false),
        },
    }
}

/// What it means that a peer does not say how the call ended, by gRPC's mapping
/// of HTTP statuses.
fn untold(status: StatusCode) -> Status {
    let code = match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("the answer has no gRPC status, and HTTP status {status}"))
}
