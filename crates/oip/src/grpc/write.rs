//! Requests and responses as messages.

use std::collections::BTreeMap;

use outrigger_proto::inference::{
    ModelInferRequest, ModelInferResponse,
    model_infer_request::{InferInputTensor, InferRequestedOutputTensor},
    model_infer_response::InferOutputTensor,
};

use super::{contents, write_parameters};
use crate::{InferRequest, InferResponse, Tensor};

/// The message of a request, with raw contents.
pub fn write_request(
    request: InferRequest,
    model_name: String,
    model_version: String,
) -> ModelInferRequest {
    let (mut inputs, mut raw) = (Vec::new(), Vec::new());
    for Tensor { name, datatype, shape, data } in request.inputs {
        let (name, datatype) = (name.to_string(), datatype.as_str().to_owned());
        let parameters = BTreeMap::new();
        inputs.push(InferInputTensor { name, datatype, shape, parameters, contents: None });
        raw.push(data);
    }
    let output = |name: &str| InferRequestedOutputTensor {
        name: name.to_owned(),
        parameters: BTreeMap::new(),
    };
    ModelInferRequest {
        model_name,
        model_version,
        id: request.id.unwrap_or_default(),
        parameters: write_parameters(&request.parameters),
        inputs,
        outputs: request.outputs.iter().map(|requested| output(&requested.name)).collect(),
        raw_input_contents: raw,
    }
}

/// The message of a response. Its contents are raw if that is asked for, or if an output has a
/// datatype without other contents.
pub fn write_response(response: InferResponse, raw: bool) -> ModelInferResponse {
    let raw = raw || response.outputs.iter().any(|output| !output.datatype.is_typed());
    let (mut outputs, mut raw_output_contents) = (Vec::new(), Vec::new());
    for tensor in response.outputs {
        let contents = if raw { None } else { contents::of(&tensor) };
        let Tensor { name, datatype, shape, data } = tensor;
        let (name, datatype) = (name.to_string(), datatype.as_str().to_owned());
        let parameters = BTreeMap::new();
        outputs.push(InferOutputTensor { name, datatype, shape, parameters, contents });
        if raw {
            raw_output_contents.push(data);
        }
    }
    ModelInferResponse {
        model_name: response.model_name,
        model_version: response.model_version.unwrap_or_default(),
        id: response.id.unwrap_or_default(),
        parameters: write_parameters(&response.parameters),
        outputs,
        raw_output_contents,
    }
}
