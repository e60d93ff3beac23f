//! The methods that can be called.

use std::time::Duration;

use crate::{client::Protocol, message::Message, server::Server};

/// A method; it determines the type of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// The control plane, one user.
    Predict,
    /// The control plane, several users.
    BatchPredict,
    /// The control plane over HTTP.
    Json,
    /// TensorFlow Serving.
    Engine,
}

impl Method {
    /// The protocol of its messages.
    pub(crate) fn protocol(self) -> Protocol {
        if self == Self::Json { Protocol::Http1 } else { Protocol::Grpc }
    }

    /// Creates a message that is ready to be sent.
    pub(crate) fn message(self, server: &Server, timeout: Duration, body: &[u8]) -> Message {
        let path = match self {
            Self::Predict => "/outrigger.v1.PredictionService/Predict",
            Self::BatchPredict => "/outrigger.v1.PredictionService/BatchPredict",
            Self::Engine => "/tensorflow.serving.PredictionService/Predict",
            Self::Json => return Message::json(server, timeout, body),
        };
        Message::grpc(server, path, timeout, body)
    }
}
