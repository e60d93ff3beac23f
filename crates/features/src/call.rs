//! The settings of one call to pack, and the trace that Explain takes from it.

use outrigger_proto::outrigger::v1::ResponseOptions;

use crate::{
    limits::Limits,
    meter::{Meter, Unmetered},
    place::Place,
};

/// The settings with which a call is packed, apart from its requests.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) limits: &'a Limits,
    /// Whether field paths begin with `requests[i].`.
    pub(crate) prefixed: bool,
    /// The options of a batch, which apply to all its requests.
    pub(crate) batch: Option<&'a ResponseOptions>,
    /// Whether to record the origin of every value and the names of unknown features.
    pub(crate) traced: bool,
    pub(crate) meter: &'a dyn Meter,
}

impl<'a> Call<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self { limits, prefixed: false, batch: None, traced: false, meter: &Unmetered }
    }

    pub(crate) fn place(&self, index: usize) -> Place {
        if self.prefixed { Place::in_batch(index) } else { Place::default() }
    }
}

/// The part of a packed call that only Explain needs.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// For each input, the `ValueOrigin`s of its rows; padded like the tensor.
    pub(crate) origins: Vec<Vec<i32>>,
    /// For each user, the names of unknown features, sorted.
    pub(crate) unknown: Vec<Vec<String>>,
}
