//! Failures of calls.

use std::{fmt, sync::Arc, time::Duration};

use http::StatusCode;
use outrigger_oip::message::is_of_onnx_input;
use outrigger_proto::raw::unary::Unreadable;
use outrigger_rpc::{CallError, TransportError, status_of_http};
use tonic::Code;

use crate::policy::{Class, Cut, class_of_code, class_of_status};

/// The failure of a call.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The class, which decides about retries.
    pub class: Class,
    /// The host that failed; `None` if no host was asked.
    pub host: Option<Arc<str>>,
    /// The status of the answer.
    pub status: Status,
    /// The host's message, or a description of the fault; shortened.
    pub message: String,
    /// The pause that the host asks for.
    pub retry_after: Option<Duration>,
    /// True if the host has another version of the model than the one that was asked for.
    pub(crate) is_other_version: bool,
    /// True if the host may take the message in another form.
    pub(crate) wrong_form: bool,
    /// True if the host writes bytes into JSON that are not UTF-8: the model needs binary tensors.
    pub(crate) needs_binary: bool,
}

/// The status of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// No answer came.
    None,
    /// An answer came, and is not valid.
    Invalid,
    /// The status of an answer over HTTP.
    Http(StatusCode),
    /// The status of an answer over gRPC.
    Grpc(Code),
    /// The message of an engine that the caller has started itself.
    Engine,
}

/// The longest message that is kept, in characters.
const LONGEST: usize = 1024;

impl Failure {
    /// A failure without an answer.
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self::of(class, Status::None, message.into())
    }

    fn of(class: Class, status: Status, message: String) -> Self {
        let message = message.chars().take(LONGEST).collect();
        Self {
            class,
            host: None,
            status,
            message,
            retry_after: None,
            is_other_version: false,
            wrong_form: false,
            needs_binary: false,
        }
    }

    /// An answer that is not valid: another host may give a better one.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::of(Class::Ambiguous, Status::Invalid, message.to_string())
    }

    /// A message that no host takes.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Class::Refused, message)
    }

    /// A request that is larger than the limit of the client, both in bytes.
    pub(crate) fn too_large(size: usize, limit: usize) -> Self {
        let cut = Cut { rows: None, bytes: Some(limit as u64) };
        let message = format!("a request of {size} bytes is over the limit of {limit}");
        Self::new(Class::TooLarge(cut), message)
    }

    /// The failure of an engine that the caller has started itself.
    pub fn of_engine(class: Class, message: String) -> Self {
        Self::of(class, Status::Engine, message)
    }

    /// A request that was not sent: its host has no client any longer.
    pub fn not_sent() -> Self {
        Self::new(Class::Unavailable, "the request was not sent")
    }

    /// There is no time left.
    pub(crate) fn timeout() -> Self {
        Self::new(Class::Timeout, "no answer in time")
    }

    /// An HTTP status, with the message of its body.
    pub(crate) fn http(status: StatusCode, message: String) -> Self {
        Self::of(class_of_status(status, &message), Status::Http(status), message)
    }

    /// A gRPC status of the host.
    pub(crate) fn grpc(code: Code, message: String) -> Self {
        Self::of(class_of_code(code, &message), Status::Grpc(code), message)
    }

    pub(crate) fn at(mut self, host: &Arc<str>) -> Self {
        self.host = Some(Arc::clone(host));
        self
    }

    /// An answer of another version than the one that was asked for.
    pub(crate) fn other_version(asked: &str, found: &str) -> Self {
        let message = format!("version {found} of the model answers, not {asked}");
        let failure = Self::of(Class::Unavailable, Status::Invalid, message);
        Self { is_other_version: true, ..failure }
    }

    /// True if the host does not have the model, or not this version of it, for the moment or at
    /// all.
    pub fn is_not_served(&self) -> bool {
        let says = |part: &str| self.message.to_ascii_lowercase().contains(part);
        match self.status {
            _ if self.is_other_version => true,
            Status::Http(StatusCode::NOT_FOUND) | Status::Grpc(Code::NotFound) => true,
            // Triton answers so while it unloads a model, and for one that it never had; MLServer
            // takes one that is being loaded for an invalid argument.
            Status::Http(StatusCode::BAD_REQUEST | StatusCode::SERVICE_UNAVAILABLE)
            | Status::Grpc(Code::Unavailable | Code::InvalidArgument | Code::FailedPrecondition) => {
                says("unknown model") || says("not ready")
            }
            _ => false,
        }
    }

    /// True if the values of the message are refused, which are its sender's: it says nothing about
    /// the host.
    pub fn is_of_sender(&self) -> bool {
        let names_input = match self.status {
            // Without a host: no form of messages holds the values.
            Status::None => true,
            Status::Http(status) => matches!(status.as_u16(), 400 | 422),
            Status::Grpc(code) => matches!(code, Code::InvalidArgument | Code::OutOfRange),
            Status::Invalid | Status::Engine => false,
        };
        let is_refused = self.class == Class::Refused && !self.is_not_served();
        is_refused && (names_input || is_of_onnx_input(&self.message))
    }

    /// True if no host has run the message: there was no connection, or not the model.
    pub(crate) fn was_not_run(&self) -> bool {
        let is_unreachable = self.class == Class::Unavailable && self.status == Status::None;
        is_unreachable || self.is_not_served()
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, status, message, .. } = self;
        match host {
            Some(host) => write!(f, "{host}: {status}: {message}"),
            None => write!(f, "{status}: {message}"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no answer"),
            Self::Invalid => f.write_str("an answer that is not valid"),
            Self::Http(status) => write!(f, "HTTP status {}", status.as_u16()),
            Self::Grpc(code) => write!(f, "gRPC status {code:?}"),
            Self::Engine => f.write_str("the engine failed"),
        }
    }
}

/// The failure of a call over gRPC.
impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Deadline => Self::timeout(),
            CallError::Status(status) => {
                let wrong_form = status.code() == Code::Unimplemented;
                let failure = Self::grpc(status.code(), status.message().to_owned());
                Self { wrong_form, ..failure }
            }
            // A proxy or another server answered; it may be the host's HTTP interface.
            CallError::NoStatus(status) => {
                let derived = status_of_http(status);
                let failure = Self::grpc(derived.code(), derived.message().to_owned());
                Self { wrong_form: is_not_grpc(status), ..failure }
            }
            // Only this call ended, and the host had it.
            CallError::Transport(TransportError::Http2(error)) if error.is_reset() => {
                Self::new(Class::Lost, error.to_string())
            }
            CallError::Transport(error) => {
                let wrong_form = !is_unreachable(&error);
                Self { wrong_form, ..Self::new(Class::Unavailable, error.to_string()) }
            }
            CallError::Lost(error) => Self::new(Class::Lost, error.to_string()),
            CallError::Framing(error) => {
                let wrong_form = !matches!(error, Unreadable::TooLarge { .. });
                Self { wrong_form, ..Self::invalid(error) }
            }
        }
    }
}

/// True if the server at the other end does not know the paths of gRPC, or its content type.
fn is_not_grpc(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200..=299 | 400 | 404 | 405 | 415 | 426 | 501 | 505)
}

/// True if nothing was reached that could speak another protocol.
fn is_unreachable(error: &TransportError) -> bool {
    matches!(error, TransportError::Connect(error) if error.kind() != std::io::ErrorKind::InvalidData)
}
