//! Predict's messages on the wire: requests are framed straight from the call,
//! answers stay bytes.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use tonic::{
    Status,
    codec::{self, DecodeBuf, EncodeBuf},
};

use crate::{
    Call,
    wire::{encode_request, encoded_len},
};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Codec;

impl codec::Codec for Codec {
    type Encode = Arc<Call>;
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

impl codec::Encoder for Codec {
    type Item = Arc<Call>;
    type Error = Status;

    fn encode(&mut self, call: Arc<Call>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // In one go, so that the tensors are not moved as the buffer grows.
        out.reserve(encoded_len(&call));
        encode_request(&call, out);
        Ok(())
    }
}

impl codec::Decoder for Codec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = message.remaining();
        Ok(Some(message.copy_to_bytes(length)))
    }
}
