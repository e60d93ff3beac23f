//! Reads the answer to a unary call: one message, and the status after it.

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Response, StatusCode};
use outrigger_proto::raw::unary::Message;
use tonic::{Code, Status};

use crate::{CallError, Room};

const STATUS: &str = "grpc-status";

/// Reads the message of an answer into `room`.
pub(crate) async fn read(
    response: Response<RecvStream>,
    room: impl Room,
) -> Result<Bytes, CallError> {
    let (head, mut body) = response.into_parts();
    // A call that failed at once has its status in the headers, and no message.
    let mut has_status = check_status(&head.headers)?;
    let mut message = Message::default();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        room.take(data.len())?;
        message.push(data, room.limit())?;
    }
    if let Some(trailers) = body.trailers().await? {
        has_status |= check_status(&trailers)?;
    }
    match has_status {
        true => Ok(message.finish()?),
        false => Err(CallError::NoStatus(head.status)),
    }
}

/// Returns true if the headers hold the status OK, false if they hold no status, and any other
/// status as the error.
fn check_status(headers: &HeaderMap) -> Result<bool, CallError> {
    match headers.get(STATUS) {
        None => Ok(false),
        // OK is the usual status; the general path would copy the headers.
        Some(code) if code == "0" => Ok(true),
        Some(_) => match Status::from_header_map(headers) {
            Some(status) => Err(CallError::Status(status)),
            None => Ok(false),
        },
    }
}

/// The status of an answer without a gRPC status, by gRPC's mapping of HTTP statuses.
pub fn status_of_http(status: StatusCode) -> Status {
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
    Status::new(code, CallError::NoStatus(status).to_string())
}
