//! The methods that can be called.

use std::time::Duration;

use http::Uri;

use crate::{
    InferenceForm, client::Protocol, message::Message, outgoing::Outgoing, server::Server,
};

/// A method; it determines the type of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Method {
    /// The control plane, one user.
    Predict,
    /// The control plane, several users.
    BatchPredict,
    /// The control plane over HTTP.
    Json,
    /// TensorFlow Serving.
    Engine,
    /// The Open Inference Protocol over gRPC.
    Infer,
    /// The Open Inference Protocol over HTTP: the model's path, and the form of messages.
    InferHttp(Uri, InferenceForm),
}

impl Method {
    /// The protocol of its messages.
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::Json | Self::InferHttp(..) => Protocol::Http1,
            Self::Predict | Self::BatchPredict | Self::Engine | Self::Infer => Protocol::Grpc,
        }
    }

    /// The ending of files with its messages.
    pub(crate) fn ending(&self) -> &'static str {
        match self {
            Self::Json | Self::InferHttp(_, InferenceForm::Json) => "json",
            Self::InferHttp(..) => "bin",
            Self::Predict | Self::BatchPredict | Self::Engine | Self::Infer => "binpb",
        }
    }

    /// Creates a message that is ready to be sent.
    pub(crate) fn message(
        &self,
        server: &Server,
        timeout: Duration,
        request: &Outgoing,
    ) -> Message {
        let path = match self {
            Self::Predict => "/outrigger.v1.PredictionService/Predict",
            Self::BatchPredict => "/outrigger.v1.PredictionService/BatchPredict",
            Self::Engine => "/tensorflow.serving.PredictionService/Predict",
            Self::Infer => "/inference.GRPCInferenceService/ModelInfer",
            Self::Json => {
                let path = Uri::from_static("/v1/predict");
                return Message::post(server, timeout, path, request);
            }
            Self::InferHttp(path, _) => {
                return Message::post(server, timeout, path.clone(), request);
            }
        };
        Message::grpc(server, path, timeout, &request.body)
    }
}
