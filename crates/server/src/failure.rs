//! Conversion of failures into answers: gRPC statuses with details, and HTTP responses with JSON.
//! No other place does it.

mod reference;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

use axum::{
    Json,
    http::{
        HeaderValue, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use outrigger_core::{Failure, Reason, Retry};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub use self::reference::reference_markdown;

/// `google.rpc.ErrorInfo.domain` of every failure.
pub const DOMAIN: &str = "outrigger.dev";

/// The limit on the message in a status. HTTP/2 headers carry it twice (as text and inside the
/// details, percent or base64 encoded), and clients limit headers; 8 KiB is common.
const MESSAGE_BYTES: usize = 800;
const VIOLATION_BYTES: usize = 1600;

/// The failure as a gRPC status with ErrorInfo, BadRequest and RetryInfo.
pub(crate) fn to_status(failure: &Failure) -> Status {
    let mut details = ErrorDetails::new();
    let mut metadata = HashMap::new();
    let (shown, omitted) = fitting(failure);
    for violation in &failure.violations[..shown] {
        details.add_bad_request_violation(&violation.field, cut(&violation.description, 400));
    }
    if omitted > 0 {
        metadata.insert("violations_omitted".to_owned(), omitted.to_string());
    }
    details.set_error_info(failure.reason.as_str(), DOMAIN, metadata);
    if let Some(delay) = retry_delay(failure) {
        details.set_retry_info(Some(delay));
    }
    let code = Code::from_i32(failure.reason.code() as i32);
    Status::with_error_details(code, cut(&failure.message, MESSAGE_BYTES), details)
}

/// The numbers of violations that fit into a status and that do not.
fn fitting(failure: &Failure) -> (usize, usize) {
    let mut left = VIOLATION_BYTES;
    let size = |field: &str, description: &str| field.len() + description.len().min(400);
    let fits = failure.violations.iter().take_while(|violation| {
        let size = size(&violation.field, &violation.description);
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    let shown = fits.count();
    (shown, failure.violations.len() - shown)
}

/// Cuts `text` to at most `limit` bytes, at a character boundary.
fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(limit)])
}

/// The delay after which the caller should retry; `None` if it should not.
pub(crate) fn retry_delay(failure: &Failure) -> Option<Duration> {
    let usual = match failure.reason.retry() {
        Retry::Never => return failure.retry_after,
        Retry::Backoff => Duration::from_millis(200),
        Retry::AfterDelay => Duration::from_secs(1),
        Retry::Later => Duration::from_secs(30),
    };
    Some(failure.retry_after.unwrap_or(usual))
}

/// The HTTP status of a failure's reason.
pub(crate) fn http_status(failure: &Failure) -> StatusCode {
    let status = StatusCode::from_u16(failure.reason.code().http_status());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The failure as an HTTP response with the HTTP status of its reason.
pub(crate) fn to_http(failure: &Failure) -> Response {
    to_http_as(http_status(failure), failure)
}

/// The failure as an HTTP response with a status that may differ from its reason's: 404, 405, 415.
pub(crate) fn to_http_as(status: StatusCode, failure: &Failure) -> Response {
    to_document(status, failure, to_json(failure))
}

/// As [`to_http_as`], in the form of TensorFlow Serving's REST interface: `{"error": MESSAGE}`, with
/// the reason beside it.
pub(crate) fn to_rest_as(status: StatusCode, failure: &Failure) -> Response {
    let document = json!({"error": failure.message, "reason": failure.reason.as_str()});
    to_document(status, failure, document)
}

fn to_document(status: StatusCode, failure: &Failure, document: Value) -> Response {
    let mut response = (status, Json(document)).into_response();
    if let Some(delay) = retry_delay(failure) {
        let seconds = delay.as_millis().div_ceil(1000).max(1);
        let value = HeaderValue::from_str(&seconds.to_string()).expect("digits");
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    if failure.reason == Reason::Unauthenticated {
        let value = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

/// The failure as JSON: `{"error": {"reason", "message", "details"}}`.
pub(crate) fn to_json(failure: &Failure) -> Value {
    let mut details = json!({});
    if !failure.violations.is_empty() {
        let violations = failure.violations.iter();
        details["violations"] = violations
            .map(
                |violation| json!({"field": violation.field, "description": violation.description}),
            )
            .collect();
    }
    if let Some(delay) = retry_delay(failure) {
        details["retry_after_ms"] = json!(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
    }
    json!({"error": {
        "reason": failure.reason.as_str(),
        "message": failure.message,
        "details": details,
    }})
}

/// The failure of calls that are refused because the server stops.
pub(crate) fn stopping() -> Failure {
    Failure::new(Reason::ShuttingDown, "the server is stopping")
}

/// A failure for a status that no handler made: tonic's own, about how the request arrived. Such
/// statuses carry no details, and differ from handlers' statuses only by their code.
pub(crate) fn of_transport(code: Code, message: &str) -> Failure {
    let reason = match code {
        // A frame exceeded the limit.
        Code::OutOfRange => Reason::TooLarge,
        Code::Unimplemented => Reason::MethodUnknown,
        Code::DeadlineExceeded => Reason::Deadline,
        Code::Unavailable => Reason::ShuttingDown,
        // A message did not parse, or a stream broke off.
        _ => Reason::RequestMalformed,
    };
    let message = match (reason, message) {
        (Reason::MethodUnknown, "") => "there is no such method",
        (_, message) => message,
    };
    Failure::new(reason, message)
}
