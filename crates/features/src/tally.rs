//! Counts and origins of values, recorded beside the values.

use outrigger_proto::outrigger::v1::ValueOrigin;

use crate::{
    metadata::Entity,
    packed::FeatureCounts,
    plan::{BadFeature, InputPlan, RowResult},
};

/// Counts and, if a call is traced, the origin of every feature of every row.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: FeatureCounts,
    /// The origins for each input.
    pub(crate) origins: Option<Vec<Vec<i32>>>,
}

/// The state of a tally before a row that may fail.
#[derive(Debug)]
pub(crate) struct Mark {
    counts: FeatureCounts,
    /// The inputs of the row, and the number of their origins.
    origins: Vec<(usize, usize)>,
}

impl Tally {
    pub(crate) fn new(inputs: usize, traced: bool) -> Self {
        let origins = traced.then(|| vec![Vec::new(); inputs]);
        Self { counts: FeatureCounts::default(), origins }
    }

    pub(crate) fn record(&mut self, input: usize, origin: ValueOrigin) {
        self.counts.add(origin);
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

    /// The result of a row with these faults. If there are any, nothing of the row is counted.
    pub(crate) fn settle<'p>(&mut self, mark: Mark, bad: Vec<BadFeature<'p>>) -> RowResult<'p> {
        if bad.is_empty() {
            return Ok(());
        }
        self.reset(mark);
        Err(bad)
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
