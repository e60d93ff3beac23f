//! GetModelMetadata.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use http::{Request, Response};
use outrigger_proto::tensorflow::serving::{
    GetModelMetadataRequest, GetModelMetadataResponse, ModelSpec, model_spec::VersionChoice,
};
use tonic::{
    body::Body,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;

use super::{MESSAGE_LIMIT, Surface, spec};
use crate::status::Status;

/// The only supported metadata field.
const SIGNATURE_DEF: &str = "signature_def";
const TYPE_URL: &str = "type.googleapis.com/tensorflow.serving.SignatureDefMap";

/// Answers a call.
pub(super) async fn answer(surface: &Arc<Surface>, request: Request<Body>) -> Response<Body> {
    let codec = ProstCodec::default();
    let mut grpc = Grpc::new(codec).max_decoding_message_size(MESSAGE_LIMIT);
    grpc.unary(Method(Arc::clone(surface)), request).await
}

struct Method(Arc<Surface>);

impl UnaryService<GetModelMetadataRequest> for Method {
    type Response = GetModelMetadataResponse;
    type Future = Ready<Result<tonic::Response<Self::Response>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<GetModelMetadataRequest>) -> Self::Future {
        let answer = get(&self.0, request.get_ref());
        ready(answer.map(tonic::Response::new).map_err(tonic::Status::from))
    }
}

/// Returns the signatures of a servable in their original encoding.
fn get(
    surface: &Surface,
    request: &GetModelMetadataRequest,
) -> Result<GetModelMetadataResponse, Status> {
    let _permit = surface.calls.enter()?;
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
