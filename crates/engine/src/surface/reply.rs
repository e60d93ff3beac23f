//! `tensorflow.serving.PredictResponse`, written from TensorFlow's memory into
//! the outgoing frame.

use bytes::{Buf as _, BufMut, Bytes};
use outrigger_proto::tensorflow::serving::ModelSpec;
use prost::Message as _;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::tensor_out::{Outgoing, delimited, encode_header};

/// An answer with the tensors by alias.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) outputs: Vec<(String, Outgoing)>,
    pub(super) model_spec: ModelSpec,
}

impl Reply {
    fn encode(&self, to: &mut impl BufMut) {
        for (alias, tensor) in &self.outputs {
            encode_header(1, entry_length(alias, tensor), to);
            encode_header(1, alias.len(), to);
            to.put_slice(alias.as_bytes());
            encode_header(2, tensor.length(), to);
            tensor.encode(to);
        }
        encode_header(2, self.model_spec.encoded_len(), to);
        self.model_spec.encode_raw(to);
    }

    fn length(&self) -> usize {
        let outputs = self.outputs.iter();
        outputs.map(|(alias, tensor)| delimited(1, entry_length(alias, tensor))).sum::<usize>()
            + delimited(2, self.model_spec.encoded_len())
    }
}

fn entry_length(alias: &str, tensor: &Outgoing) -> usize {
    delimited(1, alias.len()) + delimited(2, tensor.length())
}

/// Requests stay bytes; answers are [`Reply`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PredictCodec;

impl Codec for PredictCodec {
    type Encode = Reply;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for PredictCodec {
    type Item = Reply;
    type Error = Status;

    fn encode(&mut self, reply: Reply, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(reply.length());
        reply.encode(to);
        Ok(())
    }
}

impl Decoder for PredictCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}
