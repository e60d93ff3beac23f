//! The result of packing: tensors, and the data needed to answer.

mod ids;

use outrigger_core::Tensor;
use outrigger_proto::outrigger::v1::{TreatmentError, ValueOrigin};

use crate::raw::RawPart;

pub use ids::Ids;

/// The number of values of a call that were missing, unknown or out of vocabulary. A
/// vector counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeatureCounts {
    /// Absent: replaced by the default or NaN.
    pub missing: u64,
    /// Sent, but not named by the model.
    pub unknown: u64,
    /// Sent, but not in the vocabulary.
    pub out_of_vocabulary: u64,
}

/// The tensors of a call, and the data needed to answer it. It does not borrow from the
/// requests, except that a table's numbers may become a tensor without a copy: half a
/// megabyte of key-value maps can be freed once it has become 80 KB of tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// One tensor per input of metadata.json, in its order; then the lengths of lists.
    pub tensors: Vec<Tensor>,
    /// The users, in the order of the requests: B of them.
    pub users: Vec<UserRows>,
    /// The counts for the metrics.
    pub counts: FeatureCounts,
    /// T: the largest number of treatments that any user kept.
    pub treatments: usize,
    pub(crate) single_wanted: bool,
    /// Present if the caller gave the tensors as the model takes them.
    pub(crate) raw: Option<Box<RawPart>>,
}

/// One user's share of a packed call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserRows {
    /// The request's id, echoed in the response.
    pub request_id: Box<str>,
    /// The number of treatments in the request.
    pub requested: usize,
    /// The treatments left out, in the order of the request; all others are packed.
    pub errors: Vec<TreatmentError>,
    /// The ids of the packed treatments, if the response must contain them.
    pub ids: Option<Ids>,
    /// True if treatments that cannot be scored are left out.
    pub skip: bool,
    /// The number of best treatments to return; 0 for all.
    pub top_k: usize,
    /// The outputs to return, as positions in metadata.json; the first is the
    /// score.
    pub outputs: Vec<usize>,
}

impl FeatureCounts {
    /// Counts a value with this origin.
    pub(crate) fn add(&mut self, origin: ValueOrigin) {
        match origin {
            ValueOrigin::Default | ValueOrigin::Missing => self.missing += 1,
            ValueOrigin::OutOfVocabulary => self.out_of_vocabulary += 1,
            _ => {}
        }
    }
}

impl UserRows {
    /// The number of packed treatments.
    pub fn kept(&self) -> usize {
        self.requested - self.errors.len()
    }

    /// The packed treatments' positions in the request, in order.
    pub(crate) fn positions(&self) -> Vec<u32> {
        let mut left_out = self.errors.iter().map(|error| error.index).peekable();
        let all = 0..u32::try_from(self.requested).expect("treatments are limited");
        all.filter(|index| left_out.next_if_eq(index).is_none()).collect()
    }
}

impl Packed {
    /// The tensor of this name.
    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| *tensor.name == *name)
    }

    /// Whether the engine has anything to compute: false if no user has a
    /// treatment and no `single` output is asked for. Raw tensors always run.
    pub fn needs_engine(&self) -> bool {
        self.treatments > 0 || self.single_wanted || self.is_raw()
    }

    /// True if the caller gave the tensors as the model takes them.
    pub fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// The users, and the treatments of each in the tensors; `None` if raw tensors have no
    /// treatments.
    pub(crate) fn sizes(&self) -> Option<[usize; 2]> {
        match &self.raw {
            Some(raw) => raw.sizes,
            None => Some([self.users.len(), self.treatments]),
        }
    }
}
