//! Output tensors, checked and read as float32.

use std::borrow::Cow;

use outrigger_core::{Content, DType, Failure, Reason, Tensor};
use smallvec::{SmallVec, smallvec};

use crate::{
    column::floats,
    metadata::{Output, OutputKind},
    packed::Packed,
    plan::Plan,
};

/// The outputs that a call's users asked for, by their positions in
/// metadata.json; none if the engine had nothing to compute.
pub(super) struct Outputs<'t> {
    checked: Vec<Option<Checked<'t>>>,
}

/// An output of the right shape, type and size.
struct Checked<'t> {
    name: &'t str,
    dtype: DType,
    /// Bytes per element.
    size: usize,
    bytes: &'t [u8],
    rows: Rows,
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
    /// The row layout of an output of this kind, and the shape that its tensor must have.
    fn of(kind: OutputKind, plan: &Plan, packed: &Packed) -> (Self, SmallVec<[usize; 2]>) {
        let (users, treatments) = (packed.users.len(), packed.treatments);
        match kind {
            OutputKind::Single => (Self::Single, smallvec![users]),
            OutputKind::PerTreatment if plan.joins.is_empty() => {
                (Self::Padded(treatments), smallvec![users, treatments])
            }
            OutputKind::PerTreatment => {
                let (mut starts, mut rows) = (Vec::with_capacity(users), 0);
                for user in &packed.users {
                    starts.push(rows);
                    rows += user.kept();
                }
                (Self::Joined(starts), smallvec![rows])
            }
        }
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
            return Ok(Self { checked });
        }
        for index in wanted {
            if checked[index].is_none() {
                let output = &plan.metadata.outputs[index];
                checked[index] = Some(Checked::find(output, plan, tensors, packed)?);
            }
        }
        Ok(Self { checked })
    }

    /// The values of one user as little-endian float32: one per packed treatment, or one
    /// for a `single` output.
    ///
    /// # Errors
    /// SCORES_INVALID: one of them is not finite.
    pub(super) fn values(
        &self,
        output: usize,
        user: usize,
        treatments: usize,
    ) -> Result<Cow<'t, [u8]>, Failure> {
        let output = self.checked[output].as_ref();
        output.map_or(Ok(Cow::default()), |output| output.values(user, treatments))
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
        let (rows, shape) = Rows::of(output.kind, plan, packed);
        check_shape(name, &tensor.shape, &shape)?;
        let (bytes, size) = check_content(name, tensor, shape.iter().product())?;
        Ok(Self { name, dtype: tensor.dtype, size, bytes, rows })
    }

    fn values(&self, user: usize, treatments: usize) -> Result<Cow<'t, [u8]>, Failure> {
        let (start, count) = match &self.rows {
            Rows::Single => (user, 1),
            Rows::Padded(stride) => (user * stride, treatments),
            Rows::Joined(starts) => (starts[user], treatments),
        };
        let values = &self.bytes[self.size * start..self.size * (start + count)];
        let values = to_floats(values, self.dtype);
        if floats::all_finite(&values) { Ok(values) } else { Err(self.not_finite(&values, user)) }
    }

    #[cold]
    fn not_finite(&self, values: &[u8], user: usize) -> Failure {
        let (values, _) = values.as_chunks();
        let mut values = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).enumerate();
        let found = values.find(|(_, value)| !value.is_finite());
        let (row, value) = found.expect("one of them is not finite");
        let index = match &self.rows {
            Rows::Single => format!("[{user}]"),
            Rows::Padded(_) => format!("[{user}, {row}]"),
            Rows::Joined(starts) => format!("[{}]", starts[user] + row),
        };
        invalid(self.name, &format!("the value at {index} is {value}"))
    }
}

fn invalid(name: &str, message: &str) -> Failure {
    Failure::new(Reason::ScoresInvalid, format!("output {name:?}: {message}"))
}

/// Accepts the expected shape, also with a last dimension of 1.
fn check_shape(name: &str, found: &[i64], wanted: &[usize]) -> Result<(), Failure> {
    let sizes = || wanted.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX));
    if found.iter().copied().eq(sizes()) || found.iter().copied().eq(sizes().chain([1])) {
        return Ok(());
    }
    let column = [wanted, &[1]].concat();
    let message = format!("expected shape {wanted:?} or {column:?}, the engine returned {found:?}");
    Err(invalid(name, &message))
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
fn to_floats(bytes: &[u8], dtype: DType) -> Cow<'_, [u8]> {
    match dtype {
        DType::Float64 => cast(bytes, |element| f64::from_le_bytes(element) as f32),
        DType::Int32 => cast(bytes, |element| i32::from_le_bytes(element) as f32),
        DType::Int64 => cast(bytes, |element| i64::from_le_bytes(element) as f32),
        _ => Cow::Borrowed(bytes),
    }
}

fn cast<const N: usize>(bytes: &[u8], to_float: impl Fn([u8; N]) -> f32) -> Cow<'static, [u8]> {
    let (elements, _) = bytes.as_chunks();
    elements.iter().flat_map(|element| to_float(*element).to_le_bytes()).collect()
}
