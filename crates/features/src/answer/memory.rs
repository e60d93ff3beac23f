//! The memory of a call's outputs. It is known before the run, so that outputs that do not fit can
//! be refused before they are computed.

use outrigger_core::{DType, ElementType, Shape, Tensor, TensorSpec};

use super::output::shape;
use crate::{packed::Packed, plan::Plan};

/// A run holds its outputs at most this many times: the parts of a call that was divided are joined
/// by a copy, and an engine's numbers are copied into tensors.
const COPIES: u64 = 2;

impl Plan {
    /// The most memory in bytes that the outputs of a run of `packed` take until their answer is
    /// encoded. The sizes are those of metadata.json and of the model's interface; outputs whose size
    /// these leave open count for nothing.
    pub fn outputs_to_come(&self, packed: &Packed) -> u64 {
        if !packed.needs_engine() {
            return 0;
        }
        let spec = |name: &str| self.raw().and_then(|raw| raw.interface().output(name));
        if let Some(raw) = &packed.raw {
            let size = |name| raw_size(spec(name)?, packed);
            let sizes = raw.outputs.iter().filter_map(|name| size(name));
            return sizes.fold(0, u64::saturating_add).saturating_mul(COPIES);
        }
        let mut all = 0_u64;
        for (index, output) in self.metadata.outputs.iter().enumerate() {
            if packed.users.iter().any(|user| user.outputs.contains(&index)) {
                let rows = shape(output.kind, self, packed);
                let sizes = rows.iter().copied().chain([output.width]);
                let dtype = spec(&output.tensor).and_then(dtype_of).unwrap_or(DType::Float32);
                all = all.saturating_add(product(sizes).saturating_mul(of_element(dtype)));
            }
        }
        all
    }

    /// The memory in bytes of the outputs of a run, and of the forms in which the answer to `packed`
    /// reads their values.
    pub fn outputs_memory(&self, packed: &Packed, outputs: &[Tensor]) -> u64 {
        let read = |output: &Tensor| match output.dtype.size() {
            Some(size) if !packed.is_raw() => output.size() / size * read_as(output.dtype) as usize,
            _ => 0,
        };
        outputs.iter().map(|output| (output.size() + read(output)) as u64).sum()
    }
}

/// The most bytes for an element of an output: in the run, or later when the answer reads it.
fn of_element(dtype: DType) -> u64 {
    let size = dtype.size().unwrap_or_default() as u64;
    (COPIES * size).max(size + read_as(dtype))
}

/// The bytes for an element beside those of its tensor when an answer reads it: numbers that are not
/// float32 are converted to that, and integers to int64 too.
fn read_as(dtype: DType) -> u64 {
    match dtype {
        DType::Float64 => size_of::<f32>() as u64,
        DType::Int32 | DType::Int64 => (size_of::<f32>() + size_of::<i64>()) as u64,
        _ => 0,
    }
}

/// The bytes of an output with raw tensors. Sizes that its shape leaves open are those of the rows.
fn raw_size(spec: &TensorSpec, packed: &Packed) -> Option<u64> {
    let (Shape::Sizes(sizes), size) = (&spec.shape, dtype_of(spec)?.size()?) else { return None };
    let open = sizes.iter().filter(|size| size.is_none()).count();
    let rows = match (packed.sizes(), open) {
        (_, 0) => 1,
        (Some([users, _]), 1) => users,
        _ => packed.treatments,
    };
    let known = sizes.iter().flatten().fold(1, |product: u64, size| product.saturating_mul(*size));
    Some(known.saturating_mul(rows as u64).saturating_mul(size as u64))
}

fn dtype_of(spec: &TensorSpec) -> Option<DType> {
    match spec.dtype {
        ElementType::Known(dtype) => Some(dtype),
        _ => None,
    }
}

fn product(sizes: impl Iterator<Item = usize>) -> u64 {
    sizes.fold(1, |product: u64, size| product.saturating_mul(size as u64))
}

#[cfg(test)]
mod tests;
