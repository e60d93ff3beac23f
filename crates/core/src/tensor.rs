//! Tensors passed between the packing plan and an engine.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Element types a model's inputs and outputs may have.
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
    pub const ALL: [Self; 6] =
        [Self::Float32, Self::Float64, Self::Int32, Self::Int64, Self::Bool, Self::String];

    /// The name as metadata.json spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Bool => "bool",
            Self::String => "string",
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
        }
    }

    /// The size of an element in bytes; `None` for strings.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Float32 | Self::Int32 => Some(4),
            Self::Float64 | Self::Int64 => Some(8),
            Self::String => None,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
