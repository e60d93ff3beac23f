//! Calls TensorFlow Serving without a control plane.

use std::time::Duration;

use bytes::Bytes;
use outrigger_core::{Content, Tensor};
use outrigger_features::Plan;
use outrigger_proto::tensorflow::{
    SignatureDef, TensorProto, TensorShapeProto,
    serving::{
        GetModelMetadataRequest, GetModelMetadataResponse, ModelSpec, PredictRequest,
        SignatureDefMap, model_spec::VersionChoice,
    },
    tensor_shape_proto::Dim,
};
use prost::Message as _;

use crate::{Error, client::Client, message::Message, requests::Tensors, server::Server};

const METADATA: &str = "/tensorflow.serving.PredictionService/GetModelMetadata";
/// The requested metadata field, which is also its key in the answer.
const SIGNATURES: &str = "signature_def";

/// A servable of TensorFlow Serving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servable {
    /// Its name.
    pub name: String,
    /// Its version; `None` means the latest at the start of the run.
    pub version: Option<i64>,
    /// The signature to call; `None` means the one in metadata.json.
    pub signature: Option<String>,
}

/// The servable that the engine has.
#[derive(Debug)]
pub(crate) struct Found {
    spec: ModelSpec,
}

impl Servable {
    /// Requests the servable's signatures from the engine and checks them against
    /// metadata.json.
    ///
    /// The engine does not serve it, has no such signature, or metadata.json contradicts
    /// the signature.
    pub(crate) async fn find(
        &self,
        plan: &Plan,
        client: &Client,
        server: &Server,
        timeout: Duration,
    ) -> Result<Found, Error> {
        let question = GetModelMetadataRequest {
            model_spec: Some(self.spec()),
            metadata_field: vec![SIGNATURES.to_owned()],
        };
        let message = Message::grpc(server, METADATA, timeout, &question.encode_to_vec());
        let answer = client.call(0, &message, timeout).await.map_err(Error::Refused)?;
        let invalid =
            |error: prost::DecodeError| Error::Request(format!("GetModelMetadata: {error}"));
        let mut answer = GetModelMetadataResponse::decode(answer.body).map_err(invalid)?;
        let signatures = answer.metadata.remove(SIGNATURES).unwrap_or_default();
        let signatures = SignatureDefMap::decode(&*signatures.value).map_err(invalid)?;
        let name = self.signature.clone().unwrap_or_else(|| plan.signature().to_string());
        let signature = signatures.signature_def.get(&name);
        self.check(plan, &name, signature)?;
        let mut spec = answer.model_spec.unwrap_or_else(|| self.spec());
        spec.signature_name = name;
        Ok(Found { spec })
    }

    fn spec(&self) -> ModelSpec {
        ModelSpec {
            name: self.name.clone(),
            version_choice: self.version.map(VersionChoice::Version),
            signature_name: String::new(),
        }
    }

    fn check(&self, plan: &Plan, name: &str, found: Option<&SignatureDef>) -> Result<(), Error> {
        let missing = || Error::Request(format!("{} has no signature {name:?}", self.name));
        let found = found.ok_or_else(missing)?;
        let checked = plan.metadata().check_interface(&outrigger_tfserving::interface(found));
        checked.map_err(|error| Error::Request(error.to_string()))
    }
}

impl Found {
    /// The engine's message for the tensors of a request.
    pub(crate) fn message(&self, tensors: Tensors) -> Vec<u8> {
        let Tensors { inputs, outputs } = tensors;
        let inputs = inputs.into_iter().map(|input| (input.name.to_string(), proto(input)));
        let request = PredictRequest {
            model_spec: Some(self.spec.clone()),
            inputs: inputs.collect(),
            output_filter: outputs,
        };
        request.encode_to_vec()
    }
}

fn proto(tensor: Tensor) -> TensorProto {
    let dim = tensor.shape.iter().map(|&size| Dim { size, ..Dim::default() }).collect();
    let (tensor_content, string_val) = match tensor.content {
        Content::Bytes(bytes) => (bytes, Vec::new()),
        Content::Strings(strings) => (Bytes::new(), strings),
    };
    TensorProto {
        dtype: tensor.dtype.tensorflow(),
        tensor_shape: Some(TensorShapeProto { dim, unknown_rank: false }),
        tensor_content,
        string_val,
        ..TensorProto::default()
    }
}
