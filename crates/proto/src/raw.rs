//! Services whose messages stay undecoded bytes, so that a request can be read
//! in place and an answer framed without an intermediate message.
//!
//! [`read`] and [`mod@write`] are the reader and the writer of such bytes, and [`mod@file`] reads a
//! message that is not in memory.

use bytes::{Buf, BufMut, Bytes};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

pub mod file;
pub mod read;
pub mod unary;
pub mod write;

/// `outrigger.v1.PredictionService` over encoded messages.
pub mod outrigger {
    include!(concat!(env!("OUT_DIR"), "/outrigger.v1.PredictionService.rs"));
}

/// `tensorflow.serving.PredictionService` over encoded messages.
pub mod serving {
    include!(concat!(env!("OUT_DIR"), "/tensorflow.serving.PredictionService.rs"));
}

/// A codec that passes messages on as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        *self
    }

    fn decoder(&mut self) -> Self::Decoder {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.reserve(item.len());
        dst.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = src.remaining();
        Ok(Some(src.copy_to_bytes(length)))
    }
}
