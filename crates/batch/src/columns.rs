//! The columns of the input and the output, and the tensors of the model.

mod expected;
mod resolve;

use arrow_schema::{DataType as ArrowType, Field, FieldRef, Schema, SchemaRef};
use outrigger_oip::DataType;
use outrigger_tables::{Leaf, TextColumn};
use serde::{Deserialize, Serialize};

use crate::{
    Output,
    job::{ColumnType, datatype},
};

pub(crate) use self::{
    expected::{Expected, expected_outputs, stated},
    resolve::{check_columns_apart, leaf, present_inputs, remarks, resolve_inputs, resolve_keys},
};

/// An input tensor, and the columns that its rows come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InputTensor {
    /// The model's name for it.
    pub(crate) name: String,
    #[serde(with = "datatype")]
    pub(crate) datatype: DataType,
    /// The sizes of a row, without the first dimension; at most one is -1, for any size.
    pub(crate) row: Vec<i64>,
    /// The columns, whose values follow each other in a row.
    pub(crate) columns: Vec<String>,
    /// True if a row may have no value: the model knows what to take then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_optional: bool,
}

/// A column of the output with the values of an output tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutputColumn {
    /// The column's name.
    pub(crate) column: String,
    /// The model's name for the tensor.
    pub(crate) tensor: String,
    #[serde(with = "datatype")]
    pub(crate) datatype: DataType,
    /// The number of lists around a value: 0 for a tensor of the shape [rows] or [rows, 1].
    pub(crate) depth: usize,
    /// The sizes of a row that the job or the hosts fix, one for each list, outermost first; -1 is any
    /// size. None if neither does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sizes: Vec<i64>,
    /// True if its texts are JSON, and `null` is an absent one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_json: bool,
}

impl OutputColumn {
    /// True if the column has what a job states about it.
    pub(crate) fn is_as(&self, stated: &Output) -> bool {
        let Output { tensor, datatype, shape } = stated;
        self.tensor == *tensor
            && datatype.is_none_or(|datatype| datatype == self.datatype)
            && shape.as_ref().is_none_or(|row| self.rows() == RowForm::of(row))
    }

    /// The form of its rows.
    fn rows(&self) -> RowForm {
        RowForm { depth: self.depth, sizes: self.sizes.clone() }
    }

    /// The column of the output file, as it is read from JSON Lines.
    pub(crate) fn text(&self) -> TextColumn {
        if self.is_json {
            return TextColumn::of(&self.column, Leaf::Json);
        }
        ColumnType { datatype: self.datatype, depth: self.depth }.column(&self.column)
    }

    /// The column of the output file.
    fn field(&self) -> Field {
        if self.is_json {
            return self.text().field();
        }
        let leaf = arrow_type(self.datatype);
        let of = (0..self.depth).fold(leaf, |of, _| ArrowType::new_list(of, true));
        Field::new(&self.column, of, true)
    }
}

/// The form of the rows of an output column.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RowForm {
    depth: usize,
    /// As those of an [`OutputColumn`].
    sizes: Vec<i64>,
}

impl RowForm {
    /// The form of rows with these sizes, where -1 is any size. A single value is no list.
    fn of(row: &[i64]) -> Self {
        let depth = if let [] | [1] = row { 0 } else { row.len() };
        let is_fixed = depth > 0 && row.iter().any(|size| *size >= 0);
        Self { depth, sizes: if is_fixed { row.to_vec() } else { Vec::new() } }
    }
}

/// The columns of the output: the keys, as the input has them, and those of the tensors.
pub(crate) fn output_schema(
    keys: impl Iterator<Item = FieldRef>,
    outputs: &[OutputColumn],
) -> SchemaRef {
    let outputs = outputs.iter().map(|output| FieldRef::new(output.field()));
    Schema::new(keys.chain(outputs).collect::<Vec<_>>()).into()
}

/// The type of a column with the elements of a tensor. BF16, which files do not have, is widened.
pub(crate) fn arrow_type(datatype: DataType) -> ArrowType {
    match datatype {
        DataType::Bool => ArrowType::Boolean,
        DataType::Uint8 => ArrowType::UInt8,
        DataType::Uint16 => ArrowType::UInt16,
        DataType::Uint32 => ArrowType::UInt32,
        DataType::Uint64 => ArrowType::UInt64,
        DataType::Int8 => ArrowType::Int8,
        DataType::Int16 => ArrowType::Int16,
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::Fp16 => ArrowType::Float16,
        DataType::Bf16 | DataType::Fp32 => ArrowType::Float32,
        DataType::Fp64 => ArrowType::Float64,
        DataType::Bytes => ArrowType::Utf8,
    }
}
