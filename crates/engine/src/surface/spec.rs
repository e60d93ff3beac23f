//! Resolves a request's model spec to a servable.

use outrigger_proto::tensorflow::serving::{ModelSpec, model_spec::VersionChoice};

use super::Surface;
use crate::{manager::Handle, servable::Servable, status::Status};

/// The servable of a model spec: of the given version, of the version of the label, or of
/// the highest available version.
pub(super) fn resolve(
    surface: &Surface,
    spec: Option<&ModelSpec>,
) -> Result<Handle<Servable>, Status> {
    let spec = spec.ok_or_else(missing)?;
    if spec.name.is_empty() {
        return Err(Status::invalid("ModelSpec has no name specified."));
    }
    let version = match &spec.version_choice {
        None => None,
        Some(VersionChoice::Version(version)) => Some(*version),
        Some(VersionChoice::VersionLabel(label)) => {
            Some(surface.reloader.label(&spec.name, label)?)
        }
    };
    surface.manager.handle(&spec.name, version).ok_or_else(|| {
        let wanted = match version {
            None => format!("Latest({})", spec.name),
            Some(version) => format!("Specific({}, {version})", spec.name),
        };
        Status::not_found(format!("Servable not found for request: {wanted}"))
    })
}

/// The error for a request without a model spec.
pub(super) fn missing() -> Status {
    Status::invalid("Missing ModelSpec")
}
