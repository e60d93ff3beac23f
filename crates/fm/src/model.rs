//! A model that is ready to score.

use outrigger_trees as trees;

use crate::{
    Error, Files, Kind, Options, Reading, Rows, SparseRows,
    budget::Budget,
    leaves::LeafFeatures,
    read,
    score::{Features, score},
    table::Table,
};

/// The most columns that the trees may have. The rows of a call are made dense for them.
const COLUMNS: usize = 1 << 22;

/// Bytes of dense rows that are scored at once, if a row is not larger.
const DENSE: usize = 1 << 19;

/// Rows that are scored at once, at most.
const ROWS: usize = 256;

const LEAVES: trees::Options = trees::Options { output: trees::Output::Leaf, iterations: None };

/// Trees whose leaves are features of a factorisation machine: read, validated and immutable.
///
/// The features of a row are those for the machine alone, those for trees and machine, and then
/// the leaves in which the row ends, each with weight 1. A feature that occurs in several of these
/// counts each time. Features that the machine does not have are ignored, and so are leaves that
/// have no feature.
#[derive(Debug)]
pub struct Model {
    trees: trees::Model,
    leaves: LeafFeatures,
    table: Table,
    skipped: u64,
}

impl Model {
    /// Reads a model.
    ///
    /// # Errors
    /// [`Error`]. A file that is malformed in any way is an error, except for the entries that
    /// [`Reading::lenient`] skips.
    pub fn read(files: Files<'_>, reading: &Reading<'_>) -> Result<Self, Error> {
        let limits = &reading.limits;
        let mut budget = Budget::new(limits.memory);
        let trees = trees::Model::read(files.trees.content, files.trees.size, limits)?;
        if trees.features() > COLUMNS {
            let text =
                format!("its trees have {} features, {COLUMNS} are allowed", trees.features());
            return Err(Error::Unsupported(text));
        }
        budget.charge::<u8>(trees.memory())?;
        let (table, skipped) = read::fm(files.fm, reading, &mut budget)?;
        let (count, ids) = (trees.width(trees::Output::Leaf), table.ids());
        let lenient = reading.lenient;
        let mapped = read::leaf_mapping(files.leaf_mapping, lenient, count, ids, &mut budget)?;
        let leaves = LeafFeatures::new(&mapped.leaves, count, ids.len(), &mut budget)?;
        let table = table.complete(&mapped.features, &mut budget)?;
        Ok(Self { trees, leaves, table, skipped: skipped + mapped.skipped })
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

    /// Columns that the trees have. They ignore features from this id on.
    pub fn tree_features(&self) -> usize {
        self.trees.features()
    }

    /// Entries of the files that were skipped because they are malformed or occur twice. Always 0
    /// unless the reading was lenient.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Scores `rows`. The outputs of a row are put into `out` beside each other, row after row.
    ///
    /// A weight that is NaN is missing for the trees, and makes the scores of its row NaN if the
    /// machine has the feature.
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::classes`].
    pub fn score(&self, rows: Rows<'_>, options: &Options, out: &mut [f32]) {
        assert_eq!(out.len(), rows.len() * self.classes(), "the length of the output");
        let mut walk = Walk::new(self, rows.len());
        let mut features = Features::new();
        for (at, out) in out.chunks_exact_mut(self.classes()).enumerate() {
            let within = at % walk.rows;
            if within == 0 {
                walk.run(self, rows.trees, at);
            }
            features.clear();
            let known = |(id, x)| Some((self.table.ids.get(id)? as u32, x));
            features.extend(rows.fm.row(at).filter_map(known));
            features.extend(rows.trees.row(at).filter_map(known));
            let leaves = walk.leaves(within).iter().enumerate();
            let of_leaf = |(tree, leaf): (usize, &f32)| self.leaves.get(tree, *leaf as u32);
            features.extend(leaves.filter_map(of_leaf).map(|feature| (feature, 1.0)));
            score(&self.table, &features, options.output, options.precision, out);
        }
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let trees = self.trees.memory() - size_of::<trees::Model>();
        size_of::<Self>() + trees + self.leaves.memory() + self.table.memory()
    }

    /// Bytes that scoring `rows` rows takes in addition, except for the features of one row.
    pub fn working_memory(&self, rows: usize) -> usize {
        let rows = self.rows_at_once(rows);
        size_of::<f32>() * rows * (self.columns() + self.trees.width(trees::Output::Leaf))
    }

    /// Columns of a dense row. Trees cannot count rows without columns.
    fn columns(&self) -> usize {
        self.trees.features().max(1)
    }

    fn rows_at_once(&self, rows: usize) -> usize {
        rows.clamp(1, ROWS).min(DENSE / (size_of::<f32>() * self.columns())).max(1)
    }
}

/// The walk of some rows through the trees.
struct Walk {
    /// The number of rows that are walked at once.
    rows: usize,
    /// Columns of a dense row.
    columns: usize,
    /// Dense rows. All elements are NaN between runs.
    dense: Vec<f32>,
    trees: usize,
    /// The leaf of each row in each tree.
    leaves: Vec<f32>,
}

impl Walk {
    /// A place for walks of `rows` rows in total.
    fn new(model: &Model, rows: usize) -> Self {
        let (rows, columns) = (model.rows_at_once(rows), model.columns());
        let trees = model.trees.width(trees::Output::Leaf);
        let (dense, leaves) = (vec![f32::NAN; rows * columns], vec![0.0; rows * trees]);
        Self { rows, columns, dense, trees, leaves }
    }

    /// The leaves of the row `at`, counted from the first row of the last run.
    fn leaves(&self, at: usize) -> &[f32] {
        &self.leaves[at * self.trees..][..self.trees]
    }

    /// Finds the leaves of the rows from `first` on.
    fn run(&mut self, model: &Model, rows: SparseRows<'_>, first: usize) {
        let count = self.rows.min(rows.len() - first);
        for at in 0..count {
            let dense = &mut self.dense[at * self.columns..][..self.columns];
            for (id, x) in rows.row(first + at) {
                // XGBoost drops missing entries before the last of several for a feature wins.
                if let Some(place) = dense.get_mut(column(id))
                    && !x.is_nan()
                {
                    *place = x;
                }
            }
        }
        let dense = trees::Rows::new(&self.dense[..count * self.columns], self.columns);
        let dense = dense.expect("rows of the width that was allocated");
        model.trees.predict(dense, &LEAVES, &mut self.leaves[..count * self.trees]);
        for at in 0..count {
            let dense = &mut self.dense[at * self.columns..][..self.columns];
            for (id, _) in rows.row(first + at) {
                if let Some(place) = dense.get_mut(column(id)) {
                    *place = f32::NAN;
                }
            }
        }
    }
}

/// The column of a feature in a dense row. XGBoost Serving cuts ids to 32 bits for the trees.
fn column(id: u64) -> usize {
    id as u32 as usize
}
