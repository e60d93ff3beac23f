//! Tree models: reads the files of XGBoost, LightGBM and CatBoost, validates them, scores dense and
//! sparse rows, and explains the scores. Sync, no I/O but the reader that is passed in.
//!
//! ```
//! use outrigger_trees::{Limits, Model, Options, Rows};
//!
//! # fn main() -> Result<(), outrigger_trees::Error> {
//! let file = include_bytes!("../tests/example.json");
//! let model = Model::read(&mut file.as_slice(), file.len() as u64, &Limits::default())?;
//! let rows = Rows::new(&[0.5, f32::NAN], model.features()).expect("whole rows");
//! let mut out = [0.0];
//! model.predict(rows, &Options::default(), &mut out);
//! assert_eq!(out, [2.0]);
//! # Ok(())
//! # }
//! ```

mod budget;
mod compact;
mod contributions;
mod double;
mod error;
mod forest;
mod header;
mod kernel;
mod linear;
mod model;
mod numbering;
mod objective;
mod oblivious;
mod ranks;
mod read;
mod real;
mod rows;
mod slots;
mod sparse;
mod tree;

pub use budget::{Budget, Limits};
pub use contributions::{Columns, Explainer, Unexplained};
pub use error::Error;
pub use header::Header;
pub use model::Model;
pub use numbering::{Numbering, Numbers};
pub use read::Library;
pub use rows::{AnyRows, Options, Output, Rows};
pub use sparse::{SparseError, SparseRows};
