//! The engine's element types, and the types that hold them here.

use outrigger_core::DType;
use outrigger_proto::tensorflow::DataType;

use super::DecodeError;

/// The encoding of an element type, and its type after decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    /// The type after decoding. In `tensor_content` elements have its size and its layout.
    pub(super) dtype: DType,
    /// The field of `TensorProto` that lists the values.
    pub(super) field: u32,
    /// The encoding of that field's values.
    pub(super) encoding: Encoding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Varint,
    Fixed32,
    Fixed64,
    Bytes,
}

/// Field and encoding per type follow TensorFlow's `tensor.proto`.
pub(super) fn element(dtype: i32) -> Result<Element, DecodeError> {
    use Encoding::{Bytes, Fixed32, Fixed64, Varint};
    // A TF1 variable has the type number of its value plus 100.
    let base = if dtype > 100 { dtype - 100 } else { dtype };
    let kind = DataType::try_from(base).map_err(|_| DecodeError::DType(dtype))?;
    let (dtype, field, encoding) = match kind {
        DataType::DtFloat => (DType::Float32, 5, Fixed32),
        DataType::DtDouble => (DType::Float64, 6, Fixed64),
        DataType::DtInt32 => (DType::Int32, 7, Varint),
        DataType::DtInt16 => (DType::Int16, 7, Varint),
        DataType::DtUint16 => (DType::UInt16, 7, Varint),
        DataType::DtInt8 => (DType::Int8, 7, Varint),
        DataType::DtUint8 => (DType::UInt8, 7, Varint),
        DataType::DtString => (DType::String, 8, Bytes),
        DataType::DtInt64 => (DType::Int64, 10, Varint),
        DataType::DtBool => (DType::Bool, 11, Varint),
        DataType::DtHalf => (DType::Float16, 13, Varint),
        DataType::DtBfloat16 => (DType::BFloat16, 13, Varint),
        DataType::DtUint32 => (DType::UInt32, 16, Varint),
        DataType::DtUint64 => (DType::UInt64, 17, Varint),
        _ => return Err(DecodeError::DType(dtype)),
    };
    Ok(Element { dtype, field, encoding })
}

impl Element {
    /// Converts the bits of one element, as the value field carries them, to the decoded type, which
    /// has their lowest bytes. Excess bits are cut off, as TensorFlow does.
    pub(super) fn convert(self, bits: u64) -> u64 {
        match self.dtype {
            DType::Bool => u64::from(bits != 0),
            _ => bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_types_have_the_numbers_of_the_engines() {
        let numbers = [
            (DType::Float32, DataType::DtFloat),
            (DType::Float64, DataType::DtDouble),
            (DType::Int32, DataType::DtInt32),
            (DType::Int64, DataType::DtInt64),
            (DType::Bool, DataType::DtBool),
            (DType::String, DataType::DtString),
            (DType::Int8, DataType::DtInt8),
            (DType::Int16, DataType::DtInt16),
            (DType::UInt8, DataType::DtUint8),
            (DType::UInt16, DataType::DtUint16),
            (DType::UInt32, DataType::DtUint32),
            (DType::UInt64, DataType::DtUint64),
            (DType::Float16, DataType::DtHalf),
            (DType::BFloat16, DataType::DtBfloat16),
        ];
        assert_eq!(numbers.map(|(dtype, _)| dtype), DType::ALL);
        for (dtype, kind) in numbers {
            assert_eq!(dtype.tensorflow(), i32::from(kind), "{dtype}");
            assert_eq!(element(kind.into()).map(|element| element.dtype), Ok(dtype));
        }
    }

    #[test]
    fn types_without_a_counterpart_are_named_in_the_error() {
        for dtype in [0, 8, 11, 18, 20, 21, 33, -1, 108] {
            assert_eq!(element(dtype), Err(DecodeError::DType(dtype)));
        }
        assert_eq!(element(101), element(1));
    }
}
