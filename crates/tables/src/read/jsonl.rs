//! Rows of JSON Lines.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    sync::Arc,
};

use super::{Counted, Parsed, Row, too_long};
use crate::{Cell, Limits, error::Cause};

/// An open file.
#[derive(Debug)]
pub(super) struct Source {
    input: BufReader<Counted>,
    line: Vec<u8>,
    limits: Limits,
}

impl Source {
    /// Reads a file whose lines are rows of text.
    pub(super) fn new(file: File, limits: &Limits) -> Result<Self, Cause> {
        let input = BufReader::new(Counted::new(file, limits.row)?);
        Ok(Self { input, line: Vec::new(), limits: *limits })
    }

    pub(super) fn position(&self) -> (u64, u64) {
        self.input.get_ref().position()
    }

    /// The next row, which is written to `row`.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(super) fn read(&mut self, row: &mut Row) -> Result<Option<Parsed>, Cause> {
        loop {
            match self.read_line()? {
                Line::End => return Ok(None),
                Line::TooLong => return Ok(Some(Err(too_long(self.limits.row)))),
                Line::Read if self.line.trim_ascii().is_empty() => {}
                Line::Read => return Ok(Some(self.parse(row))),
            }
        }
    }

    fn read_line(&mut self) -> io::Result<Line> {
        self.line.clear();
        let mut input = self.input.by_ref().take(self.limits.row as u64 + 1);
        if input.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(Line::End);
        }
        if self.line.ends_with(b"\n") || self.line.len() <= self.limits.row {
            return Ok(Line::Read);
        }
        self.line = Vec::new();
        self.input.skip_until(b'\n')?;
        Ok(Line::TooLong)
    }

    fn parse(&self, row: &mut Row) -> Parsed {
        // serde counts the line break as the end of a line.
        let parsed = Cell::parse(self.line.trim_ascii_end(), self.limits.parsed())?;
        let Cell::Object(members) = parsed else {
            return Err("not a JSON object".to_owned());
        };
        let same = members.len() == row.names.len()
            && members.iter().zip(row.names.iter()).all(|((name, _), before)| **name == **before);
        if !same {
            row.names = members.iter().map(|(name, _)| Arc::from(name.as_str())).collect();
        }
        row.cells.clear();
        row.cells.extend(members.into_iter().map(|(_, cell)| cell));
        Ok(())
    }
}

/// The result of reading a line.
enum Line {
    End,
    Read,
    TooLong,
}
