//! Output tensors, checked and read as float32.

use std::borrow::Cow;

use outrigger_core::{Content, DType, Failure, Reason, Tensor};
use smallvec::{SmallVec, smallvec};

use super::rank;
use crate::{
    column::floats,
    metadata::{Output, OutputKind},
    packed::{Packed, UserRows},
    plan::Plan,
};

/// The outputs that a call's users asked for, by their positions in
/// metadata.json; none if the engine had nothing to compute.
pub(super) struct Outputs<'t> {
    plan: &'t Plan,
    checked: Vec<Option<Checked<'t>>>,
}

/// An output of the right shape, type and size.
struct Checked<'t> {
    output: &'t Output,
    dtype: DType,
    /// Bytes per element.
    size: usize,
    bytes: &'t [u8],
    rows: Rows,
}

/// The values of one output for one user, row-major: a row per packed treatment, or one
/// for a `single` output.
#[derive(Debug)]
pub(super) struct OutputValues<'t> {
    pub(super) output: &'t Output,
    /// Little-endian float32, all finite but for those of rows that are left out.
    pub(super) floats: Cow<'t, [u8]>,
    /// The exact values of an output of integers; empty for other outputs.
    pub(super) integers: Vec<i64>,
}

impl OutputValues<'_> {
    /// The first value of a row that is not finite.
    fn not_finite(&self, row: usize) -> Option<f32> {
        let (values, _) = self.floats.as_chunks();
        let row = values.iter().skip(row * self.output.width).take(self.output.width);
        row.map(|bytes| f32::from_le_bytes(*bytes)).find(|value| !value.is_finite())
    }

    /// The rows that are left out, each with the reason.
    pub(super) fn left_out(&self) -> impl Iterator<Item = (u32, String)> {
        let has_rows = self.output.kind == OutputKind::PerTreatment;
        let all = if has_rows && !floats::all_finite(&self.floats) { self.floats.len() } else { 0 };
        let rows = 0..all / size_of::<f32>() / self.output.width;
        rows.zip(0..).filter_map(|(row, index)| {
            let value = self.not_finite(row)?;
            Some((index, format!("output {:?}: the value is {value}", self.output.name)))
        })
    }

    /// The rows of the `top_k` highest scores, best first; ties keep their order.
    pub(super) fn best(&self, top_k: usize) -> Vec<u32> {
        let Output { width, score_column, .. } = *self.output;
        if self.integers.is_empty() {
            return rank::best(&column(Cow::Borrowed(&self.floats), self.output), top_k);
        }
        rank::best_integers(self.integers.iter().skip(score_column).step_by(width), top_k)
    }
}

/// The scores among values in little-endian float32.
pub(super) fn column<'t>(values: Cow<'t, [u8]>, output: &Output) -> Cow<'t, [u8]> {
    if output.width == 1 {
        return values;
    }
    let (elements, _) = values.as_chunks::<4>();
    let scores = elements.iter().skip(output.score_column).step_by(output.width);
    scores.flatten().copied().collect()
}

/// The rows of an output tensor that belong to each user.
enum Rows {
    /// One row per user.
    Single,
    /// This many rows per user, padding included.
    Padded(usize),
    /// The rows of all users are concatenated without padding; holds the first row of
    /// each user.
    Joined(Vec<usize>),
}

impl Rows {
    /// The row layout of an output of this kind.
    fn of(kind: OutputKind, plan: &Plan, packed: &Packed) -> Self {
        match kind {
            OutputKind::Single => Self::Single,
            OutputKind::PerTreatment if plan.joins.is_empty() => Self::Padded(packed.treatments),
            OutputKind::PerTreatment => {
                let (mut starts, mut rows) = (Vec::with_capacity(packed.users.len()), 0);
                for user in &packed.users {
                    starts.push(rows);
                    rows += user.kept();
                }
                Self::Joined(starts)
            }
        }
    }
}

