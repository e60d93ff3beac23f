//! Labels of versions, for example `stable`.

use std::collections::BTreeMap;

use outrigger_proto::tensorflow::serving::ModelConfigList;
use tonic::Code;

use crate::{
    manager::{Monitor, State},
    status::Status,
};

/// Versions by model and label.
pub(super) type Labels = BTreeMap<String, BTreeMap<String, i64>>;

/// Checks the labels of a configuration; they replace all earlier ones. Each must point
/// to an available version. With `allow_unavailable`, a label that is new, or that keeps
/// its version in `current`, may point to any version.
pub(super) fn check(
    list: &ModelConfigList,
    current: Option<&Labels>,
    allow_unavailable: bool,
    monitor: &Monitor,
) -> Result<Labels, Status> {
    let mut labels = Labels::new();
    for model in &list.config {
        for (label, &version) in &model.version_labels {
            let old = current.and_then(|labels| labels.get(&model.name)?.get(label));
            let free = allow_unavailable && old.is_none_or(|&old| old == version);
            if !free && !is_available(monitor, &model.name, version) {
                return Err(Status::precondition(format!(
                    "Request to assign label to version {version} of model {}, which is not currently available for inference",
                    model.name
                )));
            }
            labels.entry(model.name.clone()).or_default().insert(label.clone(), version);
        }
    }
    Ok(labels)
}

fn is_available(monitor: &Monitor, name: &str, version: i64) -> bool {
    monitor.version(name, version).is_some_and(|state| state.state == State::Available)
}

/// The version of a label.
pub(super) fn resolve(labels: Option<&Labels>, name: &str, label: &str) -> Result<i64, Status> {
    let labels = labels.ok_or_else(|| {
        Status::new(Code::Unavailable, format!("Model labels does not init yet.{label}"))
    })?;
    let version = labels.get(name).and_then(|labels| labels.get(label));
    version
        .copied()
        .ok_or_else(|| Status::invalid(format!("Unrecognized servable version label: {label}")))
}
