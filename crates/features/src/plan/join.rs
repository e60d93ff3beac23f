//! Joined tensors: each row is a treatment, with the features of its user.

use std::sync::Arc;

use outrigger_core::DType;

use super::InputPlan;
use crate::metadata::{Entity, Input};

/// The composition of a joined tensor's rows: the features of the user and those of the
/// treatment are packed as separate parts and then joined.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) tensor: Arc<str>,
    /// As in `InputPlan`; only sparse rows have them.
    pub(crate) lengths: Option<Arc<str>>,
    pub(crate) weights: Option<Arc<str>>,
    pub(crate) dtype: DType,
    /// Elements per row, or the most ids.
    pub(crate) width: usize,
    /// The parts with the features of the user and of the treatment: positions in the plan's inputs.
    pub(crate) parts: [Option<usize>; 2],
    /// One source per feature, in the order of the features.
    pub(crate) sources: Vec<Source>,
}

/// The source of a joined row's feature in a part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// The part: a position in the plan's inputs.
    pub(crate) input: usize,
    /// The feature's position in the part.
    pub(crate) column: usize,
    /// The position of its first element within a row of the part.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Join {
    /// Compiles a joined input and appends its parts to `inputs`.
    pub(super) fn compile(input: &Input, inputs: &mut Vec<InputPlan>) -> Self {
        let [user, treatment] = [Entity::User, Entity::Treatment].map(|entity| {
            let has_any = input.features.iter().any(|feature| feature.entity == entity);
            let part = has_any.then_some(inputs.len());
            inputs.extend(part.map(|_| InputPlan::compile(input, entity)));
            part
        });
        // The number of features of each part, and of their elements, before the current
        // one.
        let (mut users, mut treatments) = ((0, 0), (0, 0));
        let sources = input.features.iter().filter_map(|feature| {
            let (part, (columns, elements)) = match feature.entity {
                Entity::User => (user, &mut users),
                _ => (treatment, &mut treatments),
            };
            let (column, start, end) = (*columns, *elements, *elements + feature.length);
            (*columns, *elements) = (column + 1, end);
            part.map(|input| Source { input, column, start, end })
        });
        let sources = sources.collect();
        let (tensor, dtype, width) = (input.tensor.clone(), input.dtype, input.width());
        let (lengths, weights) = (input.lengths.clone(), input.weights.clone());
        Self { tensor, lengths, weights, dtype, width, parts: [user, treatment], sources }
    }

    /// The sources, with neighbours in the same part merged into one.
    pub(crate) fn runs(&self) -> Vec<Source> {
        let mut runs: Vec<Source> = Vec::new();
        for source in &self.sources {
            match runs.last_mut() {
                Some(run) if (run.input, run.end) == (source.input, source.start) => {
                    run.end = source.end;
                }
                _ => runs.push(*source),
            }
        }
        runs
    }
}
