mod binary;
mod requests;
mod responses;
mod round_trips;

use bytes::Bytes;

use super::*;
use crate::{DataType, InferRequest, Tensor};

/// A request with one input.
fn input(fields: &str) -> String {
    format!(r#"{{"inputs":[{{{fields}}}]}}"#)
}

/// Reads a request without binary tensors.
fn read(json: &str) -> Result<InferRequest, String> {
    read_request(&Bytes::copy_from_slice(json.as_bytes()), None)
        .map_err(|malformed| malformed.to_string())
}

/// The only input of a request.
fn tensor(fields: &str) -> Result<Tensor, String> {
    read(&input(fields)).map(|mut request| request.inputs.remove(0))
}

/// The only input of a request, with this datatype, shape and data.
fn data(datatype: &str, shape: &str, data: &str) -> Result<Bytes, String> {
    tensor(&format!(r#""name":"x","datatype":"{datatype}","shape":{shape},"data":{data}"#))
        .map(|tensor| tensor.data)
}

fn bytes<const N: usize>(elements: impl IntoIterator<Item = [u8; N]>) -> Bytes {
    elements.into_iter().flatten().collect()
}

fn floats(elements: &[f32]) -> Bytes {
    bytes(elements.iter().map(|element| element.to_le_bytes()))
}

fn new(datatype: DataType, shape: &[i64], data: Bytes) -> Tensor {
    Tensor::new("x", datatype, shape.to_vec(), data).expect("a tensor")
}
