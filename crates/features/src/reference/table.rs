//! The columnar form of treatments.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{Matrix, NumberColumn, SparseColumn, TreatmentTable};

use super::plain::Plain;
use crate::{
    limits::{max_columns, refuse_columns},
    place::Place,
    transcode::Unknown,
    value::{Scalar, float_at},
};

type Rows<'a> = Vec<Option<Plain<'a>>>;

/// The number of treatments that a table declares, for a model with this number of
/// treatment features.
pub(super) fn count(
    table: &TreatmentTable,
    features: usize,
    place: &Place,
) -> Result<usize, Failure> {
    let numbers = table.numbers.as_ref().map_or(0, |numbers| numbers.names.len());
    let columns = numbers + table.texts.len() + table.integers.len();
    let columns = columns + table.lists.len() + table.sparse.len();
    refuse_columns(columns, max_columns(features), place)?;
    let (ids, count) = (table.ids.len(), table.count as usize);
    if ids > 0 && count > 0 && ids != count {
        let message = format!("{ids} ids for {count} treatments");
        return Err(place.malformed("treatment_table.ids", message));
    }
    Ok(ids.max(count))
}

/// Sorts a table's columns into rows.
pub(super) fn read<'a>(
    table: &'a TreatmentTable,
    count: usize,
    names: &HashMap<Arc<str>, usize>,
    unknown: &mut Unknown,
    place: &Place,
) -> Result<Rows<'a>, Failure> {
    let rows = vec![None; count * names.len()];
    let mut reader = Reader { count, names, unknown, place, rows, seen: HashSet::new() };
    if let Some(numbers) = &table.numbers {
        reader.matrix(numbers)?;
    }
    for (index, column) in table.texts.iter().enumerate() {
        let path = format!("treatment_table.texts[{index}]");
        let shape = Shape::of(path, column.width, &column.row_offsets, column.values.len());
        reader.column(&column.name, &shape, &column.validity, |cells| match cells {
            Cells::One(at) => Plain::One(Scalar::Text(column.values[at].as_bytes())),
            Cells::Many(range) => Plain::Texts(&column.values[range]),
        })?;
    }
    for (index, column) in table.integers.iter().enumerate() {
        let path = format!("treatment_table.integers[{index}]");
        let shape = Shape::of(path, column.width, &column.row_offsets, column.values.len());
        reader.column(&column.name, &shape, &column.validity, |cells| match cells {
            Cells::One(at) => Plain::One(Scalar::Integer(column.values[at])),
            Cells::Many(range) => Plain::Integers(&column.values[range]),
        })?;
    }
    for (index, column) in table.lists.iter().enumerate() {
        reader.numbers(&format!("treatment_table.lists[{index}]"), column)?;
    }
    for (index, column) in table.sparse.iter().enumerate() {
        reader.sparse(format!("treatment_table.sparse[{index}]"), column)?;
    }
    Ok(reader.rows)
}

struct Reader<'r, 'a> {
    count: usize,
    names: &'r HashMap<Arc<str>, usize>,
    unknown: &'r mut Unknown,
    place: &'r Place,
    rows: Rows<'a>,
    seen: HashSet<&'a str>,
}

/// A column's position, its width and row offsets as sent, and its number of values.
struct Shape<'a> {
    path: String,
    width: u32,
    offsets: &'a [u32],
    found: usize,
}

/// The positions of a row's values in a column.
enum Cells {
    One(usize),
    Many(Range<usize>),
}

impl<'a> Shape<'a> {
    fn of(path: String, width: u32, offsets: &'a [u32], found: usize) -> Self {
        Self { path, width, offsets, found }
    }

    fn cells(&self, row: usize) -> Cells {
        let width = self.width.max(1) as usize;
        match (self.offsets, width) {
            ([], 1) => Cells::One(row),
            ([], _) => Cells::Many(row * width..(row + 1) * width),
            (offsets, _) => Cells::Many(offsets[row] as usize..offsets[row + 1] as usize),
        }
    }
}

