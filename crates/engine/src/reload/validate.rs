//! Validates a configuration.

use std::collections::BTreeMap;

use outrigger_proto::tensorflow::serving::ModelConfigList;

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
    let mut platforms = BTreeMap::new();
    for model in &list.config {
        if platforms.insert(model.name.as_str(), model.model_platform.as_str()).is_some() {
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
    for old in current.map_or(&[][..], |list| &list.config) {
        if platforms.get(old.name.as_str()).is_some_and(|new| *new != old.model_platform) {
            return Err(Status::invalid(format!(
                "Illegal to change a model's platform. For model {}",
                old.name
            )));
        }
    }
    Ok(())
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || path.split_once("://").is_some_and(|(_, path)| !path.is_empty())
}

/// Checks that every platform is supported.
pub(super) fn platforms(list: &ModelConfigList) -> Result<(), Status> {
    for model in &list.config {
        match model.model_platform.as_str() {
            PLATFORM => {}
            "" => {
                return Err(Status::invalid(
                    "Illegal setting neither ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform.",
                ));
            }
            other => {
                return Err(Status::invalid(format!(
                    "Servable {} requests unsupported platform {other}",
                    model.name
                )));
            }
        }
    }
    Ok(())
}
