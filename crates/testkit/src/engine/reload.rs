//! HandleReloadConfigRequest, with the same steps as in TensorFlow Serving.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use outrigger_proto::tensorflow::serving::{
    ModelConfig, ReloadConfigRequest, ReloadConfigResponse, StatusProto,
    model_server_config::Config, model_version_status::State,
    servable_version_policy::PolicyChoice,
};
use tokio::sync::oneshot;
use tonic::Status;

use super::{
    process::{Configured, Process, View},
    script::{Received, Reloading, Violation},
};

/// Answers a reload. It continues even if the client stops waiting.
pub(super) async fn reload(
    process: Arc<Process>,
    request: ReloadConfigRequest,
) -> Result<ReloadConfigResponse, Status> {
    let (reply, answer) = oneshot::channel();
    let worker = Arc::clone(&process);
    process.spawn(async move {
        let outcome = run(&worker, request).await;
        // The client may no longer wait for the answer.
        drop(reply.send(outcome));
    });
    answer.await.map_err(|_| Status::cancelled("the engine stopped"))?
}

async fn run(
    process: &Process,
    request: ReloadConfigRequest,
) -> Result<ReloadConfigResponse, Status> {
    let Some(Config::ModelConfigList(list)) = request.config.and_then(|config| config.config)
    else {
        return Err(Status::invalid_argument("Config is not a ModelConfigList"));
    };
    let versions = |model: &ModelConfig| configured(model).versions.unwrap_or_default();
    let asked = list.config.iter().map(|model| (model.name.clone(), versions(model)));
    process.script.receive(Received::Reload(asked.collect()));
    if process.reloading.try_lock().is_err() {
        process.script.violate(Violation::ConcurrentReload);
    }
    let _one_at_a_time = process.reloading.lock().await;
    match process.script.reloading() {
        Reloading::Normal => {}
        Reloading::Held(gate) => gate.pass().await,
        Reloading::Refused(code, message) => return Err(Status::new(code, message)),
    }
    let config = validate(&list.config)?;
    let new = process.configure(config.clone());
    let waited_for = |(name, _): &(&String, &Configured)| new.contains(*name);
    config.iter().filter(waited_for).for_each(|(_, model)| check_paths(process, model));
    wait(process, &new).await
}

fn configured(model: &ModelConfig) -> Configured {
    let policy =
        model.model_version_policy.as_ref().and_then(|policy| policy.policy_choice.clone());
    let versions = match policy {
        Some(PolicyChoice::Specific(specific)) => Some(specific.versions.into_iter().collect()),
        _ => None,
    };
    Configured { base_path: model.base_path.clone().into(), versions }
}

fn validate(models: &[ModelConfig]) -> Result<BTreeMap<String, Configured>, Status> {
    let mut config = BTreeMap::new();
    for model in models {
        let name = &model.name;
        if config.insert(name.clone(), configured(model)).is_some() {
            let message = format!("Illegal to list model {name} multiple times in config list");
            return Err(Status::invalid_argument(message));
        }
        if !Path::new(&model.base_path).is_absolute() {
            let message = format!("Expected model {name} to have an absolute path or URI");
            return Err(Status::invalid_argument(message));
        }
        if model.model_platform != "tensorflow" {
            let message = format!("Illegal setting neither of {name}'s model_platform");
            return Err(Status::invalid_argument(message));
        }
    }
    Ok(config)
}

/// Reports missing paths of a new name, for which a reload would wait without end.
fn check_paths(process: &Process, model: &Configured) {
    if !model.base_path.is_dir() {
        process.script.violate(Violation::MissingBasePath(model.base_path.clone()));
    }
    let wanted = model.versions.iter().flatten();
    let missing = wanted.map(|version| model.base_path.join(version.to_string()));
    missing
        .filter(|path| !path.exists())
        .for_each(|path| process.script.violate(Violation::MissingVersion(path)));
}

/// Waits until each new name has a version that is AVAILABLE or has ended.
async fn wait(process: &Process, new: &BTreeSet<String>) -> Result<ReloadConfigResponse, Status> {
    let mut watch = process.watch();
    let all_settled = watch.wait_for(|view| new.iter().all(|name| settled(view, name).is_some()));
    let view = all_settled.await.map_err(|_| Status::cancelled("the engine stopped"))?.clone();
    let failed: Vec<String> = new
        .iter()
        .filter_map(|name| match settled(&view, name) {
            Some((version, State::End)) => Some(failure(process, name, version)),
            _ => None,
        })
        .collect();
    if failed.is_empty() {
        return Ok(ReloadConfigResponse {
            status: Some(StatusProto::default()),
            ..ReloadConfigResponse::default()
        });
    }
    let models = failed.concat();
    Err(Status::unknown(format!(
        "{} model(s) did not become available: {{{models}}}",
        failed.len()
    )))
}

/// The highest version of a name that is AVAILABLE or has ended.
fn settled(view: &View, name: &str) -> Option<(i64, State)> {
    let versions = view.range((name.to_owned(), i64::MIN)..=(name.to_owned(), i64::MAX)).rev();
    versions
        .map(|((_, version), state)| (*version, *state))
        .find(|(_, state)| matches!(state, State::Available | State::End))
}

fn failure(process: &Process, name: &str, version: i64) -> String {
    let errors =
        process.versions(name, |known, entry| entry.error.clone().filter(|_| known == version));
    let error = errors
        .into_iter()
        .flatten()
        .next()
        .map(|(code, message)| format!(" due to error: {code:?}: {message}"));
    format!("{{name: {name} version: {version}}}{}, ", error.unwrap_or_default())
}
