//! Control calls: the signatures and versions that are loaded, and the configuration to load. They
//! are not limited in number, but each has a deadline.

use std::{collections::HashMap, time::Duration};

use outrigger_core::{Interface, ServableId, ServableName, Version};
use outrigger_proto::tensorflow::{
    SignatureDef,
    serving::{
        GetModelMetadataRequest, GetModelStatusRequest, ModelConfig, ModelConfigList,
        ModelServerConfig, ModelSpec, ModelVersionStatus, ReloadConfigRequest,
        ServableVersionPolicy, SignatureDefMap, StatusProto, model_server_config,
        model_service_client::ModelServiceClient,
        model_spec::VersionChoice,
        model_version_status,
        prediction_service_client::PredictionServiceClient,
        servable_version_policy::{PolicyChoice, Specific},
    },
};
use outrigger_rpc::HttpService;
use outrigger_run::RunError;
use prost::Message as _;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Response, Status};

use super::{Config, request, status};
use crate::{
    LoadError, ReloadError, ServedModel, ServingConfig, VersionStatus, interface::interface,
    machine::EngineState, wire::DecodeError,
};

/// The metadata field to request, which is also the key of its answer.
const SIGNATURES: &str = "signature_def";

#[derive(Debug)]
pub(super) struct Control {
    models: ModelServiceClient<HttpService>,
    predictions: PredictionServiceClient<HttpService>,
    status_timeout: Duration,
    reload_timeout: Duration,
}

impl Control {
    pub(super) fn new(service: HttpService, config: &Config) -> Self {
        let origin = service.origin();
        let predictions = PredictionServiceClient::with_origin(service.clone(), origin.clone());
        let models = ModelServiceClient::with_origin(service, origin);
        Self {
            models: models.max_decoding_message_size(config.max_message),
            predictions: predictions.max_decoding_message_size(config.max_message),
            status_timeout: config.status_timeout,
            reload_timeout: config.reload_timeout,
        }
    }

    pub(super) async fn signature(
        &self,
        servable: &ServableId,
        signature: &str,
        deadline: Instant,
    ) -> Result<Interface, RunError> {
        let message = GetModelMetadataRequest {
            model_spec: Some(spec(&servable.name, Some(servable.version))),
            metadata_field: vec![SIGNATURES.to_owned()],
        };
        let mut client = self.predictions.clone();
        let answer = client.get_model_metadata(request(message, deadline)?);
        let answer = by(deadline, answer).await?;
        let mut answer = answer.map_err(|status| status::of_metadata(&status, servable))?;
        let map = answer.metadata.remove(SIGNATURES).ok_or(DecodeError::Malformed)?;
        let map = SignatureDefMap::decode(&*map.value).map_err(|_| DecodeError::Malformed)?;
        select(map.signature_def, signature).map(|signature| interface(&signature))
    }

    pub(super) async fn status(&self, name: &ServableName) -> Result<Vec<VersionStatus>, RunError> {
        let deadline = Instant::now() + self.status_timeout;
        let message = GetModelStatusRequest { model_spec: Some(spec(name, None)) };
        let mut client = self.models.clone();
        let answer = client.get_model_status(request(message, deadline)?);
        match by(deadline, answer).await? {
            Ok(answer) => Ok(answer.model_version_status.into_iter().map(version).collect()),
            Err(status) if status.code() == Code::NotFound => Ok(Vec::new()),
            Err(status) => Err(status::of_call(&status)),
        }
    }

    pub(super) async fn reload(&self, config: ServingConfig) -> Result<(), ReloadError> {
        let deadline = Instant::now() + self.reload_timeout;
        let config = config.models.into_iter().map(model).collect::<Result<_, _>>()?;
        let list = ModelConfigList { config };
        let config = Some(model_server_config::Config::ModelConfigList(list));
        let message = ReloadConfigRequest {
            config: Some(ModelServerConfig { config }),
            ..ReloadConfigRequest::default()
        };
        let mut client = self.models.clone();
        let request = request(message, deadline).map_err(|_| ReloadError::Timeout)?;
        match by(deadline, client.handle_reload_config_request(request)).await {
            Ok(Ok(answer)) => outcome(answer.status.unwrap_or_default()),
            Ok(Err(status)) => Err(status::of_reload(&status)),
            Err(_) => Err(ReloadError::Timeout),
        }
    }
}

/// Waits until `deadline` for the answer, and returns its message.
async fn by<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Result<T, Status>, RunError> {
    let answer = timeout_at(deadline, answer).await.map_err(|_| RunError::DeadlineExceeded)?;
    Ok(answer.map(Response::into_inner))
}

fn spec(name: &ServableName, version: Option<Version>) -> ModelSpec {
    ModelSpec {
        name: name.as_str().to_owned(),
        signature_name: String::new(),
        version_choice: version.map(|version| VersionChoice::Version(version.0)),
    }
}

fn select(mut map: HashMap<String, SignatureDef>, name: &str) -> Result<SignatureDef, RunError> {
    map.remove(name).ok_or_else(|| {
        let mut known: Vec<String> = map.into_keys().collect();
        known.sort_unstable();
        RunError::NoSignature { signature: name.to_owned(), known }
    })
}

fn version(status: ModelVersionStatus) -> VersionStatus {
    use model_version_status::State as Wire;
    let state = match status.state() {
        Wire::Unknown => EngineState::Unknown,
        Wire::Start => EngineState::Start,
        Wire::Loading => EngineState::Loading,
        Wire::Available => EngineState::Available,
        Wire::Unloading => EngineState::Unloading,
        Wire::End => EngineState::End,
    };
    let error = status.status.filter(|status| status.error_code != 0).map(|status| LoadError {
        code: Code::from_i32(status.error_code),
        message: status::cut(&status.error_message),
    });
    VersionStatus { version: Version(status.version), state, error }
}

/// Builds the configuration of one model. Rejects configurations that an engine would refuse or
/// wait for without end.
fn model((name, served): (ServableName, ServedModel)) -> Result<ModelConfig, ReloadError> {
    let refused = |message| ReloadError::Refused { code: Code::InvalidArgument, message };
    let base_path = served.base_path.to_str().filter(|_| served.base_path.is_absolute());
    let Some(base_path) = base_path else {
        return Err(refused(format!("{name}: the base path is not an absolute path in UTF-8")));
    };
    if served.versions.is_empty() {
        return Err(refused(format!("{name}: there is no version to load")));
    }
    let versions = served.versions.iter().map(|version| version.0).collect();
    let policy = PolicyChoice::Specific(Specific { versions });
    Ok(ModelConfig {
        name: name.as_str().to_owned(),
        base_path: base_path.to_owned(),
        model_platform: "tensorflow".to_owned(),
        model_version_policy: Some(ServableVersionPolicy { policy_choice: Some(policy) }),
        ..Default::default()
    })
}

fn outcome(status: StatusProto) -> Result<(), ReloadError> {
    match Code::from_i32(status.error_code) {
        Code::Ok => Ok(()),
        code => Err(ReloadError::Refused { code, message: status::cut(&status.error_message) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_an_engine_s_words_are_cut() {
        let failed = || StatusProto { error_code: 2, error_message: "é".repeat(1 << 20) };
        let status = ModelVersionStatus { status: Some(failed()), ..Default::default() };
        let error = version(status).error.expect("it failed");
        assert!(error.to_string().starts_with("Unknown: é"));
        assert!(error.message.len() < 5000, "{} bytes", error.message.len());
        let Err(ReloadError::Refused { message, .. }) = outcome(failed()) else {
            panic!("refused")
        };
        assert!(message.len() < 5000, "{} bytes", message.len());
    }
}
