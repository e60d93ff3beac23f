//! Output tensors, checked and read as float32.

use std::borrow::Cow;

use outrigger_core::{Content, DType, Failure, Reason, Tensor};

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
    /// Bytes an element.
    size: usize,
    bytes: &'t [u8],
    /// Values a user, padding included; `None` for a `single` output.
    stride: Option<usize>,
}

impl<'t> Outputs<'t> {
    /// Finds the outputs asked for and checks all but their values.
    pub(super) fn check(
        plan: &'t Plan,
        packed: &Packed,
        tensors: &'t [Tensor],
    ) -> Result<Self, Failure> {
        let wanted = packed.users.iter().flat_map(|user| user.outputs.iter().copied());
        Self::find(plan, packed, tensors, wanted)
    }

    /// The same for some of the outputs, whoever wants them.
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
                checked[index] = Some(Checked::find(output, tensors, packed)?);
            }
        }
        Ok(Self { checked })
    }

    /// The values of one user as little-endian float32: as many as it has
    /// treatments, or one.
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
    fn find(output: &'t Output, tensors: &'t [Tensor], packed: &Packed) -> Result<Self, Failure> {
        let name = &output.name;
        let Some(tensor) = tensors.iter().find(|tensor| tensor.name == output.tensor) else {
            return Err(invalid(name, "the engine did not return it"));
        };
        let (users, treatments) = (packed.users.len(), packed.treatments);
        let (count, stride) = match output.kind {
            OutputKind::PerTreatment => {
                check_shape(name, &tensor.shape, &[users, treatments])?;
                (users * treatments, Some(treatments))
            }
            OutputKind::Single => {
                check_shape(name, &tensor.shape, &[users])?;
                (users, None)
            }
        };
        let (bytes, size) = check_content(name, tensor, count)?;
        Ok(Self { name, dtype: tensor.dtype, size, bytes, stride })
    }

    fn values(&self, user: usize, treatments: usize) -> Result<Cow<'t, [u8]>, Failure> {
        let (start, count) = match self.stride {
            Some(stride) => (user * stride, treatments),
            None => (user, 1),
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
        let index = match self.stride {
            Some(_) => format!("[{user}, {row}]"),
            None => format!("[{user}]"),
        };
        invalid(self.name, &format!("the value at {index} is {value}"))
    }
}

fn invalid(name: &str, message: &str) -> Failure {
    Failure::new(Reason::ScoresInvalid, format!("output {name:?}: {message}"))
}

/// Accepts the shape wanted, also with a last dimension of 1.
fn check_shape(name: &str, found: &[i64], wanted: &[usize]) -> Result<(), Failure> {
    let sizes = || wanted.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX));
    if found.iter().copied().eq(sizes()) || found.iter().copied().eq(sizes().chain([1])) {
        return Ok(());
    }
    let column = [wanted, &[1]].concat();
    let message = format!("expected shape {wanted:?} or {column:?}, the engine returned {found:?}");
    Err(invalid(name, &message))
}

/// The bytes of `count` numbers, and how many each takes.
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

/// Numbers of a type as the response's float32.
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