/// The shape of the rows of an output of this kind, without its width.
pub(super) fn shape(kind: OutputKind, plan: &Plan, packed: &Packed) -> SmallVec<[usize; 2]> {
    let users = packed.users.len();
    match kind {
        OutputKind::Single => smallvec![users],
        OutputKind::PerTreatment if plan.joins.is_empty() => smallvec![users, packed.treatments],
        OutputKind::PerTreatment => smallvec![packed.users.iter().map(UserRows::kept).sum()],
    }
}

impl<'t> Outputs<'t> {
    /// Finds the requested outputs and checks everything but their values.
    pub(super) fn check(
        plan: &'t Plan,
        packed: &Packed,
        tensors: &'t [Tensor],
    ) -> Result<Self, Failure> {
        let wanted = packed.users.iter().flat_map(|user| user.outputs.iter().copied());
        Self::find(plan, packed, tensors, wanted)
    }

    /// Finds and checks the outputs at these positions, as [`Self::check`] does, whether
    /// or not a user asked for them.
    pub(super) fn find(
        plan: &'t Plan,
        packed: &Packed,
        tensors: &'t [Tensor],
        wanted: impl IntoIterator<Item = usize>,
    ) -> Result<Self, Failure> {
        let mut checked: Vec<_> = plan.metadata.outputs.iter().map(|_| None).collect();
        if !packed.needs_engine() {
            return Ok(Self { plan, checked });
        }
        for index in wanted {
            if checked[index].is_none() {
                let output = &plan.metadata.outputs[index];
                checked[index] = Some(Checked::find(output, plan, tensors, packed)?);
            }
        }
        Ok(Self { plan, checked })
    }

    /// The values of one user. With `skip`, rows whose values are not finite are left out later.
    ///
    /// # Errors
    /// SCORES_INVALID: one of them is not finite, and its row is not left out.
    pub(super) fn values(
        &self,
        output: usize,
        (user, treatments): (usize, usize),
        skip: bool,
    ) -> Result<OutputValues<'t>, Failure> {
        let (floats, integers) = match &self.checked[output] {
            Some(checked) => {
                let floats = match checked.output.kind {
                    OutputKind::PerTreatment if skip => {
                        to_floats(checked.elements(user, treatments), checked.dtype)
                    }
                    _ => checked.floats(user, treatments)?,
                };
                (floats, checked.integers(user, treatments))
            }
            None => Default::default(),
        };
        Ok(OutputValues { output: &self.plan.metadata.outputs[output], floats, integers })
    }

    /// The scores of one user as little-endian float32: one per packed treatment, or one
    /// for a `single` output.
    ///
    /// # Errors
    /// SCORES_INVALID: one of the output's values for the user is not finite.
    pub(super) fn scores(
        &self,
        output: usize,
        user: usize,
        treatments: usize,
    ) -> Result<Cow<'t, [u8]>, Failure> {
        let Some(checked) = &self.checked[output] else { return Ok(Cow::default()) };
        Ok(column(checked.floats(user, treatments)?, checked.output))
    }
}

impl<'t> Checked<'t> {
    fn find(
        output: &'t Output,
        plan: &Plan,
        tensors: &'t [Tensor],
        packed: &Packed,
    ) -> Result<Self, Failure> {
        let name = &output.name;
        let Some(tensor) = tensors.iter().find(|tensor| tensor.name == output.tensor) else {
            return Err(invalid(name, "the engine did not return it"));
        };
        let (rows, shape) = (Rows::of(output.kind, plan, packed), shape(output.kind, plan, packed));
        check_shape(output, &tensor.shape, &shape)?;
        let count = shape.iter().product::<usize>() * output.width;
        let (bytes, size) = check_content(name, tensor, count)?;
        Ok(Self { output, dtype: tensor.dtype, size, bytes, rows })
    }

