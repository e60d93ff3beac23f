//! What is said about values beside the values.

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::{TreatmentError, ValueOrigin};

use crate::{FeatureCounts, column::Problem, metadata::Entity, plan::InputPlan, request::Place};

/// The most characters of a treatment's id that a message quotes.
const QUOTED: usize = 80;

/// Counts and, if a call is traced, the origin of every feature of every row.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: FeatureCounts,
    /// For each input.
    pub(crate) origins: Option<Vec<Vec<i32>>>,
}

/// What a tally was before a row that may fail.
#[derive(Debug)]
pub(crate) struct Mark {
    counts: FeatureCounts,
    /// The inputs of the row, and how many origins they had.
    origins: Vec<(usize, usize)>,
}

impl Tally {
    pub(crate) fn new(inputs: usize, traced: bool) -> Self {
        let origins = traced.then(|| vec![Vec::new(); inputs]);
        Self { counts: FeatureCounts::default(), origins }
    }

    pub(crate) fn note(&mut self, input: usize, origin: ValueOrigin) {
        match origin {
            ValueOrigin::Default | ValueOrigin::Missing => self.counts.missing += 1,
            ValueOrigin::OutOfVocabulary => self.counts.out_of_vocabulary += 1,
            _ => {}
        }
        if let Some(origins) = &mut self.origins {
            origins[input].push(origin.into());
        }
    }

    pub(crate) fn mark(&self, inputs: &[InputPlan], entity: Entity) -> Mark {
        let origins = self.origins.iter().flatten().enumerate();
        let of_entity = origins.filter(|(index, _)| inputs[*index].entity == entity);
        let origins = of_entity.map(|(index, origins)| (index, origins.len())).collect();
        Mark { counts: self.counts, origins }
    }

    pub(crate) fn reset(&mut self, mark: Mark) {
        self.counts = mark.counts;
        for (input, length) in mark.origins {
            if let Some(origins) = &mut self.origins {
                origins[input].truncate(length);
            }
        }
    }
}

/// A feature that could not be packed, and why.
#[derive(Debug)]
pub(crate) struct BadFeature<'p> {
    pub(crate) feature: &'p str,
    pub(crate) problem: Problem,
}

impl BadFeature<'_> {
    /// The failure of a user's row.
    pub(crate) fn of_user(self, place: &Place) -> Failure {
        let path = format!("user[{:?}]", self.feature);
        place.failure(self.problem.reason, path, self.problem.message)
    }

    /// The failure of a treatment; `path` is its feature's in the request.
    pub(crate) fn of_treatment(
        self,
        index: usize,
        id: &[u8],
        path: &str,
        place: &Place,
    ) -> Failure {
        let id: String = String::from_utf8_lossy(id).chars().take(QUOTED).collect();
        let id = if id.is_empty() { String::new() } else { format!(", id {id:?}") };
        let message = format!("{} (treatment {index}{id})", self.problem.message);
        place.failure(self.problem.reason, path, message)
    }

    /// The note that a treatment was left out.
    pub(crate) fn left_out(self, index: u32, id: &[u8]) -> TreatmentError {
        let reason: Reason = self.problem.reason;
        TreatmentError {
            index,
            id: String::from_utf8_lossy(id).into_owned(),
            reason: reason.as_str().to_owned(),
            message: self.problem.message,
            feature: self.feature.to_owned(),
        }
    }
}
