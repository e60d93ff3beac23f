//! Conversion of tensors on the server's side by prost's types, independent of the client's own
//! codec.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use outrigger_core::{Content, DType, Tensor};
use outrigger_proto::tensorflow::{TensorProto, TensorShapeProto, tensor_shape_proto::Dim};

use super::{Predicting, Prediction};

/// Converts a request's tensor; `None` if a server would report a parsing error.
pub(super) fn from_proto(name: &str, proto: TensorProto) -> Option<Tensor> {
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.tensorflow() == proto.dtype)?;
    let shape: Vec<i64> =
        proto.tensor_shape.unwrap_or_default().dim.iter().map(|dim| dim.size).collect();
    let count = shape
        .iter()
        .try_fold(1_usize, |count, &size| count.checked_mul(usize::try_from(size).ok()?))?;
    let (content, complete) = match dtype.size() {
        Some(size) => {
            let complete = proto.tensor_content.len() == count * size;
            (Content::Bytes(proto.tensor_content), complete)
        }
        None => {
            let complete = proto.string_val.len() == count;
            (Content::Strings(proto.string_val), complete)
        }
    };
    complete.then(|| Tensor { name: name.into(), dtype, shape, content })
}

/// Converts an answer's tensor. Values are in the typed lists, which is TensorFlow Serving's
/// default.
pub fn to_proto(tensor: &Tensor) -> TensorProto {
    let dim = tensor.shape.iter().map(|&size| Dim { size, ..Default::default() }).collect();
    let shape = TensorShapeProto { dim, unknown_rank: false };
    let mut proto = TensorProto { tensor_shape: Some(shape), ..Default::default() };
    let mut bytes = match &tensor.content {
        Content::Bytes(bytes) => bytes.clone(),
        Content::Strings(strings) => {
            proto.string_val.clone_from(strings);
            Bytes::new()
        }
    };
    while let (true, Some(size)) = (!bytes.is_empty(), tensor.dtype.size()) {
        let mut value = bytes.split_to(size.min(bytes.len()));
        match tensor.dtype {
            DType::Float32 => proto.float_val.push(value.get_f32_le()),
            DType::Float64 => proto.double_val.push(value.get_f64_le()),
            DType::Int32 => proto.int_val.push(value.get_i32_le()),
            DType::Int64 => proto.int64_val.push(value.get_i64_le()),
            DType::Bool => proto.bool_val.push(value.get_u8() != 0),
            DType::Int8 => proto.int_val.push(value.get_i8().into()),
            DType::Int16 => proto.int_val.push(value.get_i16_le().into()),
            DType::UInt8 => proto.int_val.push(value.get_u8().into()),
            DType::UInt16 => proto.int_val.push(value.get_u16_le().into()),
            DType::UInt32 => proto.uint32_val.push(value.get_u32_le()),
            DType::UInt64 => proto.uint64_val.push(value.get_u64_le()),
            DType::Float16 | DType::BFloat16 => proto.half_val.push(value.get_u16_le().into()),
            DType::String => {}
        }
    }
    proto.dtype = tensor.dtype.tensorflow();
    proto
}

/// Makes a float32 tensor.
pub fn floats(name: &str, shape: &[i64], values: impl IntoIterator<Item = f32>) -> Tensor {
    let mut bytes = BytesMut::new();
    values.into_iter().for_each(|value| bytes.put_f32_le(value));
    let content = Content::Bytes(bytes.freeze());
    Tensor { name: name.into(), dtype: DType::Float32, shape: shape.to_vec(), content }
}

/// The values of a float32 tensor; empty for any other.
pub fn float_values(tensor: &Tensor) -> Vec<f32> {
    match &tensor.content {
        Content::Bytes(bytes) if tensor.dtype == DType::Float32 => {
            bytes.chunks_exact(4).map(|mut chunk| chunk.get_f32_le()).collect()
        }
        _ => Vec::new(),
    }
}

/// The answer without a script: each requested output (or `scores`) is the sum over the last
/// dimension of the input of the highest rank.
pub fn row_sums(prediction: &Prediction) -> Predicting {
    let float = |tensor: &&Tensor| tensor.dtype == DType::Float32 && !tensor.shape.is_empty();
    let inputs = prediction.inputs.values().filter(float);
    let Some(input) = inputs.max_by_key(|tensor| tensor.shape.len()) else {
        return Predicting::Outputs(Vec::new());
    };
    let (width, shape) = input.shape.split_last().expect("not a scalar");
    let values = float_values(input);
    let sums: Vec<f32> = match usize::try_from(*width).unwrap_or(0) {
        0 => vec![0.0; shape.iter().product::<i64>() as usize],
        width => values.chunks(width).map(|row| row.iter().sum()).collect(),
    };
    let scores = vec!["scores".to_owned()];
    let names = if prediction.outputs.is_empty() { &scores } else { &prediction.outputs };
    Predicting::Outputs(names.iter().map(|name| floats(name, shape, sums.clone())).collect())
}
