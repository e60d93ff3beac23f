//! Tensors passed between the packing plan and an engine.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Element types a model's inputs and outputs may have. Features have one of the first six.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    Float32,
    Float64,
    Int32,
    Int64,
    Bool,
    String,
    Int8,
    Int16,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    BFloat16,
}

/// A dense tensor with the name it has in the model's signature.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The signature's input or output name.
    pub name: Arc<str>,
    /// The element type.
    pub dtype: DType,
    /// Sizes, outermost first; empty for a scalar.
    pub shape: Vec<i64>,
    /// The elements.
    pub content: Content,
}

/// The elements of a tensor, row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Fixed-size elements, little-endian; `product(shape) * dtype.size()` bytes.
    Bytes(Bytes),
    /// Strings; `product(shape)` of them.
    Strings(Vec<Bytes>),
}

impl Tensor {
    /// The size of the elements in bytes.
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Strings(strings) => strings.iter().map(Bytes::len).sum(),
        }
    }
}

impl DType {
    /// All types.
    pub const ALL: [Self; 14] = [
        Self::Float32,
        Self::Float64,
        Self::Int32,
        Self::Int64,
        Self::Bool,
        Self::String,
        Self::Int8,
        Self::Int16,
        Self::UInt8,
        Self::UInt16,
        Self::UInt32,
        Self::UInt64,
        Self::Float16,
        Self::BFloat16,
    ];

    /// The name; that of a feature's type as metadata.json spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
        }
    }

    /// The type's number in TensorFlow: `DataType` of `tensorflow/core/framework/types.proto`.
    pub const fn tensorflow(self) -> i32 {
        match self {
            Self::Float32 => 1,
            Self::Float64 => 2,
            Self::Int32 => 3,
            Self::String => 7,
            Self::Int64 => 9,
            Self::Bool => 10,
            Self::UInt8 => 4,
            Self::Int16 => 5,
            Self::Int8 => 6,
            Self::BFloat16 => 14,
            Self::UInt16 => 17,
            Self::Float16 => 19,
            Self::UInt32 => 22,
            Self::UInt64 => 23,
        }
    }

    /// The size of an element in bytes; `None` for strings.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Int8 | Self::UInt8 => Some(1),
            Self::Int16 | Self::UInt16 | Self::Float16 | Self::BFloat16 => Some(2),
            Self::Float32 | Self::Int32 | Self::UInt32 => Some(4),
            Self::Float64 | Self::Int64 | Self::UInt64 => Some(8),
            Self::String => None,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
