//! The types of elements.

use std::fmt;

use outrigger_core::DType;

use crate::Malformed;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DataType {
    /// A byte, 0 or 1.
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    /// IEEE 754 binary16. It has no JSON form.
    Fp16,
    /// The upper half of a binary32. It has no JSON form.
    Bf16,
    Fp32,
    Fp64,
    /// Texts or other bytes; each element begins with its length, in four bytes.
    Bytes,
}

impl DataType {
    /// All types.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Bf16,
        Self::Fp32,
        Self::Fp64,
        Self::Bytes,
    ];

    /// The protocol's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Bf16 => "BF16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bytes => "BYTES",
        }
    }

    /// The type with this name, in upper case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|datatype| datatype.as_str() == name)
    }

    /// The type with this name, as a field of a message has it.
    ///
    /// # Errors
    /// There is no such type.
    pub fn read(name: &str) -> Result<Self, Malformed> {
        Self::named(name).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            Malformed::at("datatype", format!("{name:?} is none of {known}"))
        })
    }

    /// The size of an element in bytes; `None` for [`Bytes`](Self::Bytes).
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// The least size of an element in bytes: that of the length, for [`Bytes`](Self::Bytes).
    pub const fn least_size(self) -> usize {
        match self.size() {
            Some(size) => size,
            None => 4,
        }
    }

    /// True if elements can be written as JSON, and in the typed contents of gRPC. The others
    /// travel as raw bytes only.
    pub const fn is_typed(self) -> bool {
        !matches!(self, Self::Fp16 | Self::Bf16)
    }

    /// The type as models declare it.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::Bool,
            Self::Uint8 => DType::UInt8,
            Self::Uint16 => DType::UInt16,
            Self::Uint32 => DType::UInt32,
            Self::Uint64 => DType::UInt64,
            Self::Int8 => DType::Int8,
            Self::Int16 => DType::Int16,
            Self::Int32 => DType::Int32,
            Self::Int64 => DType::Int64,
            Self::Fp16 => DType::Float16,
            Self::Bf16 => DType::BFloat16,
            Self::Fp32 => DType::Float32,
            Self::Fp64 => DType::Float64,
            Self::Bytes => DType::String,
        }
    }
}

impl From<DType> for DataType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::Float32 => Self::Fp32,
            DType::Float64 => Self::Fp64,
            DType::Int32 => Self::Int32,
            DType::Int64 => Self::Int64,
            DType::Bool => Self::Bool,
            DType::String => Self::Bytes,
            DType::Int8 => Self::Int8,
            DType::Int16 => Self::Int16,
            DType::UInt8 => Self::Uint8,
            DType::UInt16 => Self::Uint16,
            DType::UInt32 => Self::Uint32,
            DType::UInt64 => Self::Uint64,
            DType::Float16 => Self::Fp16,
            DType::BFloat16 => Self::Bf16,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_protocol() {
        for datatype in DataType::ALL {
            assert_eq!(DataType::named(datatype.as_str()), Some(datatype));
            assert_eq!(DataType::named(&datatype.as_str().to_lowercase()), None);
        }
        assert_eq!(DataType::named("FP8"), None);
        assert_eq!(DataType::named(""), None);
    }

    #[test]
    fn the_types_of_models_are_found_again() {
        for dtype in DType::ALL {
            let datatype = DataType::from(dtype);
            assert_eq!(datatype.dtype(), dtype);
            assert_eq!(datatype.size(), dtype.size());
        }
        assert_eq!(DataType::ALL.len(), DType::ALL.len());
    }
}
