//! A model that is ready to score.

use std::time::{Duration, Instant};

use outrigger_trees::{self as trees, Budget};

use crate::{
    Error, Files, Kind, Options, Reading, Rows, Skipped, read,
    score::{Features, score},
    table::{NO_FEATURE, Table},
};

/// Rows whose leaves are found at once, at most.
const ROWS: usize = 256;

/// Trees whose leaves are features of a factorisation machine: read, validated and immutable.
///
/// The features of a row are those for the machine alone, those for trees and machine, and then
/// the leaves in which the row ends, each with weight 1. A feature that occurs in several of these
/// counts each time. Features that the machine does not have are ignored, and so are leaves that
/// have no feature.
#[derive(Debug)]
pub struct Model {
    trees: trees::Model,
    /// The feature of each place of leaves.
    of_leaves: Vec<u32>,
    table: Table,
    skipped: Skipped,
}

impl Model {
    /// Reads a model.
    ///
    /// # Errors
    /// [`Error`]. A file that is malformed in any way is an error, except for the entries that
    /// [`Reading::lenient`] skips.
    pub fn read(files: Files<'_>, reading: &Reading<'_>) -> Result<Self, Error> {
        let limits = &reading.limits;
        let mut budget = Budget::of(limits.memory);
        let trees = trees::Model::read(files.trees.content, files.trees.size, limits)?;
        budget.charge::<u8>(trees.memory())?;
        let (table, skipped) = read::fm(files.fm, reading, &mut budget)?;
        let (lenient, ids) = (reading.lenient, table.ids());
        let mapped = read::leaf_mapping(files.leaf_mapping, lenient, &trees, ids, &mut budget)?;
        // The features of leaves follow those with an id, in the order of trees and leaves.
        let first = ids.len();
        let table = table.complete(&mapped.features, &mut budget)?;
        let of_leaves = trees.at_places(&mut budget, |tree, leaf| {
            let found = mapped.leaves.binary_search(&(tree as u32, leaf));
            found.map_or(table.zeros(), |at| (first + at) as u32)
        })?;
        Ok(Self { trees, of_leaves, table, skipped: skipped.and(mapped.skipped) })
    }

    /// The kind of the factorisation machine.
    pub fn kind(&self) -> Kind {
        if self.table.shape.softmax { Kind::Softmax } else { Kind::Binary }
    }

    /// Columns of the output: 1 for a binary model, or the number of classes.
    pub fn classes(&self) -> usize {
        self.table.shape.classes
    }

    /// The length of the vectors, which is k in the formulas. A model with 0 is a logistic
    /// regression over the leaves.
    pub fn factors(&self) -> usize {
        self.table.shape.factors
    }

    /// Columns that the trees have. They ignore features from this id on, whose ids are cut to 32
    /// bits for that.
    pub fn tree_features(&self) -> usize {
        self.trees.features()
    }

    /// Entries of the files that were skipped. None unless the reading was lenient.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Scores `rows`. The outputs of a row are put into `out` beside each other, row after row.
    /// Returns the time that the trees took, to find the leaves in which the rows end.
    ///
    /// A weight that is NaN is missing for the trees. If the machine has the feature, it makes the
    /// scores of its row NaN: see [`Self::not_finite`].
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::classes`].
    pub fn score(&self, rows: Rows<'_>, options: &Options, out: &mut [f32]) -> Duration {
        assert_eq!(out.len(), rows.len() * self.classes(), "the length of the output");
        let trees = self.trees.width(trees::Output::Leaf);
        let mut leaves = vec![0; rows.len().min(ROWS) * trees];
        let mut of_trees = Duration::ZERO;
        let outs = out.chunks_mut(ROWS * self.classes());
        for (out, first) in outs.zip((0..rows.len()).step_by(ROWS)) {
            let some = first..(first + ROWS).min(rows.len());
            let leaves = &mut leaves[..some.len() * trees];
            let parts = [rows.fm, rows.trees].map(|rows| rows.slice(some.clone()));
            let start = Instant::now();
            self.trees.leaf_places(parts[1].truncated(), leaves);
            of_trees += start.elapsed();
            let known = parts.map(|rows| rows.look_up(|id| self.feature(id)));
            let parts = [(parts[0], &*known[0]), (parts[1], &*known[1])];
            let features = Features { parts, leaves, of_leaves: &self.of_leaves };
            score(&self.table, &features, *options, out);
        }
        of_trees
    }

    /// The row, and the feature that the machine has, of the first weight that is NaN or infinite.
    /// With it, the scores of the row would not be numbers, or would not depend on other features.
    pub fn not_finite(&self, rows: Rows<'_>) -> Option<(usize, u64)> {
        let wanted = |id: u64, weight: f32| !weight.is_finite() && self.feature(id) != NO_FEATURE;
        let found = [rows.trees, rows.fm].map(|part| part.find(wanted));
        found.into_iter().flatten().min_by_key(|(row, _)| *row)
    }

    /// The number of the feature `id` in the table, or [`NO_FEATURE`].
    #[inline]
    fn feature(&self, id: u64) -> u32 {
        self.table.ids.get(id).map_or(NO_FEATURE, |number| number as u32)
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let trees = self.trees.memory() - size_of::<trees::Model>();
        let leaves = size_of::<u32>() * self.of_leaves.capacity();
        size_of::<Self>() + trees + leaves + self.table.memory() + self.skipped.memory()
    }
}
