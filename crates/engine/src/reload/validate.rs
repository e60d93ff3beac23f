//! Validates a configuration.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_proto::tensorflow::serving::{ModelConfig, ModelConfigList, ModelType};

use crate::status::Status;

/// The only supported platform.
const PLATFORM: &str = "tensorflow";

/// The error for a change to another kind of configuration.
pub(super) fn transition() -> Status {
    Status::precondition(
        "Cannot transition to requested config. It is only legal to transition from one ModelConfigList to another.",
    )
}

/// Checks that names are unique, paths absolute, and platforms unchanged.
pub(super) fn list(
    list: &ModelConfigList,
    current: Option<&ModelConfigList>,
) -> Result<(), Status> {
    let mut names = BTreeSet::new();
    for model in &list.config {
        if !names.insert(model.name.as_str()) {
            return Err(Status::invalid(format!(
                "Illegal to list model {} multiple times in config list",
                model.name
            )));
        }
    }
    for model in &list.config {
        if !is_absolute(&model.base_path) {
            return Err(Status::invalid(format!(
                "Expected model {} to have an absolute path or URI; got base_path()={}",
                model.name, model.base_path
            )));
        }
    }
    current.map_or(Ok(()), |current| unchanged_platforms(list, current))
}

/// Checks that no model changes its platform. A platform that was refused is remembered, as in
/// TensorFlow Serving: it cannot be corrected under the same name, and one that was missing makes
/// every further list fail.
fn unchanged_platforms(list: &ModelConfigList, current: &ModelConfigList) -> Result<(), Status> {
    let mut platforms = BTreeMap::new();
    for old in &current.config {
        platforms.insert(old.name.as_str(), platform(old)?);
    }
    for model in &list.config {
        let Some(old) = platforms.get(model.name.as_str()) else { continue };
        let new = platform(model)?;
        if new != *old {
            return Err(Status::invalid(format!(
                "Illegal to change a model's platform. For model {} platform was {old} and new platform requested is {new}",
                model.name
            )));
        }
    }
    Ok(())
}

/// The platform of a model, which the deprecated `model_type` may name as well.
fn platform(model: &ModelConfig) -> Result<&str, Status> {
    let refused = |problem: &str| {
        Err(Status::invalid(format!("Illegal setting {problem}, model name is {}", model.name)))
    };
    match (model.model_type(), model.model_platform.as_str()) {
        (ModelType::Unspecified, "") => refused(
            "neither ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform",
        ),
        (ModelType::Unspecified, platform) => Ok(platform),
        (ModelType::Tensorflow, "") => Ok(PLATFORM),
        (ModelType::Other, "") => Err(Status::invalid(format!(
            "ModelServerConfig::model_type choice {} not supported.",
            model.model_type
        ))),
        _ => refused(
            "both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform",
        ),
    }
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || path.split_once("://").is_some_and(|(_, path)| !path.is_empty())
}

/// Checks that every platform is supported.
pub(super) fn platforms(list: &ModelConfigList) -> Result<(), Status> {
    for model in &list.config {
        let platform = platform(model)?;
        if platform != PLATFORM {
            return Err(Status::invalid(format!(
                "Model {} requests unsupported platform {platform}",
                model.name
            )));
        }
    }
    Ok(())
}

/// Checks that no model wants its requests to be logged, for which TensorFlow Serving's binary has
/// no creator of loggers either. It finds that out when the models are in service.
pub(super) fn logging(list: &ModelConfigList) -> Result<(), Status> {
    if list.config.iter().any(|model| model.logging_config.is_some()) {
        return Err(Status::invalid("No request-logger-creator provided."));
    }
    Ok(())
}
