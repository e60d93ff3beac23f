//! Rows of CSV.

use std::fmt::Display;

use super::Output;
use crate::{Cell, Column};

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Sink {
    writer: csv::Writer<Output>,
}

impl Sink {
    pub(super) fn new(output: Output, columns: &[Column]) -> Result<Self, String> {
        let mut sink = Self { writer: csv::Writer::from_writer(output) };
        sink.record(columns.iter().map(|column| &column.name))?;
        Ok(sink)
    }

    pub(super) fn write(&mut self, cells: &[Cell]) -> Result<(), String> {
        self.record(cells.iter())
    }

    fn record(&mut self, cells: impl Iterator<Item = impl Display>) -> Result<(), String> {
        let written = self.writer.write_record(cells.map(|cell| cell.to_string()));
        written.map_err(|cause| cause.to_string())
    }

    pub(super) fn finish(self) -> Result<Output, String> {
        self.writer.into_inner().map_err(|cause| cause.to_string())
    }
}
