//! The view `features` of a model in the Open Inference Protocol: a table with an input for each
//! feature. Each row is a user with one treatment, or consecutive rows with an equal key are one user
//! with a treatment each.
//!
//! The rows become requests of `outrigger.v1`, so that they are packed and checked as any other:
//! [`Table::requests`]. [`tensors`] makes the outputs, with a row for each row of the table. [`value`]
//! is the one place that says how a cell of a table, whatever it is from, becomes the value of a feature.
//! Synchronous, without I/O.

mod cells;
mod described;
mod outputs;
mod table;
mod value;

pub use described::{described, optional};
pub use outputs::tensors;
pub use table::{Requests, Table};
pub use value::{Takes, Type, value};
