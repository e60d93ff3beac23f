mod parquet_files;

use std::{fs, io::Write as _};

use proptest::prelude::*;
use tempfile::NamedTempFile;

use std::sync::Arc;

use super::*;
use crate::{Kind, Problem, Writer, records::too_long};

/// Small limits, so that they are reached.
const LIMITS: Limits = Limits { row: 1 << 20, pages: 16 << 20 };

fn file(content: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(content).expect("written");
    file
}

fn open(content: &[u8], format: Format) -> (Reader, NamedTempFile) {
    let file = file(content);
    (Reader::open(&Root::Any, file.path(), format, LIMITS).expect("it opens"), file)
}

fn rows(content: &[u8], format: Format) -> Vec<Result<Row, Malformed>> {
    let (mut reader, _file) = open(content, format);
    let mut rows = Vec::new();
    while let Some(row) = reader.read().expect("readable") {
        rows.push(row.cloned());
    }
    assert_eq!(reader.fraction(), 1.0);
    rows
}

fn untyped(text: &str) -> Cell {
    Cell::Untyped(text.to_owned())
}

/// The number and the message of a row that cannot be read.
fn malformed(row: &Result<Row, Malformed>) -> (u64, &str) {
    let row = row.as_ref().expect_err("malformed");
    (row.number, &row.message)
}

