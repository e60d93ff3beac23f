//! One output tensor, checked and read as float32.

use bytes::Bytes;
use outrigger_core::{Content, DType, Failure, Reason, Tensor};

use crate::{
    metadata::{Output, OutputKind},
    packed::{Packed, UserRows},
};

/// An output of the right shape, type and size.
pub(super) struct Checked<'t> {
    name: String,
    /// Values per row.
    width: usize,
    dtype: DType,
    bytes: &'t Bytes,
    /// For each user, its first row.
    starts: Vec<usize>,
    /// Whether the expected shape has a single dimension: `[B]` or `[R]`.
    flat: bool,
    single: bool,
}

impl<'t> Checked<'t> {
    /// Finds an output among the engine's and checks everything but its values.
    pub(super) fn find(
        output: &Output,
        joined: bool,
        tensors: &'t [Tensor],
        packed: &Packed,
    ) -> Result<Self, Failure> {
        let name = output.name.as_ref().to_owned();
        let Some(tensor) = tensors.iter().find(|tensor| tensor.name == output.tensor) else {
            return Err(invalid(&name, "the engine did not return it"));
        };
        let (users, treatments) = (packed.users.len(), packed.treatments);
        let kept = |users: &[UserRows]| users.iter().map(UserRows::kept).sum();
        let single = output.kind == OutputKind::Single;
        let shape = match (single, joined) {
            (true, _) => vec![users],
            (false, true) => vec![kept(&packed.users)],
            (false, false) => vec![users, treatments],
        };
        let start = |user: usize| match (single, joined) {
            (true, _) => user,
            (false, true) => kept(&packed.users[..user]),
            (false, false) => user * treatments,
        };
        let width = output.width;
        check_shape(&name, &tensor.shape, &shape, width)?;
        let count: usize = shape.iter().product();
        let bytes = check_content(&name, tensor, count * width)?;
        let (starts, flat) = ((0..users).map(start).collect(), shape.len() == 1);
        Ok(Self { name, width, dtype: tensor.dtype, bytes, starts, flat, single })
    }

    /// The values of one user, row-major: a row per packed treatment, or one for a `single`
    /// output.
    pub(super) fn values(&self, user: usize, treatments: usize) -> Result<Vec<f32>, Failure> {
        let places = self.places(treatments);
        places.map(|(row, column)| self.finite(user, row, column)).collect()
    }

    /// The values of one user's treatments, and those rows that are left out, with their messages.
    pub(super) fn kept(&self, user: usize, treatments: usize) -> (Vec<f32>, Vec<(usize, String)>) {
        let at = |row, column| read(self.bytes, self.dtype, self.element(user, row, column));
        let values: Vec<_> = self.places(treatments).map(|(row, column)| at(row, column)).collect();
        let wrong = |(row, values): (usize, &[f32])| {
            let value = values.iter().find(|value| !value.is_finite())?;
            Some((row, format!("output {:?}: the value is {value}", self.name)))
        };
        let left_out = values.chunks(self.width).enumerate().filter_map(wrong).collect();
        (values, left_out)
    }

    /// As [`Self::values`], of an output of integers; empty for another output.
    pub(super) fn integers(&self, user: usize, treatments: usize) -> Vec<i64> {
        let places = self.places(treatments).filter(|_| self.is_integer());
        places.map(|(row, column)| self.integer(self.element(user, row, column))).collect()
    }

    fn places(&self, treatments: usize) -> impl Iterator<Item = (usize, usize)> {
        let rows = if self.single { 1 } else { treatments };
        (0..rows).flat_map(|row| (0..self.width).map(move |column| (row, column)))
    }

    /// The position of an element in the tensor.
    fn element(&self, user: usize, row: usize, column: usize) -> usize {
        (self.starts[user] + row) * self.width + column
    }

    fn is_integer(&self) -> bool {
        matches!(self.dtype, DType::Int32 | DType::Int64)
    }

    fn integer(&self, at: usize) -> i64 {
        match self.dtype {
            DType::Int32 => i32::from_le_bytes(element(self.bytes, at)).into(),
            _ => i64::from_le_bytes(element(self.bytes, at)),
        }
    }

    fn finite(&self, user: usize, row: usize, column: usize) -> Result<f32, Failure> {
        let value = read(self.bytes, self.dtype, self.element(user, row, column));
        if value.is_finite() {
            return Ok(value);
        }
        let row = if self.flat {
            (self.starts[user] + row).to_string()
        } else {
            format!("{user}, {row}")
        };
        let column = if self.width == 1 { String::new() } else { format!(", {column}") };
        Err(invalid(&self.name, &format!("the value at [{row}{column}] is {value}")))
    }
}

fn invalid(name: &str, message: &str) -> Failure {
    Failure::new(Reason::ScoresInvalid, format!("output {name:?}: {message}"))
}

/// Accepts the expected rows with a last dimension of `width`, which may be left out if it is 1.
fn check_shape(name: &str, found: &[i64], rows: &[usize], width: usize) -> Result<(), Failure> {
    let sizes: Option<Vec<usize>> = found.iter().map(|size| (*size).try_into().ok()).collect();
    let sizes = sizes.unwrap_or_default();
    let whole = [rows, &[width]].concat();
    if sizes == whole || width == 1 && sizes == rows {
        return Ok(());
    }
    let wanted = match width {
        1 => format!("{rows:?} or {whole:?}"),
        _ => format!("{whole:?}"),
    };
    let message = format!("expected shape {wanted}, the engine returned {found:?}");
    Err(invalid(name, &message))
}

fn check_content<'t>(name: &str, tensor: &'t Tensor, count: usize) -> Result<&'t Bytes, Failure> {
    let size = match tensor.dtype {
        DType::Float32 | DType::Int32 => 4,
        DType::Float64 | DType::Int64 => 8,
        other => {
            return Err(invalid(name, &format!("expected numbers, the engine returned {other}")));
        }
    };
    let expected = count * size;
    match &tensor.content {
        Content::Bytes(bytes) if bytes.len() == expected => Ok(bytes),
        Content::Bytes(bytes) => {
            let found = bytes.len();
            Err(invalid(name, &format!("expected {expected} bytes, the engine returned {found}")))
        }
        Content::Strings(_) => Err(invalid(name, "expected numbers, the engine returned strings")),
    }
}

/// The element at `index` as the response's float32.
fn read(bytes: &[u8], dtype: DType, index: usize) -> f32 {
    match dtype {
        DType::Float32 => f32::from_le_bytes(element(bytes, index)),
        DType::Float64 => f64::from_le_bytes(element(bytes, index)) as f32,
        DType::Int32 => i32::from_le_bytes(element(bytes, index)) as f32,
        _ => i64::from_le_bytes(element(bytes, index)) as f32,
    }
}

fn element<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
    bytes[index * N..(index + 1) * N].try_into().expect("the content's size was checked")
}
