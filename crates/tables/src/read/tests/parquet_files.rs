//! Parquet files, hostile ones too.

use ::parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding},
    file::properties::{EnabledStatistics, WriterProperties},
};
use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};

use super::*;
use crate::Problem;

/// Writes rows of these columns as Parquet and opens them.
fn parquet(columns: &[Column], rows: &[Vec<Cell>]) -> (Reader, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.parquet");
    let mut writer = Writer::create((&Root::Any, &path, true), Format::Parquet, columns.to_vec())
        .expect("created");
    rows.iter().for_each(|row| writer.write(row).expect("written"));
    writer.finish().expect("finished");
    (Reader::open(&Root::Any, &path, Format::Parquet, LIMITS).expect("it opens"), directory)
}

#[test]
fn parquet_keeps_types_lists_and_absent_values() {
    let list = |kind| Kind::List(Box::new(kind));
    let columns = [
        column("flag", Kind::Flag),
        column("integer", Kind::Integer),
        column("single", Kind::Single),
        column("real", Kind::Real),
        column("text", Kind::Text),
        column("list", list(Kind::Single)),
        column("lists", list(list(Kind::Integer))),
    ];
    let singles = vec![Cell::Single(0.1), Cell::Absent];
    let integers = |values: &[i64]| Cell::List(values.iter().copied().map(Cell::Integer).collect());
    let rows = [
        vec![
            Cell::Flag(true),
            Cell::Integer(i64::MIN),
            Cell::Single(0.1),
            Cell::Real(-0.1),
            Cell::Text("数".to_owned()),
            Cell::List(singles),
            Cell::List(vec![integers(&[1, 2]), Cell::Absent, integers(&[])]),
        ],
        vec![Cell::Absent; 7],
        vec![
            Cell::Flag(false),
            Cell::Integer(7),
            Cell::Single(f32::INFINITY),
            Cell::Real(2.0),
            Cell::Text(String::new()),
            Cell::List(Vec::new()),
            Cell::List(vec![integers(&[3])]),
        ],
    ];
    let (mut reader, _directory) = parquet(&columns, &rows);
    assert_eq!(reader.columns(), Some(&columns[..]));
    for (number, row) in (1..).zip(&rows) {
        let read = reader.read().expect("readable").expect("a row").expect("a row");
        assert_eq!((read.number, &read.cells), (number, row));
    }
    assert_eq!(reader.read(), Ok(None));
}

#[test]
fn many_rows_of_parquet_are_read_in_order() {
    let rows: Vec<_> = (0..70_000).map(|number| vec![Cell::Integer(number)]).collect();
    let (mut reader, _directory) = parquet(&[column("a", Kind::Integer)], &rows);
    for row in &rows {
        let read = reader.read().expect("readable").expect("a row").expect("a row");
        assert_eq!(&read.cells, row);
    }
    assert_eq!(reader.read(), Ok(None));
    assert_eq!(reader.fraction(), 1.0);
}

#[test]
fn a_damaged_parquet_file_is_an_error() {
    let rows: Vec<_> = (0..1000).map(|number| vec![Cell::Integer(number)]).collect();
    let (_, directory) = parquet(&[column("a", Kind::Integer)], &rows);
    let path = directory.path().join("a.parquet");
    let mut content = fs::read(&path).expect("a file");
    content[4..40].fill(0xff);
    fs::write(&path, &content).expect("written");
    let mut reader =
        Reader::open(&Root::Any, &path, Format::Parquet, LIMITS).expect("the footer is intact");
    assert!(reader.read().is_err());
    fs::write(&path, &content[..content.len() - 1]).expect("written");
    assert!(Reader::open(&Root::Any, &path, Format::Parquet, LIMITS).is_err());
}

/// The columns and rows of a file, as Parquet with these properties.
fn written(properties: WriterProperties, field: Field, values: ArrayRef) -> NamedTempFile {
    let schema = Arc::new(Schema::new(vec![field]));
    let file = NamedTempFile::new().expect("a file");
    let mut writer =
        ArrowWriter::try_new(file.reopen().expect("a file"), Arc::clone(&schema), Some(properties))
            .expect("a writer");
    writer.write(&RecordBatch::try_new(schema, vec![values]).expect("a batch")).expect("written");
    writer.close().expect("finished");
    file
}

/// The number of rows, or the error that ends the reading.
fn count(file: &Path) -> Result<usize, Error> {
    let mut reader = Reader::open(&Root::Any, file, Format::Parquet, LIMITS)?;
    let mut rows = 0;
    while reader.read()?.is_some() {
        rows += 1;
    }
    Ok(rows)
}

/// The error that ends the reading of a file.
fn failure(file: &Path) -> Error {
    count(file).expect_err("it cannot be read")
}

#[test]
fn unsigned_integers_are_not_rounded() {
    let values = [0, 1 << 63, u64::MAX];
    let array: ArrayRef = Arc::new(UInt64Array::from(values.to_vec()));
    let file = written(WriterProperties::default(), field("id", DataType::UInt64), array);
    let mut reader = Reader::open(&Root::Any, file.path(), Format::Parquet, LIMITS).expect("rows");
    assert_eq!(reader.columns().expect("columns")[0].kind, Kind::Unsigned);
    let (mut again, _directory) = parquet(
        &[column("id", Kind::Unsigned)],
        &values.map(|value| vec![Cell::of_unsigned(value)]),
    );
    for value in values {
        for reader in [&mut reader, &mut again] {
            let row = reader.read().expect("readable").expect("a row").expect("a row");
            assert_eq!(row.cells[0].to_string(), value.to_string());
        }
    }
}

