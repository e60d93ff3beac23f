//! What comes out of packing: tensors, and what is needed to answer.

mod ids;

use outrigger_core::Tensor;
use outrigger_proto::outrigger::v1::TreatmentError;

pub use ids::Ids;

/// How many values of a call were not simply sent and known. A vector counts
/// once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeatureCounts {
    /// Absent: filled with the default or NaN.
    pub missing: u64,
    /// Sent, but not named by the model.
    pub unknown: u64,
    /// Sent, but not in the vocabulary.
    pub out_of_vocabulary: u64,
}

/// The tensors of a call, and what is needed to answer it. But for the numbers of a table,
/// which may become a tensor where they stand, nothing of it is a part of the requests: half
/// a megabyte of key-value maps may go once it has become 80 KB of tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// One tensor for each input of metadata.json, in its order.
    pub tensors: Vec<Tensor>,
    /// The users, in the order of the requests: B of them.
    pub users: Vec<UserRows>,
    /// What there is to count.
    pub counts: FeatureCounts,
    /// T: the most treatments that any user kept.
    pub treatments: usize,
    pub(crate) single_wanted: bool,
}

/// One user's share of a packed call.
#[derive(Debug, Clone, PartialEq)]
pub struct UserRows {
    /// The request's id, to be echoed.
    pub request_id: Box<str>,
    /// How many treatments the request has.
    pub requested: usize,
    /// The treatments left out, in the order of the request; all others are
    /// packed.
    pub errors: Vec<TreatmentError>,
    /// The ids of the treatments packed, if the response shall have them.
    pub ids: Option<Ids>,
    /// How many of the best treatments to return; 0 for all.
    pub top_k: usize,
    /// The outputs to return, as positions in metadata.json; the first is the
    /// score.
    pub outputs: Vec<usize>,
}

impl UserRows {
    /// How many treatments were packed.
    pub fn kept(&self) -> usize {
        self.requested - self.errors.len()
    }

    /// The positions in the request of the treatments packed, in order.
    pub(crate) fn positions(&self) -> Vec<u32> {
        let mut left_out = self.errors.iter().map(|error| error.index).peekable();
        let all = 0..u32::try_from(self.requested).expect("treatments are limited");
        all.filter(|index| left_out.next_if_eq(index).is_none()).collect()
    }
}

impl Packed {
    /// Whether the engine has anything to compute: false if no user has a
    /// treatment and no `single` output is asked for.
    pub fn needs_engine(&self) -> bool {
        self.treatments > 0 || self.single_wanted
    }
}
