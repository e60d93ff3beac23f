//! A model that returns each input `x` as the output `OUT_x`.

use bytes::Bytes;
use outrigger_proto::inference::{
    ModelInferRequest, ModelInferResponse, model_infer_response::InferOutputTensor,
};
use prost::Message as _;
use serde_json::{Map, Value, json};

use super::{Answer, Seen};

/// The header with the length of the JSON before binary tensors.
const JSON_LENGTH: &str = "inference-header-content-length";

/// The answer to a request with tensors in JSON. Binary tensors are not understood.
pub fn json(seen: &Seen) -> Answer {
    json_with(seen, |_| {})
}

/// As [`json()`], with the document changed by `distort`.
pub fn json_with(seen: &Seen, distort: impl FnOnce(&mut Value)) -> Answer {
    let Some(request) = document(&seen.body) else {
        return Answer::of(500, Some("text/plain"), "Internal Server Error");
    };
    let mut reply = head(&request, seen);
    let output = |input: &Value| {
        json!({
            "name": name(input),
            "datatype": input["datatype"],
            "shape": input["shape"],
            "data": input["data"],
        })
    };
    reply["outputs"] = inputs(&request).iter().map(output).collect();
    distort(&mut reply);
    Answer::json(200, reply.to_string())
}

/// The answer to a request with binary tensors, or with tensors in JSON: as Triton gives it.
pub fn binary(seen: &Seen) -> Answer {
    binary_with(seen, |_| {})
}

/// As [`binary`], with the document before the binary tensors changed by `distort`.
pub fn binary_with(seen: &Seen, distort: impl FnOnce(&mut Value)) -> Answer {
    let length =
        seen.headers.get(JSON_LENGTH).and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
    let Some(length) = length else { return json_with(seen, distort) };
    let (text, data) = (seen.body.slice(..length), seen.body.slice(length..));
    let Some(request) = document(&text) else {
        return Answer::json(400, r#"{"error":"failed to parse the request JSON buffer"}"#);
    };
    let mut reply = head(&request, seen);
    let output = |input: &Value| {
        json!({
            "name": name(input),
            "datatype": input["datatype"],
            "shape": input["shape"],
            "parameters": {"binary_data_size": input["parameters"]["binary_data_size"]},
        })
    };
    reply["outputs"] = inputs(&request).iter().map(output).collect();
    distort(&mut reply);
    let text = reply.to_string();
    let body = [text.as_bytes(), &data].concat();
    Answer::of(200, Some("application/octet-stream"), body)
        .with("inference-header-content-length", &text.len().to_string())
}

/// The answers of a whole server over gRPC: it is live, and its models are ready and not described.
pub fn server(seen: &Seen) -> Answer {
    match seen.call.rsplit('/').next() {
        Some("ModelInfer") => grpc(seen),
        // Field 1 of these answers is true.
        Some("ServerLive" | "ModelReady") => Answer::Message(Bytes::from_static(&[1 << 3, 1])),
        Some("ModelMetadata" | "RepositoryModelLoad" | "RepositoryModelUnload") => {
            Answer::Message(Bytes::new())
        }
        _ => Answer::Status(12, "Method not found!".to_owned()),
    }
}

/// The answer over gRPC, with raw contents.
pub fn grpc(seen: &Seen) -> Answer {
    grpc_with(seen, |_| {})
}

/// As [`grpc`], with the message changed by `distort`.
///
/// # Panics
/// If the request is not one of ModelInfer.
pub fn grpc_with(seen: &Seen, distort: impl FnOnce(&mut ModelInferResponse)) -> Answer {
    let request = ModelInferRequest::decode(seen.body.clone()).expect("a request of ModelInfer");
    let outputs = request.inputs.iter().map(|input| InferOutputTensor {
        name: format!("OUT_{}", input.name),
        datatype: input.datatype.clone(),
        shape: input.shape.clone(),
        ..InferOutputTensor::default()
    });
    let mut reply = ModelInferResponse {
        model_name: request.model_name.clone(),
        model_version: "1".to_owned(),
        id: request.id.clone(),
        outputs: outputs.collect(),
        raw_output_contents: request.raw_input_contents.clone(),
        ..ModelInferResponse::default()
    };
    distort(&mut reply);
    Answer::Message(reply.encode_to_vec().into())
}

fn document(text: &Bytes) -> Option<Value> {
    serde_json::from_slice(text).ok().filter(Value::is_object)
}

fn head(request: &Value, seen: &Seen) -> Value {
    let model = seen.call.split("/models/").nth(1).and_then(|rest| rest.split('/').next());
    let mut head = Map::from_iter([
        ("model_name".to_owned(), json!(model)),
        ("model_version".to_owned(), json!("1")),
    ]);
    if let Some(id) = request.get("id") {
        head.insert("id".to_owned(), id.clone());
    }
    Value::Object(head)
}

fn inputs(request: &Value) -> &[Value] {
    request["inputs"].as_array().map_or(&[], Vec::as_slice)
}

fn name(input: &Value) -> String {
    format!("OUT_{}", input["name"].as_str().unwrap_or_default())
}