fn field(name: &str, of: DataType) -> Field {
    Field::new(name, of, true)
}

#[test]
fn two_columns_of_parquet_must_not_have_one_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.parquet");
    let columns = vec![column("a", Kind::Integer), column("a", Kind::Real)];
    let writer = Writer::create((&Root::Any, &path, true), Format::Parquet, columns);
    writer.expect("created").finish().expect("finished");
    let error = failure(&path);
    assert!(error.message.contains("two columns \"a\""), "{error}");
}

#[test]
fn a_page_that_takes_too_much_memory_is_refused() {
    let text = "x".repeat(LIMITS.pages as usize + 1);
    let (mut reader, directory) = parquet(&[column("a", Kind::Text)], &[vec![Cell::Text(text)]]);
    assert!(directory.path().join("a.parquet").metadata().expect("a file").len() < 2 << 20);
    let error = reader.read().expect_err("too large");
    assert_eq!(error.problem, Problem::TooLarge, "{error}");
}

#[test]
fn pages_of_all_columns_count_together() {
    let text = Cell::Text("x".repeat(LIMITS.pages as usize / 3));
    let columns: Vec<_> = (0..4).map(|at| column(&format!("c{at}"), Kind::Text)).collect();
    let (mut reader, _directory) = parquet(&columns, &[vec![text; 4]]);
    assert_eq!(reader.read().expect_err("too large").problem, Problem::TooLarge);
}

#[test]
fn a_text_of_a_dictionary_may_stand_in_many_rows() {
    let rows = vec![vec![Cell::Text("x".repeat(100_000))]; 1_500];
    let (mut reader, _directory) = parquet(&[column("a", Kind::Text)], &rows);
    for row in &rows {
        let read = reader.read().expect("readable").expect("a row").expect("a row");
        assert_eq!(&read.cells, row);
    }
    assert_eq!(reader.read(), Ok(None));
}

#[test]
fn lists_of_a_few_bytes_have_a_limited_number_of_values() {
    let list = Kind::List(Box::new(Kind::Integer));
    let most = LIMITS.pages as usize / 32;
    let row = |count| vec![Cell::List(vec![Cell::Integer(1); count])];
    let rows = [row(1), row(most / 2), row(2), row(most + 1)];
    let (mut reader, _directory) = parquet(&[column("a", list.clone())], &rows);
    let error = loop {
        match reader.read() {
            Ok(row) => assert!(row.is_some(), "the last row has too many values"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.problem, Problem::TooLarge, "{error}");
    // The values are as many as may be decoded, but more than a row may take.
    let (_, directory) = parquet(&[column("a", list)], &[row(most), row(3)]);
    let (path, limits) = (directory.path().join("a.parquet"), Limits { row: 1 << 18, ..LIMITS });
    let mut reader = Reader::open(&Root::Any, &path, Format::Parquet, limits).expect("rows");
    let first = reader.read().expect("readable").expect("a row").cloned();
    assert!(malformed(&first).1.starts_with("a row takes more than"), "{first:?}");
    assert_eq!(reader.read().expect("readable").expect("a row").expect("a row").cells, row(3));
}

#[test]
fn a_page_in_gzip_is_as_large_as_it_declares() {
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(Default::default()))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let array: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100_000)]));
    let file = written(properties, field("a", DataType::Utf8), array);
    assert_eq!(count(file.path()), Ok(1));
    // The page's header begins after four letters, with the kind of the page and then its size.
    let mut content = fs::read(file.path()).expect("a file");
    assert_eq!((content[4], content[6]), (0x15, 0x15), "two integers");
    assert_eq!(content[9] & 0x80, 0, "of three bytes");
    content[7..10].copy_from_slice(&[0x80, 0x80, 0x01]);
    fs::write(file.path(), content).expect("written");
    let error = failure(file.path());
    assert!(error.message.contains("larger than its header declares"), "{error}");
}

#[test]
fn encodings_that_grow_are_refused() {
    for encoding in [Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_LENGTH_BYTE_ARRAY] {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(encoding)
            .build();
        let array: ArrayRef = Arc::new(StringArray::from(vec!["a"; 10]));
        let error = failure(written(properties, field("a", DataType::Utf8), array).path());
        assert!(error.message.contains("are not read"), "{error}");
    }
}

#[test]
fn a_footer_takes_a_limited_part_of_the_memory() {
    let (_, directory) = parquet(&[column("a", Kind::Integer)], &[vec![Cell::Integer(1)]]);
    let path = directory.path().join("a.parquet");
    let mut content = fs::read(&path).expect("a file");
    let end = content.len() - 8;
    content[end..end + 4].copy_from_slice(&(LIMITS.pages as u32).to_le_bytes());
    fs::write(&path, content).expect("written");
    assert_eq!(failure(&path).problem, Problem::TooLarge);
}

#[test]
fn any_damage_of_a_parquet_file_is_an_error_or_another_value() {
    let columns = [column("a", Kind::Text), column("b", Kind::List(Box::new(Kind::Single)))];
    let list = Cell::List(vec![Cell::Single(0.5); 3]);
    let rows = vec![vec![Cell::Text("text".to_owned()), list]; 3];
    let (_, directory) = parquet(&columns, &rows);
    let path = directory.path().join("a.parquet");
    let content = fs::read(&path).expect("a file");
    for at in 0..content.len() {
        for flipped in [0x01, 0x80, 0xff] {
            let mut damaged = content.clone();
            damaged[at] ^= flipped;
            fs::write(&path, damaged).expect("written");
            // The limits hold, and the reader returns.
            let _ = count(&path);
        }
    }
}
