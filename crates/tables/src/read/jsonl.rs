//! Rows of JSON Lines.

use std::{fs::File, io::BufReader, sync::Arc};

use super::{Parsed, Row};
use crate::{
    Cell, Limits,
    error::Cause,
    records::{Counted, Line, Lines, too_long},
};

/// An open file.
#[derive(Debug)]
pub(super) struct Source {
    lines: Lines<Counted<File>>,
    limits: Limits,
}

impl Source {
    /// Reads a file whose lines are rows of text.
    pub(super) fn new(file: File, limits: &Limits) -> Result<Self, Cause> {
        let input = BufReader::new(Counted::of(file, limits.row)?);
        Ok(Self { lines: Lines::new(input, 0, limits.row), limits: *limits })
    }

    pub(super) fn position(&self) -> (u64, u64) {
        self.lines.input().position()
    }

    /// The next row, which is written to `row`.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(super) fn read(&mut self, row: &mut Row) -> Result<Option<Parsed>, Cause> {
        Ok(match self.lines.read()? {
            Line::End => None,
            Line::TooLong => Some(Err(too_long(self.limits.row))),
            Line::Read => Some(self.parse(row)),
        })
    }

    fn parse(&self, row: &mut Row) -> Parsed {
        let parsed = Cell::parse(self.lines.line(), self.limits.parsed())?;
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
