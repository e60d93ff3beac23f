//! Encodes a [`Call`] as a `tensorflow.serving.PredictRequest`.

use bytes::{BufMut, Bytes};
use outrigger_core::{Content, Tensor};
use outrigger_proto::raw::{
    unary::{PREFIX, prefix},
    write::{bytes_len, int_len, put_header, put_int, put_varint},
};

use super::{
    parts::{put_filter, put_key, tensor_start},
    segments::{Segments, Writer},
};
use crate::Call;

/// The number of bytes that [`encode_request`] will write.
pub fn encoded_len(call: &Call) -> usize {
    let entry = |tensor| bytes_len(2, entry_len(tensor, tensor_len(tensor)));
    call.target.parts().spec().len()
        + call.inputs.iter().map(entry).sum::<usize>()
        + call.outputs.iter().map(|name| bytes_len(3, name.len())).sum::<usize>()
}

/// Writes `call` as an encoded `PredictRequest`.
pub fn encode_request(call: &Call, out: &mut impl BufMut) {
    out.put(encode(call, writer(call, encoded_len(call))));
}

/// Encodes `call`, whose request has `size` bytes, as a gRPC message. Large tensors become part of
/// the message without a copy.
pub(crate) fn frame(call: &Call, size: usize) -> Segments {
    let mut writer = writer(call, PREFIX + size);
    writer.head.put_slice(&prefix(size));
    encode(call, writer)
}

/// Creates a writer for a message of `size` bytes, including the request.
fn writer(call: &Call, size: usize) -> Writer {
    let (bytes, payloads) = shared(call);
    Writer::with_room(size - bytes, payloads)
}

/// Appends the request to `out` and returns the message.
fn encode(call: &Call, mut out: Writer) -> Segments {
    let parts = call.target.parts();
    out.head.put_slice(parts.spec());
    for (at, tensor) in call.inputs.iter().enumerate() {
        let length = tensor_len(tensor);
        put_header(2, entry_len(tensor, length), &mut out.head);
        match parts.key(at, &tensor.name) {
            Some(key) => out.head.put_slice(key),
            None => put_key(&tensor.name, &mut out.head),
        }
        put_varint(length as u64, &mut out.head);
        put_tensor(tensor, &mut out);
    }
    match parts.filter(&call.outputs) {
        Some(filter) => out.head.put_slice(filter),
        None => put_filter(&call.outputs, &mut out.head),
    }
    out.finish()
}

/// The total size and the number of the payloads that are not copied into the request.
fn shared(call: &Call) -> (usize, usize) {
    let sum = |(bytes, payloads): (usize, usize), payload: &Bytes| match payload.len() {
        length if Writer::shares(length) => (bytes + length, payloads + 1),
        _ => (bytes, payloads),
    };
    call.inputs.iter().fold((0, 0), |so_far, tensor| match &tensor.content {
        Content::Bytes(bytes) => sum(so_far, bytes),
        Content::Strings(strings) => strings.iter().fold(so_far, sum),
    })
}

/// The length of an entry of the map `inputs`: the key, and a value of `length` bytes.
fn entry_len(tensor: &Tensor, length: usize) -> usize {
    bytes_len(1, tensor.name.len()) + bytes_len(2, length)
}

/// Writes a `TensorProto`: dtype, shape, and the elements as content or as strings.
fn put_tensor(tensor: &Tensor, out: &mut Writer) {
    out.head.put_slice(&tensor_start(tensor.dtype));
    put_varint(shape_len(&tensor.shape) as u64, &mut out.head);
    for &size in &tensor.shape {
        put_header(2, int_len(1, size as u64), &mut out.head);
        put_int(1, size as u64, &mut out.head);
    }
    match &tensor.content {
        Content::Bytes(bytes) => put_payload(4, bytes, out),
        Content::Strings(strings) => strings.iter().for_each(|text| put_payload(8, text, out)),
    }
}

fn tensor_len(tensor: &Tensor) -> usize {
    let elements = match &tensor.content {
        Content::Bytes(bytes) => bytes_len(4, bytes.len()),
        Content::Strings(strings) => {
            strings.iter().map(|text| bytes_len(8, Bytes::len(text))).sum()
        }
    };
    int_len(1, tensor.dtype.tensorflow() as u64) + bytes_len(2, shape_len(&tensor.shape)) + elements
}

fn shape_len(shape: &[i64]) -> usize {
    shape.iter().map(|&size| bytes_len(2, int_len(1, size as u64))).sum()
}

fn put_payload(tag: u32, bytes: &Bytes, out: &mut Writer) {
    put_header(tag, bytes.len(), &mut out.head);
    out.put(bytes);
}
