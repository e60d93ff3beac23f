//! The types of the values of dense rows.

use std::{
    borrow::Cow,
    ops::{BitOr, BitXor},
};

use outrigger_core::{DType, Tensor};
use outrigger_run::{
    RunError,
    local::{doubles, floats},
};
use outrigger_trees::{AnyRows, Rows};

/// A type of the values of dense rows: f64 of models that compare in it, and else f32.
pub(crate) trait Cell: Copy + PartialEq + Send + Sync + 'static {
    type Bits: BitXor<Output = Self::Bits> + BitOr<Output = Self::Bits> + Default + PartialEq;

    /// The nearest value.
    fn of(value: f64) -> Self;

    fn bits(self) -> Self::Bits;

    /// The elements of a tensor.
    ///
    /// # Errors
    /// The tensor has another type.
    fn cells(tensor: &Tensor) -> Result<Cow<'_, [Self]>, RunError>;

    /// Rows of `width` columns each.
    fn rows(values: &[Self], width: usize) -> Option<AnyRows<'_>>;
}

impl Cell for f32 {
    type Bits = u32;

    fn of(value: f64) -> Self {
        value as Self
    }

    fn bits(self) -> u32 {
        self.to_bits()
    }

    /// A float64 tensor is rounded as XGBoost and CatBoost round it.
    fn cells(tensor: &Tensor) -> Result<Cow<'_, [Self]>, RunError> {
        match tensor.dtype {
            DType::Float64 => Ok(doubles(tensor)?.iter().map(|value| *value as Self).collect()),
            _ => floats(tensor),
        }
    }

    fn rows(values: &[Self], width: usize) -> Option<AnyRows<'_>> {
        Rows::new(values, width).map(AnyRows::Dense)
    }
}

impl Cell for f64 {
    type Bits = u64;

    fn of(value: f64) -> Self {
        value
    }

    fn bits(self) -> u64 {
        self.to_bits()
    }

    fn cells(tensor: &Tensor) -> Result<Cow<'_, [Self]>, RunError> {
        doubles(tensor)
    }

    fn rows(values: &[Self], width: usize) -> Option<AnyRows<'_>> {
        Rows::new(values, width).map(AnyRows::Doubles)
    }
}
