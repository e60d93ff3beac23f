//! `tensorflow.serving.PredictRequest` with its tensors left encoded.

use std::collections::BTreeMap;

use bytes::Bytes;
use outrigger_proto::{
    raw::read::{Fields, Value},
    tensorflow::serving::ModelSpec,
};
use prost::Message as _;

use crate::malformed::Malformed;

/// A request whose tensors are slices of the message.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) model_spec: Option<ModelSpec>,
    /// Encoded `tensorflow.TensorProto` by alias.
    pub(super) inputs: BTreeMap<String, Bytes>,
    pub(super) output_filter: Vec<String>,
}

impl Request {
    /// Parses an encoded request without its tensors.
    pub(super) fn parse(message: &Bytes) -> Result<Self, Malformed> {
        let mut request = Self::default();
        for field in Fields::of(message) {
            match field? {
                (1, Value::Bytes(spec)) => {
                    let merged = request.model_spec.get_or_insert_default();
                    merged.merge(spec)?;
                }
                (2, Value::Bytes(entry)) => {
                    let (alias, tensor) = input(entry)?;
                    request.inputs.insert(alias, message.slice_ref(tensor));
                }
                (3, Value::Bytes(alias)) => request.output_filter.push(text(alias)?),
                _ => {}
            }
        }
        Ok(request)
    }
}

fn input(entry: &[u8]) -> Result<(String, &[u8]), Malformed> {
    let mut input = (String::new(), &entry[..0]);
    for field in Fields::of(entry) {
        match field? {
            (1, Value::Bytes(alias)) => input.0 = text(alias)?,
            (2, Value::Bytes(tensor)) => input.1 = tensor,
            _ => {}
        }
    }
    Ok(input)
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
}