    /// The elements of one user.
    fn elements(&self, user: usize, treatments: usize) -> &'t [u8] {
        let (start, count) = match &self.rows {
            Rows::Single => (user, 1),
            Rows::Padded(stride) => (user * stride, treatments),
            Rows::Joined(starts) => (starts[user], treatments),
        };
        let row = self.size * self.output.width;
        &self.bytes[row * start..row * (start + count)]
    }

    fn floats(&self, user: usize, treatments: usize) -> Result<Cow<'t, [u8]>, Failure> {
        let values = to_floats(self.elements(user, treatments), self.dtype);
        if floats::all_finite(&values) { Ok(values) } else { Err(self.not_finite(&values, user)) }
    }

    /// The exact values of integers; none for an output of floating point numbers.
    fn integers(&self, user: usize, treatments: usize) -> Vec<i64> {
        let elements = self.elements(user, treatments);
        match self.dtype {
            DType::Int32 => each(elements, |element| i32::from_le_bytes(element).into()).collect(),
            DType::Int64 => each(elements, i64::from_le_bytes).collect(),
            _ => Vec::new(),
        }
    }

    #[cold]
    fn not_finite(&self, values: &[u8], user: usize) -> Failure {
        let (values, _) = values.as_chunks();
        let mut values = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).enumerate();
        let found = values.find(|(_, value)| !value.is_finite());
        let (at, value) = found.expect("one of them is not finite");
        let (row, column) = (at / self.output.width, at % self.output.width);
        let mut index = match &self.rows {
            Rows::Single => vec![user],
            Rows::Padded(_) => vec![user, row],
            Rows::Joined(starts) => vec![starts[user] + row],
        };
        if self.output.width > 1 {
            index.push(column);
        }
        invalid(&self.output.name, &format!("the value at {index:?} is {value}"))
    }
}

pub(super) fn invalid(name: &str, message: &str) -> Failure {
    Failure::new(Reason::ScoresInvalid, format!("output {name:?}: {message}"))
}

/// Accepts the shape of the rows with the output's width; a width of 1 may be left out.
fn check_shape(output: &Output, found: &[i64], rows: &[usize]) -> Result<(), Failure> {
    let size = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
    let sizes = || rows.iter().map(|rows| size(*rows));
    let found_sizes = || found.iter().copied();
    if found_sizes().eq(sizes().chain([size(output.width)]))
        || output.width == 1 && found_sizes().eq(sizes())
    {
        return Ok(());
    }
    let whole = [rows, &[output.width]].concat();
    let short = if output.width == 1 { format!("{rows:?} or ") } else { String::new() };
    let message = format!("expected shape {short}{whole:?}, the engine returned {found:?}");
    Err(invalid(&output.name, &message))
}

/// The bytes of a tensor of `count` numbers, and the size of each number.
fn check_content<'t>(
    name: &str,
    tensor: &'t Tensor,
    count: usize,
) -> Result<(&'t [u8], usize), Failure> {
    let size = match tensor.dtype {
        DType::Float32 | DType::Int32 => 4,
        DType::Float64 | DType::Int64 => 8,
        other => {
            return Err(invalid(name, &format!("expected numbers, the engine returned {other}")));
        }
    };
    let expected = count * size;
    match &tensor.content {
        Content::Bytes(bytes) if bytes.len() == expected => Ok((bytes, size)),
        Content::Bytes(bytes) => {
            let found = bytes.len();
            Err(invalid(name, &format!("expected {expected} bytes, the engine returned {found}")))
        }
        Content::Strings(_) => Err(invalid(name, "expected numbers, the engine returned strings")),
    }
}

/// Converts numbers of any accepted type to the float32 of the response.
pub(super) fn to_floats(bytes: &[u8], dtype: DType) -> Cow<'_, [u8]> {
    match dtype {
        DType::Float64 => cast(bytes, |element| f64::from_le_bytes(element) as f32),
        DType::Int32 => cast(bytes, |element| i32::from_le_bytes(element) as f32),
        DType::Int64 => cast(bytes, |element| i64::from_le_bytes(element) as f32),
        _ => Cow::Borrowed(bytes),
    }
}

fn cast<const N: usize>(bytes: &[u8], to_float: impl Fn([u8; N]) -> f32) -> Cow<'static, [u8]> {
    each(bytes, to_float).flat_map(f32::to_le_bytes).collect()
}

/// Converts each element of `N` bytes.
fn each<const N: usize, T>(
    bytes: &[u8],
    convert: impl Fn([u8; N]) -> T,
) -> impl Iterator<Item = T> {
    let (elements, _) = bytes.as_chunks();
    elements.iter().map(move |element| convert(*element))
}
