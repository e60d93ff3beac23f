//! The engine's gRPC services.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use outrigger_core::Tensor;
use outrigger_proto::{
    raw::serving::prediction_service_server::{
        PredictionService as RawPrediction, PredictionServiceServer as RawPredictionServer,
    },
    tensorflow::{
        SignatureDef,
        serving::{
            GetModelMetadataRequest, GetModelMetadataResponse, GetModelStatusRequest,
            GetModelStatusResponse, ModelSpec, ModelVersionStatus, PredictRequest, PredictResponse,
            ReloadConfigRequest, ReloadConfigResponse, SignatureDefMap, StatusProto,
            model_service_server::ModelService,
            model_spec::VersionChoice,
            prediction_service_server::{PredictionService, PredictionServiceServer},
        },
    },
};
use prost::Message as _;
use tonic::{
    Code, Request, Response, Status, body::Body, metadata::MetadataMap, server::NamedService,
};
use tower::Service;

use super::{
    process::{Entry, InFlight, Process},
    reload::reload,
    script::{Prediction, Received},
    tensor::{from_proto, to_proto},
};

#[derive(Clone)]
pub(super) struct Surface(pub(super) Arc<Process>);

/// The prediction service. Predict's messages are raw bytes, so that a script can give any answer;
/// the other methods are typed.
#[derive(Clone)]
pub(super) struct Predictions {
    raw: RawPredictionServer<Surface>,
    typed: PredictionServiceServer<Surface>,
}

impl Predictions {
    pub(super) fn new(surface: Surface) -> Self {
        let raw = RawPredictionServer::new(surface.clone());
        let typed = PredictionServiceServer::new(surface);
        Self { raw: raw.max_decoding_message_size(usize::MAX), typed }
    }
}

impl NamedService for Predictions {
    const NAME: &'static str = "tensorflow.serving.PredictionService";
}

impl Service<http::Request<Body>> for Predictions {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path().ends_with("/Predict") {
            true => self.raw.call(request),
            false => self.typed.call(request),
        }
    }
}

#[tonic::async_trait]
impl RawPrediction for Surface {
    async fn predict(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.0.script.thawed().await;
        let timeout = timeout(request.metadata());
        let trace = ["traceparent", "tracestate"].map(|key| {
            request.metadata().get(key).and_then(|value| value.to_str().ok()).map(str::to_owned)
        });
        let request = PredictRequest::decode(request.into_inner())
            .map_err(|_| Status::internal("Error parsing request"))?;
        let spec =
            request.model_spec.ok_or_else(|| Status::invalid_argument("Missing ModelSpec"))?;
        let in_flight = self.enter(&spec);
        let (name, version) = (spec.name.clone(), version(&spec));
        let found = in_flight.as_ref().map_or_else(Status::code, |_| Code::Ok);
        self.0.script.receive(Received::Predict { name, version, found });
        let in_flight = in_flight?;
        let signature = signature(&in_flight, &spec)?;
        let prediction = Prediction {
            name: spec.name.clone(),
            version: in_flight.version(),
            inputs: inputs(signature, request.inputs)?,
            outputs: outputs(signature, request.output_filter)?,
            signature: spec.signature_name,
            timeout,
            trace,
        };
        let message = match self.0.script.predicting(&prediction).settle().await? {
            Ok(outputs) => answer(prediction, &outputs),
            Err(bytes) => bytes,
        };
        Ok(Response::new(message))
    }
}

/// Parses `grpc-timeout`: a number and its unit.
fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

fn answer(prediction: Prediction, outputs: &[Tensor]) -> Bytes {
    let entry = |tensor: &Tensor| (tensor.name.to_string(), to_proto(tensor));
    let model_spec = ModelSpec {
        name: prediction.name,
        signature_name: prediction.signature,
        version_choice: Some(VersionChoice::Version(prediction.version)),
    };
    let outputs = outputs.iter().map(entry).collect();
    PredictResponse { outputs, model_spec: Some(model_spec) }.encode_to_vec().into()
}

fn signature<'a>(in_flight: &'a InFlight, spec: &ModelSpec) -> Result<&'a SignatureDef, Status> {
    let name = match spec.signature_name.as_str() {
        "" => "serving_default",
        name => name,
    };
    in_flight.signatures.get(name).ok_or_else(|| {
        Status::failed_precondition(format!("Serving signature key \"{name}\" not found."))
    })
}

