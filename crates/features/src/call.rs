//! One call, and what may be kept of it.

use outrigger_proto::outrigger::v1::ResponseOptions;

use crate::{limits::Limits, place::Place};

/// What a call is packed with, beside its requests.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) limits: &'a Limits,
    /// Whether field paths begin with `requests[i].`.
    pub(crate) prefixed: bool,
    /// The options of a batch, which hold for all its requests.
    pub(crate) batch: Option<&'a ResponseOptions>,
    /// Whether to keep the origin of every value and the names of unknown
    /// features.
    pub(crate) traced: bool,
}

impl<'a> Call<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self { limits, prefixed: false, batch: None, traced: false }
    }

    pub(crate) fn place(&self, index: usize) -> Place {
        if self.prefixed { Place::in_batch(index) } else { Place::default() }
    }
}

/// What only Explain wants to know of a packed call.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// For each input, the `ValueOrigin`s of its rows; padded as the tensor is.
    pub(crate) origins: Vec<Vec<i32>>,
    /// For each user, the names of unknown features, sorted.
    pub(crate) unknown: Vec<Vec<String>>,
}
