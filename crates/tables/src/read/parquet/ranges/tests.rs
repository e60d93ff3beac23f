// One range is a list too.
#![allow(clippy::single_range_in_vec_init)]

use std::fs::{self, File};

use arrow_array::{
    ArrayRef, Date32Array, DictionaryArray, ListArray, StringArray,
    types::{Float32Type, Int32Type},
};
use arrow_select::take::take_record_batch;
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};

use super::*;
use crate::Problem;

const ROWS: usize = 95;
const TEXTS: [&str; 3] = ["a", "bb", "a long text"];

/// Rows with lists, absent values, dates, and texts of a dictionary.
fn rows() -> RecordBatch {
    let list = |row: usize| {
        (!row.is_multiple_of(5))
            .then(|| (0..row % 4).map(|at| Some((row + at) as f32)).collect::<Vec<_>>())
    };
    let lists: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>((0..ROWS).map(list)));
    let texts: DictionaryArray<Int32Type> = (0..ROWS).map(|row| TEXTS[row % 3]).collect();
    let days: ArrayRef = Arc::new(Date32Array::from_iter_values(0..ROWS as i32));
    RecordBatch::try_from_iter([("x", lists), ("text", Arc::new(texts) as ArrayRef), ("day", days)])
        .expect("a table")
}

/// A file of several row groups, whose pages have few rows.
fn table(directory: &Path) -> Table {
    let path = directory.join("a.parquet");
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(30))
        .set_data_page_row_count_limit(7)
        .set_write_batch_size(7)
        .build();
    let file = File::create(&path).expect("a file");
    let rows = rows();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).expect("a writer");
    writer.write(&rows).expect("written");
    writer.close().expect("closed");
    Table::open(&Root::Any, &path, Limits::default()).expect("a table")
}

/// A file in memory that is read as if it were elsewhere.
#[derive(Debug)]
struct Elsewhere(bytes::Bytes);

impl ReadAt for Elsewhere {
    fn stat(&self) -> Stat {
        Stat { size: self.0.len() as u64, modified: 5, tag: Some("v1".to_owned()) }
    }

    fn read_at(&self, start: u64, length: usize) -> io::Result<bytes::Bytes> {
        let start = usize::try_from(start).expect("small");
        Ok(self.0.slice(start..start + length))
    }
}

#[test]
fn any_range_is_read_in_batches_of_any_size() {
    let directory = tempfile::tempdir().expect("a directory");
    check_ranges(&table(directory.path()));
}

#[test]
fn bytes_elsewhere_are_read_like_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = table(directory.path());
    let path = directory.path().join("a.parquet");
    let bytes = bytes::Bytes::from(fs::read(&path).expect("a file"));
    let source = Arc::new(Elsewhere(bytes.clone()));
    let table = Table::elsewhere(source, &path, Limits::default()).expect("a table");
    assert_eq!(table.schema(), file.schema());
    assert_eq!(table.stat().expect("known").tag.as_deref(), Some("v1"));
    check_ranges(&table);
    for end in [0, 3, 11, bytes.len() - 9, bytes.len() - 1] {
        let cut = Arc::new(Elsewhere(bytes.slice(..end)));
        let refused = Table::elsewhere(cut, Path::new("s3://b/a"), Limits::default());
        let error = refused.expect_err("it is cut off");
        assert!(error.to_string().starts_with("s3://b/a: "), "{error}");
    }
}

fn check_ranges(table: &Table) {
    assert_eq!(table.rows(), ROWS as u64);
    let mut all = table.read(&[0..table.rows()], &["x", "text", "day"]).expect("all rows");
    let all = all.next(ROWS).expect("readable").expect("rows");
    assert_eq!(all.column(0), rows().column(0));
    let texts: StringArray = (0..ROWS).map(|row| Some(TEXTS[row % 3])).collect();
    assert_eq!(all.column(1), &(Arc::new(texts) as ArrayRef));
    for (start, end) in [(0, 95), (0, 1), (29, 31), (30, 60), (13, 88), (94, 95), (60, 60)] {
        for most in [1, 4, 64, 1000] {
            let mut batches = table.read(&[start..end], &["day", "x"]).expect("a range");
            let mut at = start as usize;
            while let Some(batch) = batches.next(most).expect("readable") {
                let count = most.min(end as usize - at);
                assert_eq!(batch.num_rows(), count, "{start}..{end} by {most}");
                assert_eq!(batch, all.slice(at, count).project(&[0, 2]).expect("two columns"));
                at += count;
            }
            assert_eq!(at, end as usize, "{start}..{end} by {most}");
        }
    }
}

#[test]
fn rows_are_read_within_a_number_of_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = table(directory.path());
    // A day has 4 bytes; a single row may have more than are allowed.
    for (bytes, most, expected) in [(0, 9, 1), (7, 9, 1), (8, 9, 2), (41, 64, 10), (400, 64, 64)] {
        let mut batches = table.read(&[5..95], &["day"]).expect("a range");
        let mut at = 5;
        while let Some(batch) = batches.next_within(most, bytes).expect("readable") {
            assert_eq!(batch.num_rows(), expected.min(ROWS - at), "{bytes} bytes at {at}");
            assert_eq!(batch, rows().slice(at, batch.num_rows()).project(&[2]).expect("days"));
            at += batch.num_rows();
        }
        assert_eq!(at, ROWS);
    }
}

#[test]
fn unknown_columns_and_damaged_files_are_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = table(directory.path());
    let error = table.read(&[0..1], &["y"]).expect_err("no such column");
    assert!(error.message.contains("no column \"y\""), "{error}");
    let path = directory.path().join("b.parquet");
    let content = fs::read(directory.path().join("a.parquet")).expect("a file");
    fs::write(&path, &content[..content.len() - 20]).expect("a file");
    assert!(Table::open(&Root::Any, &path, Limits::default()).is_err());
    let missing = Table::open(&Root::Any, &directory.path().join("c"), Limits::default());
    assert_eq!(missing.map(|_| ()).map_err(|error| error.problem), Err(Problem::NotFound));
}

#[test]
fn several_ranges_are_read_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut batches = table(directory.path()).read(&[40..43, 47..48], &["day"]).expect("a range");
    let first = batches.next(9).expect("readable").expect("rows");
    let expected =
        take_record_batch(&rows(), &arrow_array::UInt32Array::from(vec![40, 41, 42, 47]));
    assert_eq!(first.column(0), expected.expect("rows").column(2));
    assert_eq!(batches.schema().fields().len(), 1);
}

#[test]
fn ranges_lie_in_the_row_groups_from_the_first_to_the_last() {
    let sizes = [10, 0, 5, 20];
    for (ranges, expected) in [
        (vec![0..10], (0..1, 0)),
        (vec![9..11], (0..3, 0)),
        (vec![10..15], (2..3, 10)),
        (vec![14..15, 15..16], (2..4, 10)),
        (vec![1..2, 30..35], (0..4, 0)),
        (vec![35..40], (0..0, 0)),
        (vec![], (0..0, 0)),
    ] {
        assert_eq!(groups(&sizes, &ranges), expected, "{ranges:?}");
    }
}