#[test]
fn csv_has_a_header_quotes_and_absent_cells() {
    let content = b"\xef\xbb\xbfuser,\"a,b\", c\r\nu1,\"x\ny\"\"z\",\r\n\r\nu2,1.5, \n";
    let rows = rows(content, Format::Csv);
    let first = rows[0].as_ref().expect("a row");
    assert_eq!(first.names.iter().map(|name| &**name).collect::<Vec<_>>(), ["user", "a,b", "c"]);
    assert_eq!(first.cells, [untyped("u1"), untyped("x\ny\"z"), Cell::Absent]);
    let second = rows[1].as_ref().expect("a row");
    assert_eq!((second.number, &second.cells[2]), (2, &untyped(" ")));
    assert!(Arc::ptr_eq(&first.names, &second.names));
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_row_has_nothing_of_the_one_before() {
    let long = "x".repeat(1000);
    let csv = format!("a,b,c\n{long},1,2\n,{long},\n3,,4\n");
    let rows = rows(csv.as_bytes(), Format::Csv);
    let cells = |at: usize| &rows[at].as_ref().expect("a row").cells;
    assert_eq!(cells(1)[..], [Cell::Absent, untyped(&long), Cell::Absent]);
    assert_eq!(cells(2)[..], [untyped("3"), Cell::Absent, untyped("4")]);
}

#[test]
fn the_memory_of_long_texts_is_not_kept() {
    // Each cell has been as long as a row in turn, and the last row is short.
    let long = "x".repeat(100_000);
    let csv = format!("a,b,c\n{long},1,2\n1,{long},2\n1,2,{long}\n1,2,3\n");
    let (mut reader, _file) = open(csv.as_bytes(), Format::Csv);
    for _ in 0..3 {
        reader.read().expect("readable");
    }
    let row = reader.read().expect("readable").expect("a row").expect("a row");
    let capacity = |cell: &Cell| if let Cell::Untyped(text) = cell { text.capacity() } else { 0 };
    assert!(row.cells.iter().map(capacity).sum::<usize>() < 1000, "{:?}", row.cells);
}

#[test]
fn a_malformed_row_does_not_end_the_file() {
    let csv = rows(b"a,b\n1\n2,\xff\n3,4\n", Format::Csv);
    assert_eq!(malformed(&csv[0]), (1, "1 cells, but the header has 2"));
    assert_eq!(malformed(&csv[1]), (2, "b: not UTF-8"));
    assert_eq!(csv[2].as_ref().expect("a row").number, 3);
    let json = rows(b"[1]\n\n{\"a\": 1,}\n{\"a\": 1}", Format::Jsonl);
    assert_eq!(malformed(&json[0]), (1, "not a JSON object"));
    assert_eq!(malformed(&json[1]), (2, "trailing comma at column 9"));
    assert_eq!(json[2].as_ref().expect("a row").cells, [Cell::Integer(1)]);
}

#[test]
fn json_rows_with_equal_names_share_them() {
    let rows = rows(b"{\"a\": 1}\n{\"a\": 2}\n{\"b\": 3}\n{}\n", Format::Jsonl);
    let names: Vec<_> = rows.iter().map(|row| &row.as_ref().expect("a row").names).collect();
    assert!(Arc::ptr_eq(names[0], names[1]));
    assert_eq!(&*names[2][0], "b");
    assert!(names[3].is_empty());
}

#[test]
fn a_row_has_a_limited_length_and_takes_limited_memory() {
    let long = "x".repeat(LIMITS.row);
    let json = rows(format!("{{\"a\": \"{long}\"}}\n{{\"a\": 1}}\n").as_bytes(), Format::Jsonl);
    assert_eq!(malformed(&json[0]), (1, too_long(LIMITS.row).as_str()));
    assert_eq!(json[1].as_ref().expect("a row").number, 2);
    // A list of a few bytes takes more than a hundred.
    let lists = format!("{{\"a\": [{}[1]]}}\n{{\"a\": 1}}\n", "[1],".repeat(LIMITS.row / 8));
    let json = rows(lists.as_bytes(), Format::Jsonl);
    let (number, message) = malformed(&json[0]);
    assert_eq!((number, json.len()), (1, 2));
    assert!(message.starts_with("a row takes more than 16777216 bytes of memory"), "{message}");
    // A quote that does not end hides all the rows after it.
    let (mut reader, _file) = open(format!("a\n1\n\"{long}{long}").as_bytes(), Format::Csv);
    assert!(reader.read().expect("a row").is_some());
    let error = reader.read().expect_err("too long").to_string();
    assert!(error.ends_with(&format!("row 2: {}", too_long(LIMITS.row))), "{error}");
}

#[test]
fn a_header_names_each_of_a_limited_number_of_columns_once() {
    for (header, message) in [(&b"a,b,a\n"[..], "\"a\" stands"), (b"\xff\n", "not UTF-8")] {
        let file = file(header);
        let error = Reader::open(&Root::Any, file.path(), Format::Csv, LIMITS)
            .expect_err("refused")
            .to_string();
        assert!(error.contains(message), "{error}");
    }
    let names: Vec<_> = (0..70_000).map(|column| format!("c{column}")).collect();
    let wide = file(names.join(",").as_bytes());
    let error = Reader::open(&Root::Any, wide.path(), Format::Csv, LIMITS).expect_err("too wide");
    assert_eq!(error.problem, Problem::TooLarge);
    assert!(error.to_string().ends_with("has 70000 columns, more than 65536"), "{error}");
    let directory = tempfile::tempdir().expect("a directory");
    for format in [Format::Csv, Format::Jsonl] {
        assert!(Reader::open(&Root::Any, directory.path(), format, LIMITS).is_err());
    }
}

fn column(name: &str, kind: Kind) -> Column {
    Column::new(name, kind)
}

proptest! {
    // Each case waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn texts_written_are_read_again(texts in proptest::collection::vec(".{1,20}", 1..200)) {
        let directory = tempfile::tempdir().expect("a directory");
        for format in [Format::Csv, Format::Jsonl, Format::Parquet] {
            let path = directory.path().join("rows");
            let columns = vec![column("number", Kind::Integer), column("text", Kind::Text)];
            let mut writer = Writer::create((&Root::Any, &path, true), format, columns).expect("created");
            for (number, text) in texts.iter().enumerate() {
                let number = i64::try_from(number).expect("a small number");
                writer.write(&[Cell::Integer(number), Cell::Text(text.clone())]).expect("written");
            }
            writer.finish().expect("finished");
            let rows = rows(&fs::read(&path).expect("a file"), format);
            let read: Vec<_> = rows
                .into_iter()
                .map(|row| row.expect("a row").cells.remove(1).to_string())
                .collect();
            prop_assert_eq!(&read, &texts);
        }
    }
}
