//! Calls about a server or a model at one host: health, metadata, load and unload.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use outrigger_oip::metadata::{self, ModelMetadata};
use outrigger_proto::inference::{
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse,
    RepositoryModelLoadRequest, RepositoryModelLoadResponse, RepositoryModelUnloadRequest,
    RepositoryModelUnloadResponse, ServerLiveRequest, ServerLiveResponse,
    model_metadata_response::TensorMetadata,
};
use tokio::time::{Instant, timeout_at};
use tonic::Code;

use crate::{
    Client, Failure, Form, Status,
    grpc::Method as Call,
    host::Host,
    hosts::Key,
    rest::{escaped, model_path},
};

/// A model at a host, or one version of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelRef<'a> {
    /// The model's name.
    pub name: &'a str,
    /// The version; `None`: the host chooses it.
    pub version: Option<&'a str>,
}

impl ModelRef<'_> {
    pub(crate) fn key(&self) -> Key {
        (self.name.into(), self.version.map(Into::into))
    }
}

/// A question or an order to one host.
#[derive(Debug, Clone, Copy)]
enum Control<'a> {
    Live,
    Ready(ModelRef<'a>),
    Metadata(ModelRef<'a>),
    Load(&'a str),
    Unload(&'a str),
}

/// The answer.
#[derive(Debug)]
enum Answer {
    /// To a question for health, and true for an order that was carried out.
    Is(bool),
    Metadata(ModelMetadata),
}

impl Client {
    /// True if the host numbered `host` reports to be live. Over HTTP the status alone counts.
    ///
    /// # Errors
    /// The host did not answer, or with a failure that does not say.
    pub async fn is_live(&self, host: usize, deadline: Instant) -> Result<bool, Failure> {
        self.is(host, Control::Live, deadline).await
    }

    /// True if the host numbered `host` reports the model to be ready. Hosts report so while every
    /// run fails: only results prove more. Over HTTP the status alone counts.
    ///
    /// # Errors
    /// The host did not answer, or with a failure that does not say.
    pub async fn is_ready(
        &self,
        host: usize,
        model: ModelRef<'_>,
        deadline: Instant,
    ) -> Result<bool, Failure> {
        self.is(host, Control::Ready(model), deadline).await
    }

    /// Asks the host numbered `host` to load a model from its repository. Without an error the model
    /// is loaded.
    ///
    /// # Errors
    /// The host refused, or did not answer.
    pub async fn load(&self, host: usize, model: &str, deadline: Instant) -> Result<(), Failure> {
        self.control(host, Control::Load(model), deadline).await.map(drop)
    }

    /// Asks the host numbered `host` to unload a model.
    ///
    /// # Errors
    /// The host refused, or did not answer.
    pub async fn unload(&self, host: usize, model: &str, deadline: Instant) -> Result<(), Failure> {
        self.control(host, Control::Unload(model), deadline).await.map(drop)
    }

    /// The tensors of a model, as the host numbered `host` describes them. Known hosts leave out
    /// all, so a missing tensor means nothing.
    ///
    /// # Errors
    /// The host does not have the model, or did not answer.
    pub async fn metadata(
        &self,
        host: usize,
        model: ModelRef<'_>,
        deadline: Instant,
    ) -> Result<ModelMetadata, Failure> {
        match self.control(host, Control::Metadata(model), deadline).await? {
            Answer::Metadata(metadata) => Ok(metadata),
            Answer::Is(_) => Ok(ModelMetadata::default()),
        }
    }

    /// The answer to a question for health. A host says no by the HTTP status 400, 404 or 503. Over
    /// gRPC, MLServer and KServe raise an error for a model that they do not have, which their
    /// libraries send as UNKNOWN.
    async fn is(
        &self,
        host: usize,
        control: Control<'_>,
        deadline: Instant,
    ) -> Result<bool, Failure> {
        let no = |status| match status {
            Status::Http(status) => matches!(status.as_u16(), 400 | 404 | 503),
            Status::Grpc(code) => matches!(code, Code::NotFound | Code::Unknown),
            Status::None | Status::Invalid | Status::Engine => false,
        };
        match self.control(host, control, deadline).await {
            Ok(answer) => Ok(!matches!(answer, Answer::Is(false))),
            Err(failure) if no(failure.status) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Makes a call in the form that the host takes, or over HTTP if it refuses gRPC. The answer does
    /// not say which form the host's inferences have.
    async fn control(
        &self,
        host: usize,
        control: Control<'_>,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let host = self.host(host);
        let calls = async {
            let headers = host.headers(&HeaderMap::new()).await?;
            if host.form() != Form::Grpc {
                return over_http(host, control, headers).await;
            }
            match over_grpc(host, control, &headers, deadline).await {
                Err(failure) if failure.wrong_form && !host.is_proven() => {
                    over_http(host, control, headers).await
                }
                other => other,
            }
        };
        let answer = timeout_at(deadline, calls).await.unwrap_or_else(|_| Err(Failure::timeout()));
        answer.map_err(|failure| failure.at(&host.name))
    }
}

async fn over_grpc(
    host: &Host,
    control: Control<'_>,
    headers: &HeaderMap,
    deadline: Instant,
) -> Result<Answer, Failure> {
    let grpc = host.grpc();
    match control {
        Control::Live => {
            let live = grpc.control(Call::ServerLive, &ServerLiveRequest {}, deadline, headers);
            live.await.map(|ServerLiveResponse { live }| Answer::Is(live))
        }
        Control::Ready(model) => {
            let (name, version) = owned(model);
            let message = ModelReadyRequest { name, version };
            let ready = grpc.control(Call::ModelReady, &message, deadline, headers);
            ready.await.map(|ModelReadyResponse { ready }| Answer::Is(ready))
        }
        Control::Metadata(model) => {
            let (name, version) = owned(model);
            let message = ModelMetadataRequest { name, version };
            let metadata = grpc.control(Call::ModelMetadata, &message, deadline, headers);
            metadata.await.map(|metadata| Answer::Metadata(described(metadata)))
        }
        Control::Load(model) => {
            let model_name = model.to_owned();
            let message = RepositoryModelLoadRequest { model_name, ..Default::default() };
            let load = grpc.control(Call::Load, &message, deadline, headers);
            load.await.map(|RepositoryModelLoadResponse {}| Answer::Is(true))
        }
        Control::Unload(model) => {
            let model_name = model.to_owned();
            let message = RepositoryModelUnloadRequest { model_name, ..Default::default() };
            let unload = grpc.control(Call::Unload, &message, deadline, headers);
            unload.await.map(|RepositoryModelUnloadResponse {}| Answer::Is(true))
        }
    }
}

async fn over_http(
    host: &Host,
    control: Control<'_>,
    mut headers: HeaderMap,
) -> Result<Answer, Failure> {
    let of = |model: ModelRef<'_>| model_path(model.name, model.version);
    let (method, path) = match control {
        Control::Live => (Method::GET, "/v2/health/live".to_owned()),
        Control::Ready(model) => (Method::GET, format!("{}/ready", of(model))),
        Control::Metadata(model) => (Method::GET, of(model)),
        Control::Load(model) => {
            (Method::POST, format!("/v2/repository/models/{}/load", escaped(model)))
        }
        Control::Unload(model) => {
            (Method::POST, format!("/v2/repository/models/{}/unload", escaped(model)))
        }
    };
    let mut body = Bytes::new();
    if method == Method::POST {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        body = Bytes::from_static(b"{}");
    }
    let read = host.rest().call((method, &path), headers, body, None).await?;
    match control {
        Control::Metadata(_) => {
            serde_json::from_slice(&read.body).map(Answer::Metadata).map_err(Failure::invalid)
        }
        _ => Ok(Answer::Is(true)),
    }
}

fn owned(model: ModelRef<'_>) -> (String, String) {
    (model.name.to_owned(), model.version.unwrap_or_default().to_owned())
}

fn described(metadata: ModelMetadataResponse) -> ModelMetadata {
    let ModelMetadataResponse { name, versions, platform, inputs, outputs } = metadata;
    let tensors = |tensors: Vec<TensorMetadata>| {
        let tensors = tensors.into_iter().map(|TensorMetadata { name, datatype, shape }| {
            metadata::TensorMetadata { name, datatype, shape }
        });
        tensors.collect()
    };
    let (inputs, outputs) = (tensors(inputs), tensors(outputs));
    ModelMetadata { name, versions, platform, inputs, outputs }
}
