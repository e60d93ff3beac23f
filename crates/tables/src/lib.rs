//! Reads and writes files of rows: CSV, JSON Lines and Parquet. Synchronous.
//!
//! A [`Reader`] returns one [`Row`] at a time, so that a file may be larger than memory; a row that
//! cannot be read does not end the file. A [`Writer`] writes to a temporary file and puts it in
//! place when it is complete. Neither knows what the columns mean. A [`Table`] and a [`BatchWriter`]
//! read and write Parquet as arrays of columns, where rows are many.

mod cell;
mod column;
mod error;
mod format;
mod json;
mod limits;
mod new_file;
mod read;
mod root;
mod write;

pub use cell::Cell;
pub use column::{Column, Kind, Names};
pub use error::{Error, Problem};
pub use format::Format;
pub use limits::Limits;
pub use read::{
    Malformed, Reader, Row,
    blob::{ReadAt, Stat},
    parquet::ranges::{Batches, Table},
};
pub use root::Root;
pub use write::{Writer, batches::BatchWriter};
