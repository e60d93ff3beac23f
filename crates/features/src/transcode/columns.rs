//! Copies a table's columns to rows of the tensors: as whole blocks if the numbers are
//! taken unchanged, else value by value.

use bytes::Bytes;

use super::table::{Matrix, Source, Table};
use crate::{
    column::{Buffer, floats},
    plan::{Field, Fields, InputPlan, RowResult},
    tally::Tally,
    value::Value,
};

/// A table whose columns are matched to slots.
#[derive(Debug)]
pub(super) struct Columns<'t, 'r, 'p> {
    pub(super) inputs: &'p [InputPlan],
    pub(super) fields: &'p Fields,
    pub(super) table: &'t Table<'r>,
    pub(super) sources: &'t [Option<Source>],
    pub(super) count: usize,
    /// The bytes of the only request, if tensors may share them.
    pub(super) shared: Option<&'r Bytes>,
}

/// `width` neighbouring elements that are copied from every row of a matrix to the row of
/// a tensor.
#[derive(Debug, Clone, Copy)]
struct Run {
    from: usize,
    to: usize,
    width: usize,
}

impl<'p> Columns<'_, '_, 'p> {
    /// Appends all rows at once, input by input. Returns false if a row has a value that must be
    /// counted or refused, so that rows must be written one by one; some inputs may then already
    /// have the rows.
    pub(super) fn append(&self, buffers: &mut [Buffer], tally: &mut Tally) -> bool {
        if tally.origins.is_some() {
            return false;
        }
        let mark = tally.mark(self.inputs, self.fields.entity);
        let mut fields = self.fields.fields.as_slice();
        while let Some(first) = fields.first() {
            let (of_input, rest) = fields.split_at(self.inputs[first.input].columns.len());
            let slot = self.fields.fields.len() - fields.len();
            if !self.append_input(slot, of_input, &mut buffers[first.input], tally) {
                tally.reset(mark);
                return false;
            }
            fields = rest;
        }
        true
    }

    /// Appends the rows of one input; its columns are `fields`, whose slots begin at
    /// `slot`.
    fn append_input(
        &self,
        slot: usize,
        fields: &[Field],
        buffer: &mut Buffer,
        tally: &mut Tally,
    ) -> bool {
        let sources = &self.sources[slot..slot + fields.len()];
        match (self.table.matrix(), self.runs(fields, sources)) {
            (Some(matrix), Some(runs)) => self.append_block(matrix, &runs, fields, buffer),
            _ => self.append_values(slot, fields, buffer, tally),
        }
    }

    /// The runs that an input's rows are copied from; `None` unless all its features are
    /// numbers of the matrix, taken unchanged.
    fn runs(&self, fields: &[Field], sources: &[Option<Source>]) -> Option<Vec<Run>> {
        if !self.table.matrix()?.is_full() {
            return None;
        }
        let mut runs: Vec<Run> = Vec::with_capacity(fields.len());
        for (field, source) in fields.iter().zip(sources) {
            let column = field.column(self.inputs);
            let Some(Source::Number { offset: from, width, .. }) = *source else { return None };
            if width != column.length || !column.takes_floats() {
                return None;
            }
            match runs.last_mut() {
                Some(run) if run.from + run.width == from => run.width += width,
                _ => runs.push(Run { from, to: field.at, width }),
            }
        }
        Some(runs)
    }

    fn append_block(
        &self,
        matrix: &Matrix<'_>,
        runs: &[Run],
        fields: &[Field],
        buffer: &mut Buffer,
    ) -> bool {
        let is_whole = matches!(runs, [run] if run.width == matrix.stride);
        if let Some(request) = self.shared
            && is_whole
            && floats::all_finite(matrix.values)
        {
            *buffer = Buffer::Shared(request.slice_ref(matrix.values));
            return true;
        }
        let Buffer::Fixed { bytes, size: 4 } = buffer else { return false };
        let start = bytes.len();
        if is_whole {
            bytes.extend_from_slice(matrix.values);
        } else {
            gather(matrix, runs, self.count, bytes);
        }
        let block = &mut bytes[start..];
        if floats::all_finite(block) {
            return true;
        }
        let allowed = fields.iter().all(|field| field.column(self.inputs).takes_non_finite());
        if allowed {
            floats::quiet(block);
        }
        allowed
    }

    fn append_values(
        &self,
        slot: usize,
        fields: &[Field],
        buffer: &mut Buffer,
        tally: &mut Tally,
    ) -> bool {
        let Some(first) = fields.first() else { return true };
        let start = buffer.len() / first.width;
        buffer.resize((start + self.count) * first.width);
        (0..self.count).all(|row| {
            fields.iter().zip(slot..).all(|(field, slot)| {
                let value = self.value(slot, row);
                let origin = field.write(value, start + row, self.inputs, buffer);
                origin.map(|origin| tally.record(field.input, origin)).is_ok()
            })
        })
    }

    /// The table's value for a slot of a row; `None` is absence.
    fn value(&self, slot: usize, row: usize) -> Option<Value<'_>> {
        self.sources[slot].and_then(|source| self.table.value(source, row))
    }

    /// Writes one row of the table to the row numbered `to`.
    ///
    /// # Errors
    /// The first `most` features, in the order of metadata.json, with invalid values, or at least
    /// one. `tally` is then restored.
    pub(super) fn write_row(
        &self,
        most: usize,
        (row, to): (usize, usize),
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> RowResult<'p> {
        let mark = tally.mark(self.inputs, self.fields.entity);
        let mut bad = Vec::new();
        for (slot, field) in self.fields.fields.iter().enumerate() {
            let (value, buffer) = (self.value(slot, row), &mut buffers[field.input]);
            match field.write(value, to, self.inputs, buffer) {
                Ok(origin) => tally.record(field.input, origin),
                Err(feature) => bad.push(feature),
            }
            if !bad.is_empty() && bad.len() >= most {
                break;
            }
        }
        tally.settle(mark, bad)
    }
}

/// Appends `count` rows, each gathered from runs of a matrix's row.
fn gather(matrix: &Matrix<'_>, runs: &[Run], count: usize, bytes: &mut Vec<u8>) {
    let width: usize = runs.iter().map(|run| run.width).sum();
    let start = bytes.len();
    bytes.resize(start + 4 * width * count, 0);
    let to = bytes[start..].chunks_exact_mut(4 * width);
    for (to, from) in to.zip(matrix.values.chunks_exact(4 * matrix.stride)) {
        for run in runs {
            if run.width == 1 {
                to[4 * run.to..4 * run.to + 4]
                    .copy_from_slice(&from[4 * run.from..4 * run.from + 4]);
            } else {
                let from = &from[4 * run.from..4 * (run.from + run.width)];
                to[4 * run.to..4 * (run.to + run.width)].copy_from_slice(from);
            }
        }
    }
}
