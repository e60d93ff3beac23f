//! Tree models: reads the files of XGBoost, validates them, scores dense rows, and explains the
//! scores. Sync, no I/O but the reader that is passed in.
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
mod error;
mod forest;
mod kernel;
mod model;
mod objective;
mod read;
mod rows;
mod tree;

pub use budget::Limits;
pub use contributions::{Explainer, Unexplained};
pub use error::Error;
pub use model::Model;
pub use rows::{Options, Output, Rows};
