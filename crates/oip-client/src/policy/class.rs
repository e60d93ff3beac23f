//! The classes of the statuses of HTTP and gRPC.

use http::StatusCode;
use outrigger_oip::message::is_of_onnx_input;
use outrigger_resilience::{Class, Cut};
use tonic::Code;

/// The class of an HTTP status, with the server's message.
pub fn class_of_status(status: StatusCode, message: &str) -> Class {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Class::Overloaded,
        StatusCode::PAYLOAD_TOO_LARGE => Class::TooLarge(cut(message).unwrap_or_default()),
        StatusCode::SERVICE_UNAVAILABLE if is_queue(message) => Class::Overloaded,
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_EARLY
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE => Class::Unavailable,
        StatusCode::GATEWAY_TIMEOUT => Class::Timeout,
        _ if status.as_u16() >= 520 && status.as_u16() < 600 => class_of_proxy(status.as_u16()),
        StatusCode::NOT_IMPLEMENTED => Class::Refused,
        _ if is_of_onnx_input(message) => Class::Refused,
        _ if status.is_server_error() => Class::Ambiguous,
        _ => cut(message).map_or(Class::Refused, Class::TooLarge),
    }
}

/// The class of a status of 520 and more, which proxies have for what they meet at the host: no
/// connection (521 to 523, 525, 526, 530), no answer in time (524), too much work (529).
fn class_of_proxy(status: u16) -> Class {
    match status {
        521..=523 | 525 | 526 | 530 => Class::Unavailable,
        524 => Class::Timeout,
        529 => Class::Overloaded,
        _ => Class::Ambiguous,
    }
}

/// The class of a gRPC status that a server sent, with its message.
pub fn class_of_code(code: Code, message: &str) -> Class {
    let sized = cut(message).map(Class::TooLarge);
    match code {
        Code::ResourceExhausted => sized.unwrap_or(Class::Overloaded),
        Code::Unavailable if is_queue(message) => Class::Overloaded,
        Code::Unavailable | Code::Aborted | Code::Cancelled => Class::Unavailable,
        Code::DeadlineExceeded => Class::Timeout,
        Code::InvalidArgument | Code::OutOfRange => sized.unwrap_or(Class::Refused),
        Code::Internal | Code::Unknown if is_of_onnx_input(message) => Class::Refused,
        Code::Ok | Code::Internal | Code::Unknown | Code::DataLoss => Class::Ambiguous,
        _ => Class::Refused,
    }
}

/// True for Triton's messages about its queue.
fn is_queue(message: &str) -> bool {
    ["maximum queue size", "Request timeout expired"].iter().any(|text| message.contains(text))
}

/// The size that a refusal names. Triton: `batch-size must be <= 4`. gRPC libraries:
/// `larger than max (9 vs. 4)`; tonic: `limit of: 4194304 bytes`.
fn cut(message: &str) -> Option<Cut> {
    let after = |text: &str| number(message.split_once(text)?.1);
    if let Some(rows) = after("batch-size must be <= ") {
        return Some(Cut { rows: Some(rows), bytes: None });
    }
    if message.contains("larger than max") {
        return Some(Cut { rows: None, bytes: after("vs. ") });
    }
    let bytes = after("limit of: ").filter(|_| message.contains("too large"));
    bytes.map(|bytes| Cut { rows: None, bytes: Some(bytes) })
}

/// The number at the start of a text.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: u64) -> Class {
        Class::TooLarge(Cut { rows: Some(rows), bytes: None })
    }

    fn bytes(bytes: u64) -> Class {
        Class::TooLarge(Cut { rows: None, bytes: Some(bytes) })
    }

    #[test]
    fn check_30_http_statuses_have_classes() {
        let batch = "inference request batch-size must be <= 4 for 'slow'";
        let cases = [
            (503, "", Class::Unavailable),
            (503, "Exceeds maximum queue size", Class::Overloaded),
            (503, "Request timeout expired", Class::Overloaded),
            (429, "", Class::Overloaded),
            (408, "", Class::Unavailable),
            (502, "<html>", Class::Unavailable),
            (504, "", Class::Timeout),
            (413, "", Class::TooLarge(Cut::default())),
            (400, batch, rows(4)),
            (400, "unexpected shape", Class::Refused),
            (404, "", Class::Refused),
            (422, "", Class::Refused),
            (401, "", Class::Refused),
            (501, "", Class::Refused),
            (500, "", Class::Ambiguous),
            (500, "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : idx=9", Class::Refused),
            (500, "[ONNXRuntimeError] : 1 : FAIL : idx=9", Class::Ambiguous),
            (507, "", Class::Ambiguous),
            (425, "", Class::Unavailable),
            (409, "", Class::Refused),
            (520, "", Class::Ambiguous),
            (521, "", Class::Unavailable),
            (524, "", Class::Timeout),
            (526, "", Class::Unavailable),
            (529, "", Class::Overloaded),
        ];
        for (status, message, class) in cases {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(class_of_status(status, message), class, "{status} {message}");
        }
    }

    #[test]
    fn check_30_grpc_codes_have_classes() {
        let grpc = "Received message larger than max (5000000 vs. 4194304)";
        let tonic = "Error, decoded message length too large: found 9 bytes, the limit of: 4 bytes";
        let cases = [
            (Code::Unavailable, "", Class::Unavailable),
            (Code::Unavailable, "Exceeds maximum queue size", Class::Overloaded),
            (Code::ResourceExhausted, "", Class::Overloaded),
            (Code::ResourceExhausted, grpc, bytes(4_194_304)),
            (Code::OutOfRange, tonic, bytes(4)),
            (Code::ResourceExhausted, tonic, bytes(4)),
            (Code::InvalidArgument, "batch-size must be <= 8", rows(8)),
            (Code::InvalidArgument, "", Class::Refused),
            (Code::NotFound, "", Class::Refused),
            (Code::Unimplemented, "", Class::Refused),
            (Code::DeadlineExceeded, "", Class::Timeout),
            (Code::Internal, "", Class::Ambiguous),
            (Code::Internal, "onnx runtime error 2: idx=9", Class::Refused),
            (Code::Internal, "onnx runtime error 1: idx=9", Class::Ambiguous),
            (Code::Unknown, "", Class::Ambiguous),
        ];
        for (code, message, class) in cases {
            assert_eq!(class_of_code(code, message), class, "{code:?} {message}");
        }
    }

    #[test]
    fn a_size_that_is_not_named_is_unknown() {
        let unnamed = class_of_code(Code::ResourceExhausted, "larger than max (9 vs. many)");
        assert_eq!(unnamed, Class::TooLarge(Cut::default()));
        assert_eq!(class_of_code(Code::InvalidArgument, "batch-size must be <= "), Class::Refused);
    }
}
