//! The view `features` of a model in the Open Inference Protocol: a table with an input for each
//! feature. Each row is a user with one treatment, or consecutive rows with an equal key are one user
//! with a treatment each.
//!
//! The rows become requests of `outrigger.v1`, so that they are packed, checked and answered as any
//! other: [`Table::requests`]. [`tensors`] makes the outputs of their responses, with a row for each
//! row of the table. Synchronous, without I/O.

mod cells;
mod described;
mod outputs;
mod table;
mod values;

pub use described::{described, optional};
pub use outputs::tensors;
pub use table::{Requests, Table};
