//! `tensorflow.serving.PredictResponse`, written from TensorFlow's memory directly into
//! the outgoing frame.

use bytes::{BufMut, Bytes, BytesMut};
use outrigger_proto::{
    raw::{
        unary::{PREFIX, prefix},
        write::{bytes_len, put_bytes, put_header},
    },
    tensorflow::serving::ModelSpec,
};
use prost::Message as _;
use tonic::Code;

use super::tensor_out::Outgoing;
use crate::status::Status;

/// An answer with its tensors by alias.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) outputs: Vec<(String, Outgoing)>,
    pub(super) model_spec: ModelSpec,
}

impl Reply {
    /// The encoded message with gRPC's prefix.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the message is too long for gRPC.
    pub(super) fn framed(&self) -> Result<Bytes, Status> {
        let length = self.length();
        if u32::try_from(length).is_err() {
            let message = format!("the response has {length} bytes, which gRPC cannot carry");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        let mut framed = BytesMut::with_capacity(PREFIX + length);
        framed.put_slice(&prefix(length));
        self.encode(&mut framed);
        Ok(framed.freeze())
    }

    fn encode(&self, to: &mut impl BufMut) {
        for (alias, tensor) in &self.outputs {
            put_header(1, entry_length(alias, tensor), to);
            put_bytes(1, alias.as_bytes(), to);
            put_header(2, tensor.length(), to);
            tensor.encode(to);
        }
        put_header(2, self.model_spec.encoded_len(), to);
        self.model_spec.encode_raw(to);
    }

    fn length(&self) -> usize {
        let outputs = self.outputs.iter();
        outputs.map(|(alias, tensor)| bytes_len(1, entry_length(alias, tensor))).sum::<usize>()
            + bytes_len(2, self.model_spec.encoded_len())
    }
}

fn entry_length(alias: &str, tensor: &Outgoing) -> usize {
    bytes_len(1, alias.len()) + bytes_len(2, tensor.length())
}
