//! Trees whose leaves are the features of a factorisation machine (GBDT+FM): reads the files of
//! XGBoost Serving and alphaFM, validates them, and scores sparse rows. Sync, no I/O but the
//! readers that are passed in.
//!
//! ```
//! use outrigger_fm::{File, Files, Kind, Model, Options, Reading, Rows, SparseRows};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A tree with the leaves 1 and 2, which the mapping turns into the features 11 and 12.
//! let (trees, mapping) = (include_bytes!("../../trees/tests/example.json"), b"0 1:11 2:12");
//! let fm = b"bias -1\n5 0.5 2 0\n11 0.25 1 1\n12 0 0 3";
//! let files = Files {
//!     trees: File { content: &mut trees.as_slice(), size: trees.len() as u64 },
//!     fm: File { content: &mut fm.as_slice(), size: fm.len() as u64 },
//!     leaf_mapping: File { content: &mut mapping.as_slice(), size: mapping.len() as u64 },
//! };
//! let model = Model::read(files, &Reading::new(Kind::Binary))?;
//!
//! // One row: feature 1 has the value 0.75, which is not less than the threshold of the tree and
//! // leads to leaf 2; feature 5 is for the machine alone.
//! let rows = Rows::new(
//!     SparseRows::new(&[1], &[0.75], &[0, 1])?,
//!     SparseRows::new(&[5], &[2.0], &[0, 1])?,
//! )?;
//! let mut out = [0.0];
//! model.score(rows, &Options::default(), &mut out);
//! // The margin: bias, and the weight of feature 5 twice. The vectors of both are orthogonal.
//! assert_eq!(out, [0.5]);
//! # Ok(())
//! # }
//! ```

mod error;
mod model;
mod names;
mod quad;
mod read;
mod rows;
mod score;
mod skipped;
mod table;

pub use error::{Error, Part};
pub use model::Model;
pub use names::Names;
pub use outrigger_trees::{Limits, SparseError, SparseRows};
pub use read::{File, Files, Head, Kind, Reading};
pub use rows::{Options, Output, Precision, Rows, RowsError};
pub use skipped::Skipped;
