//! The Open Inference Protocol over gRPC.

mod canaries;
mod states;
mod tables;
mod tensors;

use bytes::Bytes;
use outrigger_proto::inference::{
    ModelInferRequest, ModelInferResponse, model_infer_request::InferInputTensor,
};
use tonic::{Code, Status};

use crate::stack::{MODEL, Stack, reason};

const ON: (&str, &str) = ("server.oip", "127.0.0.1:0");

async fn tensors() -> Stack {
    Stack::with(&[ON]).await
}

/// A server whose model has the view `features`.
async fn features() -> Stack {
    let models = format!("[{{name: {MODEL}, view: features}}]");
    Stack::with(&[ON, ("models", &models)]).await
}

fn bytes(values: &[f32]) -> Bytes {
    values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into()
}

fn values(bytes: &[u8]) -> Vec<f32> {
    let (values, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    values.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    let (name, datatype, shape) = (name.to_owned(), datatype.to_owned(), shape.to_vec());
    InferInputTensor { name, datatype, shape, ..Default::default() }
}

fn request(inputs: Vec<(InferInputTensor, Bytes)>) -> ModelInferRequest {
    let (inputs, raw_input_contents) = inputs.into_iter().unzip();
    ModelInferRequest {
        model_name: MODEL.to_owned(),
        id: "r1".to_owned(),
        inputs,
        raw_input_contents,
        ..Default::default()
    }
}

/// The tensors of one user with two treatments.
fn signature() -> ModelInferRequest {
    let counts = Bytes::from_static(&[2, 0, 0, 0]);
    request(vec![
        (input("treatment", "FP32", &[1, 2, 2]), bytes(&[1.0, 2.0, 5.0, 0.5])),
        (input("user", "FP32", &[1, 1]), bytes(&[0.5])),
        (input("treatment_counts", "INT32", &[1]), counts),
    ])
}

/// A table of rows with a user feature and two of the treatment.
fn table(rows: &[[f32; 3]]) -> ModelInferRequest {
    let column = |index: usize| bytes(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
    let shape = [i64::try_from(rows.len()).expect("few rows"), 1];
    request(vec![
        (input("u0", "FP32", &shape), column(0)),
        (input("t0", "FP32", &shape), column(1)),
        (input("t1", "FP32", &shape), column(2)),
    ])
}

async fn infer(stack: &Stack, request: ModelInferRequest) -> Result<ModelInferResponse, Status> {
    stack.oip().model_infer(request).await.map(tonic::Response::into_inner)
}

async fn refused(stack: &Stack, request: ModelInferRequest) -> (Code, String) {
    let status = infer(stack, request).await.expect_err("refused");
    (status.code(), reason(&status))
}
