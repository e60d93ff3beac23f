//! Reads and writes files of rows: CSV, JSON Lines and Parquet. Synchronous.
//!
//! A [`Reader`] returns one [`Row`] at a time, so that a file may be larger than memory; a row that
//! cannot be read does not end the file. A [`Writer`] writes to a temporary file and puts it in
//! place when it is complete. Neither knows what the columns mean. Where rows are many, a [`Table`]
//! (Parquet) and a [`TextFile`] read ranges of them as arrays of columns, and a [`BatchWriter`]
//! (Parquet) and a [`LineWriter`] write such arrays.

mod arrays;
mod cell;
mod column;
mod error;
mod format;
mod json;
mod limits;
mod new_file;
mod quotes;
mod read;
mod records;
mod root;
mod text;
mod words;
mod write;

pub use arrays::{half, kind, number, numbers};
pub use cell::Cell;
pub use column::{Column, Kind, LeftOut, Names};
pub use error::{Error, Problem, may_pass};
pub use format::{Format, partitions};
pub use limits::Limits;
pub use new_file::Unfinished;
pub use read::{
    Malformed, Reader, Row,
    blob::{ReadAt, Stat},
    parquet::ranges::{Batches, Table, bytes_of_rows},
};
pub use root::{Directory, Root};
pub use text::{
    Found, Index, Infer, Leaf, Lists, Scan, Seen, Source, TextBatch, TextColumn, TextFile,
    TextRows, Wanted, is_json,
};
pub use words::{flag, integer, real};
pub use write::{Writer, batches::BatchWriter, lines::LineWriter, lines::json_texts};
