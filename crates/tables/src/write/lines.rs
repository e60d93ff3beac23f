//! JSON Lines from arrays of columns.

mod time;

use std::{fmt, io::Write, ops::Range};

use arrow_array::{
    Array, ArrowPrimitiveType, RecordBatch, StringArray,
    builder::StringBuilder,
    cast::AsArray as _,
    types::{
        Date32Type, Float16Type, Float32Type, Float64Type, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    },
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use outrigger_json::writer::{number, put};

use crate::{arrays::number as value_at, text::is_json};

/// The bytes that are written at once.
const BUFFER: usize = 64 << 10;

/// Writes JSON Lines from arrays of columns: an object for each row, which has all columns. An
/// absent value is null. Floats have the fewest digits that identify them in their size; NaN and
/// infinities are the texts `NaN`, `Infinity` and `-Infinity`, as in the JSON mapping of Protocol
/// Buffers.
pub struct LineWriter<W> {
    output: W,
    columns: Vec<Column>,
    buffer: Vec<u8>,
}

struct Column {
    /// The text before its value in a row.
    head: Vec<u8>,
    /// True if its texts are values of JSON.
    is_json: bool,
}

impl<W: Write> LineWriter<W> {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// JSON Lines have no form for a type.
    pub fn new(output: W, schema: &Schema) -> Result<Self, String> {
        Self::check(schema)?;
        let mut columns = Vec::new();
        for field in schema.fields() {
            let mut head = vec![if columns.is_empty() { b'{' } else { b',' }];
            put(field.name(), &mut head);
            head.push(b':');
            columns.push(Column { head, is_json: is_json(field) });
        }
        Ok(Self { output, columns, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Checks that there is a form for each column.
    ///
    /// # Errors
    /// A column has none.
    pub fn check(schema: &Schema) -> Result<(), String> {
        let mut fields = schema.fields().iter();
        match fields.find(|field| !has_form(field.data_type())) {
            None => Ok(()),
            Some(field) => Err(no_form(field)),
        }
    }

    /// Writes rows, whose columns are those of the file.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        for row in 0..rows.num_rows() {
            for (Column { head, is_json }, values) in self.columns.iter().zip(rows.columns()) {
                self.buffer.extend_from_slice(head);
                items(values, row..row + 1, *is_json, &mut self.buffer);
            }
            self.buffer.extend_from_slice(if self.columns.is_empty() { b"{}\n" } else { b"}\n" });
            if self.buffer.len() >= BUFFER {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.output.write_all(&self.buffer).map_err(|error| error.to_string())?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is buffered. Returns the output, which is not flushed.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(mut self) -> Result<W, String> {
        self.flush()?;
        Ok(self.output)
    }
}

impl<W> fmt::Debug for LineWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineWriter").finish_non_exhaustive()
    }
}

/// The values of a column as JSON, each as [`LineWriter`] writes it. Absent values stay absent.
///
/// # Errors
/// JSON has no form for the type.
pub fn json_texts(field: &Field, values: &dyn Array) -> Result<StringArray, String> {
    if !has_form(values.data_type()) {
        return Err(no_form(field));
    }
    let is_json = is_json(field);
    let mut text = Vec::new();
    let mut texts = StringBuilder::with_capacity(values.len(), 0);
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        items(values, row..row + 1, is_json, &mut text);
        texts.append_value(str::from_utf8(&text).map_err(|error| error.to_string())?);
    }
    Ok(texts.finish())
}

fn no_form(field: &Field) -> String {
    let (name, of) = (field.name(), field.data_type());
    format!("JSON Lines have no form for the column {name:?}, which has {of}")
}

/// True if values of a type have a form in JSON.
fn has_form(of: &DataType) -> bool {
    match of {
        DataType::List(item) => has_form(item.data_type()),
        DataType::Boolean
        | DataType::Utf8
        | DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Timestamp(..) => true,
        other => other.is_integer(),
    }
}

/// Writes values, with commas between them.
fn items(values: &dyn Array, range: Range<usize>, is_json: bool, out: &mut Vec<u8>) {
    match values.data_type() {
        DataType::List(_) => {
            let lists = values.as_list::<i32>();
            let (offsets, inner) = (lists.value_offsets(), lists.values());
            let offset = |at: usize| usize::try_from(offsets[at]).unwrap_or_default();
            each(values, range, out, |at, out| {
                out.push(b'[');
                items(inner, offset(at)..offset(at + 1), is_json, out);
                out.push(b']');
            });
        }
        DataType::Utf8 => {
            let texts = values.as_string::<i32>();
            each(values, range, out, |at, out| match is_json {
                true => out.extend_from_slice(texts.value(at).as_bytes()),
                false => put(texts.value(at), out),
            });
        }
        DataType::Float16 => {
            let halves = values.as_primitive::<Float16Type>();
            each(values, range, out, |at, out| single(halves.value(at).to_f32(), out));
        }
        DataType::Float32 => {
            let singles = values.as_primitive::<Float32Type>();
            each(values, range, out, |at, out| single(singles.value(at), out));
        }
        DataType::Float64 => {
            let reals = values.as_primitive::<Float64Type>();
            each(values, range, out, |at, out| real(reals.value(at), out));
        }
        DataType::Date32 => {
            let days = values.as_primitive::<Date32Type>();
            each(values, range, out, |at, out| time::date(days.value(at).into(), out));
        }
        DataType::Timestamp(unit, zone) => {
            // Times with a zone are kept in UTC.
            let zone = if zone.is_some() { "Z" } else { "" };
            match unit {
                TimeUnit::Second => times::<TimestampSecondType>(values, (0, zone), range, out),
                TimeUnit::Millisecond => {
                    times::<TimestampMillisecondType>(values, (3, zone), range, out);
                }
                TimeUnit::Microsecond => {
                    times::<TimestampMicrosecondType>(values, (6, zone), range, out);
                }
                TimeUnit::Nanosecond => {
                    times::<TimestampNanosecondType>(values, (9, zone), range, out);
                }
            }
        }
        of if of.is_integer() || *of == DataType::Boolean => {
            each(values, range, out, |at, out| put(value_at(values, at), out));
        }
        // Refused when the file was begun.
        _ => each(values, range, out, |_, out| out.extend_from_slice(b"null")),
    }
}

fn each(
    values: &dyn Array,
    range: Range<usize>,
    out: &mut Vec<u8>,
    mut item: impl FnMut(usize, &mut Vec<u8>),
) {
    let start = range.start;
    for at in range {
        if at > start {
            out.push(b',');
        }
        match values.is_null(at) {
            true => out.extend_from_slice(b"null"),
            false => item(at, out),
        }
    }
}

fn times<T: ArrowPrimitiveType<Native = i64>>(
    values: &dyn Array,
    form: (u32, &str),
    range: Range<usize>,
    out: &mut Vec<u8>,
) {
    let times = values.as_primitive::<T>();
    each(values, range, out, |at, out| time::time(times.value(at), form, out));
}

fn single(value: f32, out: &mut Vec<u8>) {
    match value.is_finite() {
        true => number(&value.to_le_bytes(), out),
        false => not_finite(value.into(), out),
    }
}

fn real(value: f64, out: &mut Vec<u8>) {
    match value.is_finite() {
        true => put(value, out),
        false => not_finite(value, out),
    }
}

#[cold]
fn not_finite(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(if value.is_nan() {
        b"\"NaN\""
    } else if value > 0.0 {
        b"\"Infinity\""
    } else {
        b"\"-Infinity\""
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int8Array,
        ListArray, TimestampMillisecondArray, UInt64Array, types::Float32Type,
    };

    use super::*;
    use crate::text::{Leaf, Lists, TextColumn};

    fn written(rows: &RecordBatch) -> String {
        let mut writer = LineWriter::new(Vec::new(), &rows.schema()).expect("a writer");
        writer.write(rows).expect("written");
        String::from_utf8(writer.finish().expect("finished")).expect("text")
    }

    fn column(values: ArrayRef) -> String {
        written(&RecordBatch::try_from_iter_with_nullable([("c", values, true)]).expect("a table"))
    }

    #[test]
    fn rows_are_objects_with_all_columns() {
        let lists = ListArray::from_iter_primitive::<Float32Type, _, _>([
            Some(vec![Some(0.1), None]),
            None,
            Some(vec![]),
        ]);
        let rows = RecordBatch::try_from_iter_with_nullable([
            ("a\"b", Arc::new(StringArray::from(vec![Some("x\ny"), None, Some("数")])) as _, true),
            ("s", Arc::new(lists) as ArrayRef, true),
        ])
        .expect("a table");
        let expected = "{\"a\\\"b\":\"x\\ny\",\"s\":[0.1,null]}\n\
                        {\"a\\\"b\":null,\"s\":null}\n\
                        {\"a\\\"b\":\"数\",\"s\":[]}\n";
        assert_eq!(written(&rows), expected);
        assert_eq!(
            written(&rows.slice(1, 1)),
            expected.lines().nth(1).expect("a line").to_owned() + "\n"
        );
    }

    #[test]
    fn numbers_have_the_digits_that_identify_them() {
        let singles = Float32Array::from(vec![0.1, 16_777_216.0, -0.0, 1e-10, f32::MAX, f32::NAN]);
        assert_eq!(
            column(Arc::new(singles)),
            "{\"c\":0.1}\n{\"c\":16777216.0}\n{\"c\":-0.0}\n{\"c\":1e-10}\n{\"c\":3.4028235e+38}\n\
             {\"c\":\"NaN\"}\n"
        );
        let reals = Float64Array::from(vec![0.1, f64::INFINITY, f64::NEG_INFINITY, 5e-324]);
        assert_eq!(
            column(Arc::new(reals)),
            "{\"c\":0.1}\n{\"c\":\"Infinity\"}\n{\"c\":\"-Infinity\"}\n{\"c\":5e-324}\n"
        );
        assert_eq!(
            column(Arc::new(UInt64Array::from(vec![u64::MAX]))),
            "{\"c\":18446744073709551615}\n"
        );
        assert_eq!(column(Arc::new(Date32Array::from(vec![1]))), "{\"c\":\"1970-01-02\"}\n");
        let times = TimestampMillisecondArray::from(vec![1]).with_timezone("UTC");
        assert_eq!(column(Arc::new(times)), "{\"c\":\"1970-01-01T00:00:00.001Z\"}\n");
        assert_eq!(column(Arc::new(Int8Array::from(vec![-7]))), "{\"c\":-7}\n");
        assert_eq!(column(Arc::new(BooleanArray::from(vec![true]))), "{\"c\":true}\n");
    }

    #[test]
    fn texts_of_json_are_written_as_they_are() {
        let json =
            TextColumn { name: "c".to_owned(), leaf: Leaf::Json, lists: Lists::Depth(0) }.field();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("{\"a\": 1}"), None]));
        let rows = RecordBatch::try_new(Arc::new(Schema::new(vec![json])), vec![texts]);
        assert_eq!(written(&rows.expect("a table")), "{\"c\":{\"a\": 1}}\n{\"c\":null}\n");
    }

    #[test]
    fn the_values_of_a_column_are_as_in_its_lines() {
        let singles: ArrayRef = Arc::new(Float32Array::from(vec![Some(0.1), None, Some(7.0)]));
        let field = Field::new("c", DataType::Float32, true);
        let texts = json_texts(&field, &singles).expect("a form");
        assert_eq!(texts.iter().collect::<Vec<_>>(), [Some("0.1"), None, Some("7.0")]);
        let keys = BinaryArray::from(vec![&b"a"[..]]);
        let refused = json_texts(&Field::new("key", DataType::Binary, true), &keys);
        assert!(refused.is_err_and(|error| error.contains("\"key\"")));
    }

    #[test]
    fn a_type_without_a_form_is_refused() {
        let keys: ArrayRef = Arc::new(BinaryArray::from(vec![&b"a"[..]]));
        let rows = RecordBatch::try_from_iter([("key", keys)]).expect("a table");
        let error = LineWriter::new(Vec::new(), &rows.schema()).expect_err("no form");
        assert!(error.contains("\"key\", which has Binary"), "{error}");
        let lists = Field::new("l", DataType::new_list(DataType::Binary, true), true);
        assert!(LineWriter::<Vec<u8>>::check(&Schema::new(vec![lists])).is_err());
    }
}
