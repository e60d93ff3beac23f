//! Rows of JSON Lines.

use std::io::{self, Write as _};

use serde::ser::{SerializeMap as _, Serializer as _};

use super::Output;
use crate::{Cell, Column};

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Sink {
    output: Output,
    columns: Vec<Column>,
}

impl Sink {
    pub(super) fn new(output: Output, columns: Vec<Column>) -> Self {
        Self { output, columns }
    }

    /// Writes the values that are present.
    pub(super) fn write(&mut self, cells: &[Cell]) -> Result<(), String> {
        self.line(cells).map_err(|cause| cause.to_string())
    }

    fn line(&mut self, cells: &[Cell]) -> io::Result<()> {
        let mut json = serde_json::Serializer::new(&mut self.output);
        let mut members = json.serialize_map(None)?;
        let present = self.columns.iter().zip(cells).filter(|(_, cell)| !cell.is_absent());
        for (column, cell) in present {
            members.serialize_entry(&*column.name, cell)?;
        }
        members.end()?;
        self.output.write_all(b"\n")
    }

    pub(super) fn finish(self) -> Output {
        self.output
    }
}
