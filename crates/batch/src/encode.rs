//! Rows of columns as input tensors.

mod leaves;

use arrow_array::RecordBatch;
use bytes::{BufMut as _, BytesMut};
use outrigger_oip::{DataType, Tensor, presence};

pub(crate) use self::leaves::Leaves;
use crate::{columns::InputTensor, input::Rows};

/// Rows as input tensors. Rows that no tensor can hold are left out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Encoded {
    /// The tensors, with a row for each of `rows`. An input that may be absent, and is in some of
    /// them, has a tensor that names these rows beside its own.
    pub(crate) tensors: Vec<Tensor>,
    /// The positions of the encoded rows.
    pub(crate) rows: Vec<u32>,
    /// The positions of the rows that are left out, each with the reason.
    pub(crate) invalid: Vec<(u32, String)>,
    /// The number of rows that were read. The row after them has another shape than these, and
    /// cannot be in one request with them.
    pub(crate) read: usize,
}

/// Encodes rows of a table that has the columns of all inputs. Malformed rows are not valid.
pub(crate) fn encode(rows: &Rows, inputs: &[InputTensor]) -> Encoded {
    let Rows { table, malformed } = rows;
    let mut malformed = malformed.iter().peekable();
    let mut writers: Vec<_> = inputs.iter().map(|input| Writer::new(table, input)).collect();
    let (mut rows, mut invalid) = (Vec::with_capacity(table.num_rows()), Vec::new());
    let mut read = 0;
    for row in 0..table.num_rows() {
        let position = u32::try_from(row).unwrap_or(u32::MAX);
        let written = match malformed.next_if(|(at, _)| *at == row) {
            Some((_, fault)) => Written::Invalid(fault.clone()),
            None => encode_row(&mut writers, row),
        };
        match written {
            Written::Yes => rows.push(position),
            Written::OtherShape => break,
            Written::Invalid(reason) => invalid.push((position, reason)),
        }
        read = row + 1;
    }
    let tensors = writers.into_iter().flat_map(|writer| writer.tensors(rows.len())).collect();
    Encoded { tensors, rows, invalid, read }
}

/// The end of one row.
enum Written {
    Yes,
    Invalid(String),
    /// The row is valid and has another shape than those before it.
    OtherShape,
}

/// Writes a row to all tensors, or to none.
fn encode_row(writers: &mut [Writer<'_>], row: usize) -> Written {
    for index in 0..writers.len() {
        match writers[index].write(row) {
            Written::Yes => {}
            refused => {
                writers[..=index].iter_mut().for_each(Writer::undo);
                return refused;
            }
        }
    }
    Written::Yes
}

/// Writes one tensor.
struct Writer<'a> {
    input: &'a InputTensor,
    columns: Vec<Leaves<'a>>,
    data: BytesMut,
    /// The length of `data` before the last row.
    before: usize,
    /// The elements of a row; `None` before the first one if its size is open.
    width: Option<usize>,
    /// True if `width` is that of the last row alone, which is the first.
    is_new: bool,
    /// For each row 1 if it has values, and 0 if they are absent; for inputs that may be.
    present: BytesMut,
}

impl<'a> Writer<'a> {
    fn new(table: &'a RecordBatch, input: &'a InputTensor) -> Self {
        let column = |name: &String| table.column_by_name(name).map(Leaves::of);
        let is_open = input.row.iter().any(|size| *size < 0);
        Self {
            input,
            columns: input.columns.iter().filter_map(column).collect(),
            data: BytesMut::new(),
            before: 0,
            width: (!is_open).then(|| product(&input.row)),
            is_new: false,
            present: BytesMut::new(),
        }
    }

    /// Appends a row. [`undo`](Self::undo) removes it, also if it was refused.
    fn write(&mut self, row: usize) -> Written {
        (self.before, self.is_new) = (self.data.len(), false);
        if self.input.is_optional {
            // Integers with absent values are floats with NaN in many files.
            let is_float =
                matches!(self.input.datatype, DataType::Fp16 | DataType::Fp32 | DataType::Fp64);
            let is_absent = |it: &Leaves<'_>| it.is_absent(row) || !is_float && it.is_nan(row);
            let is_absent = self.columns.iter().all(is_absent);
            self.present.put_u8(u8::from(!is_absent));
            if is_absent {
                self.write_nothing();
                return Written::Yes;
            }
        }
        let mut width = 0;
        for column in &self.columns {
            let values = match column.range(row) {
                Ok(values) => values,
                Err(reason) => return self.invalid(&reason),
            };
            width += values.len();
            if let Err(reason) = column.put(values, self.input.datatype, &mut self.data) {
                return self.invalid(&reason);
            }
        }
        match self.width {
            Some(expected) if expected == width => Written::Yes,
            Some(_) if self.is_open() && self.is_valid(width) => Written::OtherShape,
            None if self.is_valid(width) => {
                (self.width, self.is_new) = (Some(width), true);
                Written::Yes
            }
            _ => self.invalid(&format!("{width} values do not fill a row of {:?}", self.input.row)),
        }
    }

    /// Appends values that stand for absent ones: zeros, `false` or empty texts.
    fn write_nothing(&mut self) {
        let width = *self.width.get_or_insert_with(|| {
            self.is_new = true;
            product(&self.input.row)
        });
        // The length of a text is as long as the shortest element of its type.
        self.data.put_bytes(0, width * self.input.datatype.least_size());
    }

    fn invalid(&self, reason: &str) -> Written {
        Written::Invalid(format!("input {}: {reason}", self.input.name))
    }

    /// Removes the last row.
    fn undo(&mut self) {
        self.data.truncate(self.before);
        self.present.truncate(self.present.len().saturating_sub(1));
        if self.is_new {
            (self.width, self.is_new) = (None, false);
        }
    }

    fn is_open(&self) -> bool {
        self.input.row.iter().any(|size| *size < 0)
    }

    /// True if so many values fill rows with an open size.
    fn is_valid(&self, width: usize) -> bool {
        width.is_multiple_of(product(&self.input.row))
    }

    fn tensors(self, rows: usize) -> impl Iterator<Item = Tensor> {
        let Self { input, data, width, present, .. } = self;
        let open = width.unwrap_or(0) / product(&input.row);
        let size = |size: &i64| if *size < 0 { open as i64 } else { *size };
        let shape = std::iter::once(rows as i64).chain(input.row.iter().map(size)).collect();
        let values = Tensor {
            name: input.name.as_str().into(),
            datatype: input.datatype,
            shape,
            data: data.freeze(),
        };
        let presence = present.contains(&0).then(|| Tensor {
            name: presence(&input.name).into(),
            datatype: DataType::Bool,
            shape: vec![rows as i64],
            data: present.freeze(),
        });
        std::iter::once(values).chain(presence)
    }
}

/// The product of the sizes that are known.
fn product(row: &[i64]) -> usize {
    let known = row.iter().filter(|size| **size >= 0);
    known.fold(1, |product, size| product * usize::try_from(*size).unwrap_or(1))
}

#[cfg(test)]
mod tests;
