//! GetModelMetadata.

use outrigger_proto::tensorflow::serving::{
    GetModelMetadataRequest, GetModelMetadataResponse, ModelSpec, model_spec::VersionChoice,
};

use super::{Surface, spec};
use crate::status::Status;

/// The only metadata there is.
const SIGNATURE_DEF: &str = "signature_def";
const TYPE_URL: &str = "type.googleapis.com/tensorflow.serving.SignatureDefMap";

/// Answers with the signatures of a servable, as its SavedModel has them.
pub(super) fn get(
    surface: &Surface,
    request: &GetModelMetadataRequest,
) -> Result<GetModelMetadataResponse, Status> {
    let _place = surface.calls.enter()?;
    let spec = request.model_spec.as_ref().ok_or_else(spec::missing)?;
    if request.metadata_field.is_empty() {
        return Err(Status::invalid(
            "GetModelMetadataRequest must specify at least one metadata_field",
        ));
    }
    if let Some(field) = request.metadata_field.iter().find(|field| *field != SIGNATURE_DEF) {
        return Err(Status::invalid(format!("Metadata field {field} is not supported")));
    }
    let servable = spec::resolve(surface, Some(spec))?;
    let map =
        prost_types::Any { type_url: TYPE_URL.to_owned(), value: servable.signature_map.to_vec() };
    Ok(GetModelMetadataResponse {
        model_spec: Some(ModelSpec {
            name: spec.name.clone(),
            version_choice: Some(VersionChoice::Version(servable.version())),
            signature_name: String::new(),
        }),
        metadata: [(SIGNATURE_DEF.to_owned(), map)].into(),
    })
}
