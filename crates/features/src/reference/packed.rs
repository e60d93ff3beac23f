//! The packed call of the reference implementation, in plain types.

use outrigger_core::Tensor;
use outrigger_proto::outrigger::v1::TreatmentError;

use crate::packed::FeatureCounts;

/// As [`crate::Packed`].
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// The engine's inputs.
    pub tensors: Vec<Tensor>,
    /// The users, in the order of the requests.
    pub users: Vec<UserRows>,
    /// The counts for the metrics.
    pub counts: FeatureCounts,
    /// The largest number of treatments that any user kept.
    pub treatments: usize,
    pub(super) single_wanted: bool,
}

/// As [`crate::UserRows`].
#[derive(Debug, Clone, PartialEq)]
pub struct UserRows {
    /// The request's id.
    pub request_id: String,
    /// The number of treatments in the request.
    pub requested: usize,
    /// The positions in the request of the treatments packed.
    pub kept: Vec<u32>,
    /// The ids of those treatments, if the response must contain them.
    pub ids: Option<Vec<String>>,
    /// The treatments left out.
    pub errors: Vec<TreatmentError>,
    /// The number of best treatments to return; 0 for all.
    pub top_k: usize,
    /// The outputs to return, the score first.
    pub outputs: Vec<usize>,
}

impl Packed {
    /// Converts to the transcoder's type.
    ///
    /// # Panics
    /// A user's treatments are not exactly those kept and those left out.
    pub fn transcoded(&self) -> crate::Packed {
        crate::Packed {
            tensors: self.tensors.clone(),
            users: self.users.iter().map(UserRows::transcoded).collect(),
            counts: self.counts,
            treatments: self.treatments,
            single_wanted: self.single_wanted,
        }
    }
}

impl UserRows {
    fn transcoded(&self) -> crate::UserRows {
        let user = crate::UserRows {
            request_id: self.request_id.as_str().into(),
            requested: self.requested,
            errors: self.errors.clone(),
            ids: self.ids.as_deref().map(crate::packed::Ids::copied),
            top_k: self.top_k,
            outputs: self.outputs.clone(),
        };
        assert_eq!((user.kept(), user.positions()), (self.kept.len(), self.kept.clone()));
        user
    }
}
