//! The engine's element types, and the types that hold them here.

use outrigger_core::DType;
use outrigger_proto::tensorflow::DataType;

use super::DecodeError;

/// The encoding of an element type, and its type after decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    kind: DataType,
    /// The type after decoding.
    pub(super) dtype: DType,
    /// The size of an element in `tensor_content`, in bytes; 0 for strings.
    pub(super) width: usize,
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

/// Field and encoding per type follow TensorFlow's `tensor.proto`. A type without a counterpart
/// becomes the nearest type that holds every value: small integers int32, unsigned 32 and 64 bits
/// int64, half and bfloat16 float32.
pub(super) fn element(dtype: i32) -> Result<Element, DecodeError> {
    use Encoding::{Bytes, Fixed32, Fixed64, Varint};
    // A TF1 variable has the type number of its value plus 100.
    let base = if dtype > 100 { dtype - 100 } else { dtype };
    let kind = DataType::try_from(base).map_err(|_| DecodeError::DType(dtype))?;
    let (dtype, width, field, encoding) = match kind {
        DataType::DtFloat => (DType::Float32, 4, 5, Fixed32),
        DataType::DtDouble => (DType::Float64, 8, 6, Fixed64),
        DataType::DtInt32 => (DType::Int32, 4, 7, Varint),
        DataType::DtInt16 | DataType::DtUint16 => (DType::Int32, 2, 7, Varint),
        DataType::DtInt8 | DataType::DtUint8 => (DType::Int32, 1, 7, Varint),
        DataType::DtString => (DType::String, 0, 8, Bytes),
        DataType::DtInt64 => (DType::Int64, 8, 10, Varint),
        DataType::DtBool => (DType::Bool, 1, 11, Varint),
        DataType::DtHalf | DataType::DtBfloat16 => (DType::Float32, 2, 13, Varint),
        DataType::DtUint32 => (DType::Int64, 4, 16, Varint),
        DataType::DtUint64 => (DType::Int64, 8, 17, Varint),
        _ => return Err(DecodeError::DType(dtype)),
    };
    Ok(Element { kind, dtype, width, field, encoding })
}

impl Element {
    /// Whether `tensor_content` already has the layout of the decoded type.
    pub(super) fn content_is_ours(self) -> bool {
        self.dtype.size() == Some(self.width) && self.kind != DataType::DtUint64
    }

    /// Converts the bits of one element (little-endian, zero-extended, or as the value field
    /// carries them) to the decoded type. Excess bits are cut off, as TensorFlow does.
    pub(super) fn convert(self, bits: u64) -> Result<u64, DecodeError> {
        let value = match self.kind {
            DataType::DtInt16 => bits as i16 as u64,
            DataType::DtUint16 => u64::from(bits as u16),
            DataType::DtInt8 => bits as i8 as u64,
            DataType::DtUint8 => u64::from(bits as u8),
            DataType::DtBool => u64::from(bits != 0),
            DataType::DtHalf => u64::from(half_to_float(bits as u16)),
            DataType::DtBfloat16 => u64::from(bits as u16) << 16,
            DataType::DtUint32 => u64::from(bits as u32),
            DataType::DtUint64 => match i64::try_from(bits) {
                Ok(value) => value as u64,
                Err(_) => return Err(DecodeError::ValueRange(bits)),
            },
            _ => bits,
        };
        Ok(value)
    }
}

/// Converts an IEEE 754 binary16 to float32 bits; every conversion is exact.
fn half_to_float(half: u16) -> u32 {
    let sign = u32::from(half & 0x8000) << 16;
    let exponent = u32::from(half >> 10 & 0x1f);
    let fraction = u32::from(half & 0x3ff);
    let magnitude = match exponent {
        // Zero and subnormals: fraction * 2^-24.
        0 => (fraction as f32 * 2f32.powi(-24)).to_bits(),
        0x1f => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    sign | magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_become_the_floats_they_stand_for() {
        let cases: [(u16, f32); 9] = [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x7c00, f32::INFINITY),
            (0x3555, 0.333_251_95),
        ];
        for (half, float) in cases {
            assert_eq!(half_to_float(half), float.to_bits(), "{half:#06x}");
        }
        assert!(f32::from_bits(half_to_float(0x7e00)).is_nan());
    }

    #[test]
    fn our_types_have_the_numbers_of_the_engines() {
        let numbers = [
            (DType::Float32, DataType::DtFloat),
            (DType::Float64, DataType::DtDouble),
            (DType::Int32, DataType::DtInt32),
            (DType::Int64, DataType::DtInt64),
            (DType::Bool, DataType::DtBool),
            (DType::String, DataType::DtString),
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