fn inputs(
    signature: &SignatureDef,
    sent: HashMap<String, outrigger_proto::tensorflow::TensorProto>,
) -> Result<std::collections::BTreeMap<String, Tensor>, Status> {
    if sent.len() != signature.inputs.len() {
        let message = "input size does not match signature";
        return Err(Status::invalid_argument(message));
    }
    let decode = |(name, proto): (String, _)| {
        if !signature.inputs.contains_key(&name) {
            return Err(Status::invalid_argument(format!("input alias not found: {name}")));
        }
        let parsing = || Status::invalid_argument(format!("tensor parsing error: {name}"));
        let tensor = from_proto(&name, proto).ok_or_else(parsing)?;
        Ok((name, tensor))
    };
    sent.into_iter().map(decode).collect()
}

fn outputs(signature: &SignatureDef, filter: Vec<String>) -> Result<Vec<String>, Status> {
    match filter.iter().find(|name| !signature.outputs.contains_key(*name)) {
        Some(name) => {
            let message = format!("output tensor alias not found in signature: {name}");
            Err(Status::invalid_argument(message))
        }
        None => Ok(filter),
    }
}

#[tonic::async_trait]
impl PredictionService for Surface {
    async fn predict(
        &self,
        _: Request<PredictRequest>,
    ) -> Result<Response<PredictResponse>, Status> {
        Err(Status::internal("Predict is answered from bytes"))
    }

    async fn get_model_metadata(
        &self,
        request: Request<GetModelMetadataRequest>,
    ) -> Result<Response<GetModelMetadataResponse>, Status> {
        self.0.script.thawed().await;
        let request = request.into_inner();
        let spec =
            request.model_spec.ok_or_else(|| Status::invalid_argument("Missing ModelSpec"))?;
        self.0.script.receive(Received::Metadata { name: spec.name.clone() });
        if request.metadata_field != ["signature_def"] {
            return Err(Status::invalid_argument("Metadata field is not supported"));
        }
        let in_flight = self.enter(&spec)?;
        let signatures = in_flight.signatures.iter();
        let signature_def = signatures.map(|(name, def)| (name.clone(), def.clone())).collect();
        let any = any_of(&SignatureDefMap { signature_def });
        Ok(Response::new(GetModelMetadataResponse {
            model_spec: Some(ModelSpec {
                version_choice: Some(VersionChoice::Version(in_flight.version())),
                ..spec
            }),
            metadata: HashMap::from([("signature_def".to_owned(), any)]),
        }))
    }
}

fn any_of(map: &SignatureDefMap) -> prost_types::Any {
    let type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap".to_owned();
    prost_types::Any { type_url, value: map.encode_to_vec() }
}

#[tonic::async_trait]
impl ModelService for Surface {
    async fn get_model_status(
        &self,
        request: Request<GetModelStatusRequest>,
    ) -> Result<Response<GetModelStatusResponse>, Status> {
        self.0.script.thawed().await;
        let spec = request.into_inner().model_spec;
        let spec = spec.ok_or_else(|| Status::invalid_argument("Missing ModelSpec"))?;
        self.0.script.receive(Received::Status { name: spec.name.clone() });
        let wanted = version(&spec);
        let mut statuses = self.0.versions(&spec.name, status);
        statuses.retain(|status| wanted.is_none_or(|wanted| wanted == status.version));
        if statuses.is_empty() {
            let message = format!("Could not find any versions of model {}", spec.name);
            return Err(Status::not_found(message));
        }
        Ok(Response::new(GetModelStatusResponse { model_version_status: statuses }))
    }

    async fn handle_reload_config_request(
        &self,
        request: Request<ReloadConfigRequest>,
    ) -> Result<Response<ReloadConfigResponse>, Status> {
        self.0.script.thawed().await;
        reload(Arc::clone(&self.0), request.into_inner()).await.map(Response::new)
    }
}

impl Surface {
    fn enter(&self, spec: &ModelSpec) -> Result<InFlight, Status> {
        let version = version(spec);
        self.0.enter(&spec.name, version).ok_or_else(|| {
            let what = match version {
                Some(version) => format!("Specific({}, {version})", spec.name),
                None => format!("Latest({})", spec.name),
            };
            Status::not_found(format!("Servable not found for request: {what}"))
        })
    }
}

fn version(spec: &ModelSpec) -> Option<i64> {
    match spec.version_choice {
        Some(VersionChoice::Version(version)) => Some(version),
        _ => None,
    }
}

fn status(version: i64, entry: &Entry) -> ModelVersionStatus {
    let (code, error_message) = entry.error.clone().unwrap_or((Code::Ok, String::new()));
    let status = StatusProto { error_code: code as i32, error_message };
    ModelVersionStatus { version, state: entry.state.into(), status: Some(status) }
}
