//! Scores the rows of a file with a model, and compares the scores with expected ones.
//!
//! [`run`] reads a file of rows ([`outrigger_tables`]), makes requests of them, sends these to a
//! [`Predictor`], and writes a score for each row. It holds a few batches of requests in memory,
//! whatever the size of the file. A row that cannot be scored does not end the run.
//!
//! A row has one of three forms:
//! - **row**: one user and one treatment. Consecutive rows of one user are one request. A column
//!   is a feature of the user, of the treatment, or of both, as the model defines.
//! - **list**: one user and several treatments; the columns of treatments have a list with a value
//!   for each of them. JSON Lines and Parquet only.
//! - **request**: `user` and `treatments` as in the HTTP form of requests; JSON Lines only.

mod agreement;
mod answer;
mod batch;
mod encode;
mod features;
mod form;
mod group;
mod grouping;
mod memory;
mod options;
mod predictor;
mod progress;
mod refused;
mod report;
mod roles;
mod run;
mod text;

pub use agreement::{Agreement, Correlation, Difference};
pub use batch::Batching;
pub use features::Features;
pub use memory::Memory;
pub use options::{InvalidNames, Options, Reserved, Tolerance};
pub use outrigger_tables::{Format, Problem, Root};
pub use predictor::{Answer, Loaded, Predictor, concerns_a_request, decoded, in_halves};
pub use progress::Progress;
pub use report::{Report, RowError};
pub use run::{Error, Files, run};
