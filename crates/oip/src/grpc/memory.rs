//! The memory that a message takes when it is decoded: many empty entries of one take a hundred
//! times their encoded size.

use bytes::Bytes;
use outrigger_proto::{
    inference::{
        InferParameter, InferTensorContents,
        model_infer_request::{InferInputTensor, InferRequestedOutputTensor},
    },
    raw::read::{Fields, Malformed as Unreadable, Value},
};

use crate::{Malformed, Parameter, RequestedOutput, Tensor};

/// The memory of a parameter beside its texts: its place in the map of the message, whose nodes may
/// be half empty, and in that of the request.
const PARAMETER: usize =
    2 * (size_of::<(String, InferParameter)>() + size_of::<(String, Parameter)>());
/// The memory of a tensor beside its texts, its shape and its contents. Inputs and outputs have the
/// same fields.
const TENSOR: usize =
    2 * (size_of::<InferInputTensor>() + size_of::<InferTensorContents>() + size_of::<Tensor>());
/// The memory of a requested output beside its texts.
const OUTPUT: usize = 2 * (size_of::<InferRequestedOutputTensor>() + size_of::<RequestedOutput>());
/// The memory of an entry of raw contents: a vector that grows has twice the room, and each tensor
/// gets its entry.
const RAW: usize = 3 * size_of::<Bytes>();

/// The memory in bytes that an encoded `ModelInferRequest` takes at most while it is decoded and
/// [read](super::read_request), beside its own bytes, which raw contents share.
///
/// # Errors
/// The bytes are no message.
pub fn memory(message: &[u8]) -> Result<u64, Malformed> {
    readable(of_message(message, |output| Ok(OUTPUT + of_output(output)?)))
}

/// The memory in bytes that an encoded `ModelInferResponse` takes at most while it is decoded and
/// [read](super::read_response), beside its own bytes, which raw contents share.
///
/// # Errors
/// The bytes are no message.
pub fn response_memory(message: &[u8]) -> Result<u64, Malformed> {
    readable(of_message(message, |_| Ok(RAW)))
}

fn readable(bytes: Result<usize, Unreadable>) -> Result<u64, Malformed> {
    bytes
        .map(|bytes| bytes as u64)
        .map_err(|error| Malformed::new(format!("the message cannot be read: {error}")))
}

/// The memory of a request or a response, whose fields differ in the sixth one.
fn of_message(
    message: &[u8],
    sixth: impl Fn(&[u8]) -> Result<usize, Unreadable>,
) -> Result<usize, Unreadable> {
    let mut bytes = 0;
    for field in Fields::of(message) {
        bytes += match field? {
            (4, Value::Bytes(entry)) => PARAMETER + 2 * entry.len(),
            (5, Value::Bytes(tensor)) => TENSOR + of_tensor(tensor)?,
            (6, Value::Bytes(entry)) => sixth(entry)?,
            (7, Value::Bytes(_)) => RAW,
            (_, Value::Bytes(text)) => 2 * text.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

fn of_tensor(message: &[u8]) -> Result<usize, Unreadable> {
    let mut bytes = 0;
    for field in Fields::of(message) {
        bytes += match field? {
            // A size takes at least one byte of a packed list.
            (3, Value::Bytes(shape)) => 2 * size_of::<i64>() * shape.len(),
            (3, _) => 2 * size_of::<i64>(),
            (4, Value::Bytes(entry)) => PARAMETER + 2 * entry.len(),
            (5, Value::Bytes(contents)) => of_contents(contents)?,
            (_, Value::Bytes(text)) => 2 * text.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

fn of_output(message: &[u8]) -> Result<usize, Unreadable> {
    let mut bytes = 0;
    for field in Fields::of(message) {
        bytes += match field? {
            (2, Value::Bytes(entry)) => PARAMETER + 2 * entry.len(),
            (_, Value::Bytes(text)) => 2 * text.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

/// The elements in vectors, which may have twice the room, and then in the data of a tensor.
fn of_contents(message: &[u8]) -> Result<usize, Unreadable> {
    let element = |field: u32| match field {
        1 => size_of::<bool>(),
        2 | 4 => size_of::<i32>(),
        _ => size_of::<i64>(),
    };
    let mut bytes = 0;
    for field in Fields::of(message) {
        bytes += match field? {
            (8, Value::Bytes(text)) => 2 * size_of::<Bytes>() + size_of::<u32>() + text.len(),
            // Numbers of a fixed size stay as large as they are.
            (6 | 7, Value::Bytes(elements)) => 3 * elements.len(),
            (field, Value::Bytes(elements)) => {
                let count = elements.iter().filter(|byte| **byte < 0x80).count();
                3 * count * element(field)
            }
            (field, _) => 3 * element(field),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use outrigger_proto::inference::{
        ModelInferRequest, ModelInferResponse, model_infer_response::InferOutputTensor,
    };
    use prost::Message as _;

    use super::*;

    fn of(request: &ModelInferRequest) -> u64 {
        memory(&request.encode_to_vec()).expect("a message")
    }

    fn typed(contents: InferTensorContents) -> ModelInferRequest {
        let input = InferInputTensor { contents: Some(contents), ..Default::default() };
        ModelInferRequest { inputs: vec![input], ..Default::default() }
    }

    #[test]
    fn raw_contents_take_no_memory_of_their_own() {
        let raw = |size| ModelInferRequest {
            inputs: vec![InferInputTensor::default()],
            raw_input_contents: vec![vec![0; size].into()],
            ..Default::default()
        };
        assert_eq!(of(&raw(1 << 20)), of(&raw(1)));
        assert!(of(&raw(1)) < 4 << 10);
    }

    #[test]
    fn responses_are_like_requests() {
        let of = |response: &ModelInferResponse| {
            response_memory(&response.encode_to_vec()).expect("a message")
        };
        let raw = |size| ModelInferResponse {
            outputs: vec![InferOutputTensor::default()],
            raw_output_contents: vec![vec![0; size].into()],
            ..Default::default()
        };
        assert_eq!(of(&raw(1 << 20)), of(&raw(1)));
        let int64_contents = vec![1; 1000];
        let contents = Some(InferTensorContents { int64_contents, ..Default::default() });
        let output = InferOutputTensor { contents, ..Default::default() };
        let typed = ModelInferResponse { outputs: vec![output], ..Default::default() };
        assert!(of(&typed) >= 16_000, "the vector and the data");
        assert!(response_memory(&[0xff]).is_err());
    }

    #[test]
    fn typed_contents_take_that_of_their_elements() {
        let longs = InferTensorContents { int64_contents: vec![1; 1000], ..Default::default() };
        assert!(of(&typed(longs)) >= 16_000, "the vector and the data");
        let floats = InferTensorContents { fp32_contents: vec![1.0; 1000], ..Default::default() };
        assert!(of(&typed(floats)) >= 8_000);
        let texts =
            InferTensorContents { bytes_contents: vec![Bytes::new(); 1000], ..Default::default() };
        assert!(of(&typed(texts)) >= 1000 * (size_of::<Bytes>() as u64 + 4));
    }

    #[test]
    fn empty_entries_take_that_of_their_places() {
        let inputs = vec![InferInputTensor::default(); 1000];
        let many = ModelInferRequest { inputs, ..Default::default() };
        let encoded = many.encode_to_vec();
        assert!(of(&many) > 100 * encoded.len() as u64, "they are two bytes each");
    }

    #[test]
    fn garbage_is_refused() {
        for garbage in [&b"\xff\xff\xff"[..], b"\x0a\x05ab", b"\x07"] {
            assert!(memory(garbage).is_err());
        }
    }
}