impl<'a> Reader<'_, 'a> {
    fn matrix(&mut self, matrix: &'a Matrix) -> Result<(), Failure> {
        let columns = matrix.names.len();
        let widths = self.widths(matrix)?;
        let stride: u64 = widths.iter().sum();
        let expected = 4 * u128::from(stride) * self.count as u128;
        let path = "treatment_table.numbers";
        self.check_size(&format!("{path}.values"), matrix.values.len(), expected, "bytes")?;
        self.check_validity(path, &matrix.validity, columns)?;
        let mut offset = 0;
        for (column, (name, width)) in matrix.names.iter().zip(&widths).enumerate() {
            self.refuse_repeated(name, || format!("{path}.names[{column}]"))?;
            let (stride, width) = (stride as usize, *width as usize);
            let value = |row: usize| floats(&matrix.values, row * stride + offset, width);
            let present = |row| is_valid(&matrix.validity, row * columns + column);
            self.place(name, present, value);
            offset += width;
        }
        Ok(())
    }

    fn widths(&self, matrix: &Matrix) -> Result<Vec<u64>, Failure> {
        if matrix.widths.is_empty() {
            return Ok(vec![1; matrix.names.len()]);
        }
        let path = "treatment_table.numbers.widths";
        if matrix.widths.len() != matrix.names.len() {
            let (widths, names) = (matrix.widths.len(), matrix.names.len());
            return Err(self.place.malformed(path, format!("{widths} widths for {names} names")));
        }
        if matrix.widths.contains(&0) {
            return Err(self.place.malformed(path, "a width of 0"));
        }
        Ok(matrix.widths.iter().copied().map(u64::from).collect())
    }

    fn numbers(&mut self, path: &str, column: &'a NumberColumn) -> Result<(), Failure> {
        let (bytes, values) = (column.values.len(), &column.values);
        if !bytes.is_multiple_of(4) {
            let message = format!("{bytes} bytes are no whole number of float32");
            return Err(self.place.malformed(format!("{path}.values"), message));
        }
        let shape = Shape::of(path.to_owned(), column.width, &column.row_offsets, bytes / 4);
        self.column(&column.name, &shape, &column.validity, |cells| match cells {
            Cells::One(at) => Plain::One(Scalar::Real(float_at(values, at).into())),
            Cells::Many(range) => Plain::FloatBytes(&values[4 * range.start..4 * range.end]),
        })
    }

    fn sparse(&mut self, path: String, column: &'a SparseColumn) -> Result<(), Failure> {
        let (ids, names, weights) = (&column.ids, &column.names, &column.weights);
        if !ids.is_empty() && !names.is_empty() {
            let message = "ids and names exclude each other";
            return Err(self.place.malformed(format!("{path}.names"), message));
        }
        let (found, count) = (weights.len(), ids.len() + names.len());
        if found > 0 && found != 4 * count {
            let message = format!("{found} bytes, the weights of {count} ids need {}", 4 * count);
            return Err(self.place.malformed(format!("{path}.weights"), message));
        }
        let shape = Shape::of(path, column.width, &column.row_offsets, count);
        self.column(&column.name, &shape, &column.validity, |cells| {
            let range = match cells {
                Cells::One(at) => at..at + 1,
                Cells::Many(range) => range,
            };
            Plain::SparseCells {
                ids: ids.get(range.clone()).unwrap_or_default(),
                names: names.get(range.clone()).unwrap_or_default(),
                weights: weights.get(4 * range.start..4 * range.end).unwrap_or_default(),
            }
        })
    }

    fn column(
        &mut self,
        name: &'a str,
        shape: &Shape<'_>,
        validity: &'a [u8],
        value: impl Fn(Cells) -> Plain<'a>,
    ) -> Result<(), Failure> {
        self.check_shape(shape)?;
        self.check_validity(&shape.path, validity, 1)?;
        self.refuse_repeated(name, || format!("{}.name", shape.path))?;
        self.place(name, |row| is_valid(validity, row), |row| value(shape.cells(row)));
        Ok(())
    }

    fn check_shape(&self, shape: &Shape<'_>) -> Result<(), Failure> {
        let Shape { path, width, offsets, found } = shape;
        if offsets.is_empty() {
            let expected = self.count as u128 * u128::from((*width).max(1));
            return self.check_size(&format!("{path}.values"), *found, expected, "values");
        }
        let path = format!("{path}.row_offsets");
        if *width > 0 {
            return Err(self.place.malformed(path, "row_offsets and width exclude each other"));
        }
        self.check_size(&path, offsets.len(), self.count as u128 + 1, "row offsets")?;
        let rising = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        if rising && first == 0 && last as usize == *found {
            return Ok(());
        }
        let message = format!("do not rise from 0 to the number of values, {found}");
        Err(self.place.malformed(path, message))
    }

    fn place(
        &mut self,
        name: &str,
        present: impl Fn(usize) -> bool,
        value: impl Fn(usize) -> Plain<'a>,
    ) {
        let rows = (0..self.count).filter(|row| present(*row));
        match self.names.get(name) {
            Some(&slot) => rows.for_each(|row| {
                self.rows[row * self.names.len() + slot] = Some(value(row));
            }),
            None => self.unknown.add(name.as_bytes(), rows.count()),
        }
    }

    fn check_size(
        &self,
        path: &str,
        found: usize,
        expected: u128,
        unit: &str,
    ) -> Result<(), Failure> {
        if found as u128 == expected {
            return Ok(());
        }
        let message = format!("{found} {unit}, {} treatments need {expected}", self.count);
        Err(self.place.malformed(path, message))
    }

    fn check_validity(&self, path: &str, validity: &[u8], columns: usize) -> Result<(), Failure> {
        if validity.is_empty() {
            return Ok(());
        }
        let expected = (self.count as u128 * columns as u128).div_ceil(8);
        self.check_size(&format!("{path}.validity"), validity.len(), expected, "bytes")
    }

    fn refuse_repeated(&mut self, name: &'a str, path: impl Fn() -> String) -> Result<(), Failure> {
        if self.seen.insert(name) {
            return Ok(());
        }
        Err(self.place.malformed(path(), format!("a second column {name:?}")))
    }
}

/// The `width` float32 from element `start` on.
fn floats(values: &[u8], start: usize, width: usize) -> Plain<'_> {
    match width {
        1 => Plain::One(Scalar::Real(float_at(values, start).into())),
        _ => Plain::FloatBytes(&values[4 * start..4 * (start + width)]),
    }
}

/// Whether a bit is set; in an empty bitmap every bit counts as set.
fn is_valid(validity: &[u8], bit: usize) -> bool {
    validity.get(bit / 8).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
}
