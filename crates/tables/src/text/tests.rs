// One range is a list too.
#![allow(clippy::single_range_in_vec_init)]

mod elsewhere;

use std::{fs, io::Write as _};

use arrow_array::{
    Array as _, RecordBatch,
    cast::AsArray as _,
    types::{Float32Type, Float64Type, Int64Type},
};
use proptest::{collection::vec, prelude::*, sample::select};
use tempfile::NamedTempFile;

use super::*;

const LIMITS: Limits = Limits { row: 1 << 20, pages: 16 << 20 };

fn file(content: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(content).expect("written");
    file
}

fn open(file: &NamedTempFile, format: Format) -> TextFile {
    TextFile::open(&Root::Any, file.path(), format, LIMITS).expect("it opens")
}

fn column(name: &str, leaf: Leaf, lists: Lists) -> TextColumn {
    TextColumn { name: name.to_owned(), leaf, lists }
}

fn all() -> Wanted {
    Wanted { typed: Vec::new(), infer: Infer::All }
}

/// All rows of a file with these columns, and those that are malformed.
fn read(content: &[u8], format: Format, columns: &[TextColumn]) -> TextBatch {
    let file = file(content);
    let text = open(&file, format);
    let Scan { rows, index, .. } = text.scan(&all()).expect("scanned");
    let mut batches = text.read(&index.into(), &[0..rows], columns).expect("rows");
    let batch = batches.next(usize::MAX).expect("readable").expect("rows");
    assert_eq!(batches.next(1), Ok(None));
    assert_eq!(batch.rows.num_rows() as u64, rows);
    batch
}

fn faults(batch: &TextBatch) -> Vec<(usize, &str)> {
    batch.malformed.iter().map(|(row, fault)| (*row, &**fault)).collect()
}

fn integers(rows: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    rows.column_by_name(name).expect(name).as_primitive::<Int64Type>().iter().collect()
}

fn texts(rows: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let texts = rows.column_by_name(name).expect(name).as_string::<i32>().iter();
    texts.map(|text| text.map(str::to_owned)).collect()
}

fn singles(rows: &RecordBatch, name: &str, row: usize) -> Vec<Option<f32>> {
    let lists = rows.column_by_name(name).expect(name).as_list::<i32>();
    lists.value(row).as_primitive::<Float32Type>().iter().collect()
}

#[test]
fn json_has_types_nesting_and_absent_values() {
    let text = br#"{"x": [[1, 0.1], [2e1]], "id": 7, "other": {"a": []}}
{"id": null, "x": 3}

{"x": ["NaN", null, "-Infinity"], "id": -8}
{}
"#;
    let columns =
        [column("id", Leaf::Integer, Lists::Depth(0)), column("x", Leaf::Single, Lists::Flat)];
    let batch = read(text, Format::Jsonl, &columns);
    assert_eq!(faults(&batch), []);
    assert_eq!(integers(&batch.rows, "id"), [Some(7), None, Some(-8), None]);
    assert_eq!(singles(&batch.rows, "x", 0), [Some(1.0), Some(0.1), Some(20.0)]);
    assert_eq!(singles(&batch.rows, "x", 1), [Some(3.0)]);
    let third = singles(&batch.rows, "x", 2);
    assert!(third[0].is_some_and(f32::is_nan));
    assert_eq!(third[1..], [None, Some(f32::NEG_INFINITY)]);
    assert!(batch.rows.column_by_name("x").expect("x").is_null(3));
}

#[test]
fn lists_keep_their_nesting_where_it_is_wanted() {
    let columns = [
        column("t", Leaf::Text, Lists::Depth(2)),
        column("j", Leaf::Json, Lists::Depth(0)),
        column("r", Leaf::Real, Lists::Depth(1)),
    ];
    let text = br#"{"t": [["a", "\u00e4"], null, []], "j": {"k": [1, "x"]}, "r": [1, 2.5]}
{"t": null, "j": "x", "r": []}"#;
    let TextBatch { rows, malformed } = read(text, Format::Jsonl, &columns);
    assert_eq!(malformed, []);
    let outer = rows.column(0).as_list::<i32>().value(0);
    let lists = outer.as_list::<i32>();
    let inner = lists.value(0);
    assert_eq!(inner.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("ä")]);
    assert!(lists.is_null(1) && lists.is_valid(2));
    assert!(rows.column(0).is_null(1));
    let json = [Some(r#"{"k": [1, "x"]}"#.to_owned()), Some("\"x\"".to_owned())];
    assert_eq!(texts(&rows, "j"), json);
    let reals = rows.column(2).as_list::<i32>().value(0);
    assert_eq!(reals.as_primitive::<Float64Type>().values(), &[1.0, 2.5]);
}

#[test]
fn a_malformed_row_of_json_has_no_values() {
    let long = "1,".repeat(LIMITS.row / 2);
    let text = [
        br#"{"id": 1, "x": [1]}"#.as_slice(),
        br#"{"id": 2, "x": [1, "a"]}"#,
        br#"{"id": 3, "x": [1,}"#,
        br#"{"id": 4.5, "x": [1]}"#,
        br#"{"id": 5, "x": [1e39]}"#,
        br#"[1, 2]"#,
        b"{\"id\": 7, \"x\": [1], \"t\": \"\xff\"}",
        format!("{{\"x\": [{long}1]}}").as_bytes(),
        br#"{"id": 9, "x": [1], "id": 9}"#,
        br#"{"id": 10, "x": [1]} 1"#,
        br#"{"id": 9223372036854775808, "x": [1]}"#,
        br#"{"id": 12, "x": [NaN]}"#,
        br#"{"id": 13, "x": [2]}"#,
    ]
    .join(&b'\n');
    let columns =
        [column("id", Leaf::Integer, Lists::Depth(0)), column("x", Leaf::Single, Lists::Flat)];
    let batch = read(&text, Format::Jsonl, &columns);
    let expected = [
        (1, "x: a text is not a float32"),
        (2, "not JSON at byte 19"),
        (3, "id: 4.5 is not an integer of 64 bits"),
        (4, "x: 1e39 is not a float32"),
        (5, "not a JSON object"),
        (6, "not UTF-8"),
        (7, "a row has more than 1048576 bytes"),
        (8, "id: the key stands here twice"),
        (9, "not JSON at byte 22"),
        (10, "id: 9223372036854775808 is not an integer of 64 bits"),
        (11, "not JSON at byte 18"),
    ];
    assert_eq!(faults(&batch), expected);
    let ids = integers(&batch.rows, "id");
    assert_eq!((ids[0], ids[12]), (Some(1), Some(13)));
    assert!(ids[1..12].iter().all(Option::is_none));
    assert_eq!(singles(&batch.rows, "x", 12), [Some(2.0)]);
}

#[test]
fn csv_has_quotes_absent_cells_and_lists() {
    let text = b"\xef\xbb\xbfid,note,x,flag\r\n1,\"a,\n\"\"b\"\"\",\"[1, 2.5]\",true\r\n\
                 \r\n 2 ,,0.5,FALSE\n3,c,nan,\n";
    let columns = [
        column("flag", Leaf::Flag, Lists::Depth(0)),
        column("x", Leaf::Single, Lists::Flat),
        column("note", Leaf::Text, Lists::Depth(0)),
        column("id", Leaf::Integer, Lists::Depth(0)),
    ];
    let batch = read(text, Format::Csv, &columns);
    assert_eq!(faults(&batch), []);
    let TextBatch { rows, .. } = batch;
    assert_eq!(integers(&rows, "id"), [Some(1), Some(2), Some(3)]);
    assert_eq!(texts(&rows, "note"), [Some("a,\n\"b\"".to_owned()), None, Some("c".to_owned())]);
    let flags: Vec<_> = rows.column(0).as_boolean().iter().collect();
    assert_eq!(flags, [Some(true), Some(false), None]);
    assert_eq!(singles(&rows, "x", 0), [Some(1.0), Some(2.5)]);
    assert_eq!(singles(&rows, "x", 1), [Some(0.5)]);
    assert!(singles(&rows, "x", 2)[0].is_some_and(f32::is_nan));
}

#[test]
fn a_malformed_row_of_csv_has_no_values() {
    let text = b"id,x\n1,2\n2\n3,4,5\nx,1\n4,\xff\n5,\"[1,\"\n6,1e39\n7,8\n";
    let columns =
        [column("id", Leaf::Integer, Lists::Depth(0)), column("x", Leaf::Single, Lists::Flat)];
    let batch = read(text, Format::Csv, &columns);
    let expected = [
        (1, "1 cells, but the header has 2"),
        (2, "3 cells, but the header has 2"),
        (3, "id: \"x\" is not an integer of 64 bits"),
        (4, "x: not UTF-8"),
        (5, "x: not a list of JSON"),
        (6, "x: \"1e39\" is not a float32"),
    ];
    assert_eq!(faults(&batch), expected);
    let ids = [Some(1), None, None, None, None, None, None, Some(7)];
    assert_eq!(integers(&batch.rows, "id"), ids);
}

#[test]
fn files_that_are_no_table_are_refused() {
    let scanned = |content: &[u8]| open(&file(content), Format::Csv).scan(&all());
    let error = scanned(b"").expect_err("no header").to_string();
    assert!(error.contains("the file is empty"), "{error}");
    let error = scanned(b"a,a\n").expect_err("two columns").to_string();
    assert!(error.contains("\"a\" stands in the header twice"), "{error}");
    assert_eq!(scanned(b"a,b\n").expect("no rows").rows, 0);
    let long = "x".repeat(LIMITS.row);
    let error = scanned(format!("a\n1\n\"{long}{long}").as_bytes()).expect_err("too long");
    assert!(error.to_string().contains("row 2: a row has more than"), "{error}");
    // The rows after a quote that is not closed would be a part of its cell.
    let rows =
        |from: i32| (from..from + 9000).map(|id| format!("{id},b{id}\n")).collect::<String>();
    for (row, end) in [(9001, "1,\"b\n2,c\n"), (9001, "1,\"b\n2,\"c\"\n"), (9002, "1,2\n\"1,2\n")] {
        let text = format!("a,b\n{}{end}{}", rows(0), rows(9));
        let error = scanned(text.as_bytes()).expect_err("not closed").to_string();
        let is_clear = error.contains(&format!("row {row}: the quote that opens a cell in line"));
        assert!(is_clear, "{error}");
    }
    let missing = file(b"a,b\n1,2\n");
    let text = open(&missing, Format::Csv);
    let columns = [column("c", Leaf::Text, Lists::Depth(0))];
    let error = text.read(&Arc::default(), &[0..1], &columns).expect_err("no column").to_string();
    assert!(error.contains("there is no column \"c\""), "{error}");
    let empty = open(&file(b"\n"), Format::Jsonl).scan(&all()).expect("no rows");
    assert_eq!((empty.rows, empty.columns), (0, Vec::new()));
    let keys = (0..10_001).map(|key| format!("{{\"k{key}\": 1}}\n")).collect::<String>();
    let error = open(&file(keys.as_bytes()), Format::Jsonl).scan(&all()).expect_err("too many");
    assert!(error.to_string().contains("more than 10000 different keys"), "{error}");
}

#[test]
fn a_scan_finds_columns_and_whether_types_hold() {
    let typed = vec![
        column("x", Leaf::Single, Lists::Flat),
        column("y", Leaf::Single, Lists::Flat),
        column("z", Leaf::Single, Lists::Flat),
    ];
    let wanted = Wanted { typed, infer: Infer::All };
    let text = br#"{"id": 1, "x": null, "y": "a", "tags": ["a"]}
{"id": 2.5, "x": [1], "y": "b", "tags": []}
{"id": "broken
"#;
    let scan = open(&file(text), Format::Jsonl).scan(&wanted).expect("scanned");
    assert_eq!(scan.rows, 3);
    let seen: Vec<_> = scan.columns.iter().map(|it| (&*it.name, it.has_values, it.fits)).collect();
    let expected =
        [("id", true, false), ("x", true, true), ("y", true, false), ("tags", true, false)];
    assert_eq!(seen, expected);
    assert_eq!(scan.columns[0].found.column("id").leaf, Leaf::Real);
    assert_eq!(scan.columns[3].found.column("tags").lists, Lists::Depth(1));
    let wanted = Wanted { infer: Infer::Only(["id".to_owned()].into()), ..wanted };
    let scan = open(&file(text), Format::Jsonl).scan(&wanted).expect("scanned");
    assert_eq!(scan.columns.len(), 3);
    let csv = open(&file(b"x,id,y\n,1,a\n1,2,b\n"), Format::Csv).scan(&wanted).expect("scanned");
    let seen: Vec<_> = csv.columns.iter().map(|it| (&*it.name, it.has_values, it.fits)).collect();
    assert_eq!(seen, [("x", true, true), ("id", true, false), ("y", true, false)]);
}

/// Rows of very different length, in more bytes than two marks are apart.
fn large(format: Format) -> String {
    let mut text = if format == Format::Csv { "id,note\n".to_owned() } else { String::new() };
    let mut id = 0;
    while text.len() < 20 << 20 {
        let note = "line\n".repeat(if id % 50 == 0 { 20_000 } else { id % 7 });
        text += &match format {
            Format::Csv => format!("{id},\"{note}\"\n"),
            _ => format!("{{\"id\": {id}, \"note\": {note:?}}}\n"),
        };
        id += 1;
    }
    text
}

#[test]
fn any_range_is_read_from_the_nearest_mark() {
    let columns = [column("id", Leaf::Integer, Lists::Depth(0))];
    for format in [Format::Csv, Format::Jsonl] {
        let file = file(large(format).as_bytes());
        let text = open(&file, format);
        let Scan { rows, index, .. } = text.scan(&all()).expect("scanned");
        let middle = index.before(rows);
        assert!(middle.0 > 100 && middle.1 > 8 << 20, "{middle:?}");
        let index = Arc::new(index);
        for ranges in [
            vec![0..rows],
            vec![middle.0 - 1..middle.0 + 2],
            vec![middle.0..middle.0 + 1, rows - 1..rows],
            vec![1..3, 3..5, 7..7, middle.0 + 1..middle.0 + 2],
        ] {
            let expected: Vec<_> =
                ranges.iter().cloned().flatten().map(|row| Some(row as i64)).collect();
            for most in [3, 10_000] {
                let mut batches = text.read(&index, &ranges, &columns).expect("rows");
                let mut found = Vec::new();
                while let Some(TextBatch { rows, malformed }) =
                    batches.next(most).expect("readable")
                {
                    assert!(rows.num_rows() <= most && malformed.is_empty());
                    found.extend(integers(&rows, "id"));
                    if most > expected.len() && expected.len() > 1000 {
                        assert!(rows.num_rows() < 5000, "a batch has a limited size");
                    }
                }
                assert_eq!(found, expected, "{format} {ranges:?} by {most}");
            }
        }
        // A file that was cut off does not have the rows of its index.
        fs::write(file.path(), &large(format)[..9 << 20]).expect("written");
        let mut batches = text.read(&index, &[rows - 1..rows], &columns).expect("rows");
        let error = batches.next(1).expect_err("it ends early").to_string();
        assert!(error.contains("the file ends before row"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_rows_or_an_error(
        content in vec(select(&b"{}[]\",:\\ \nax1.\xff\r"[..]), 0..200)
    ) {
        let columns = [
            column("a", Leaf::Single, Lists::Flat),
            column("x", Leaf::Json, Lists::Depth(0)),
        ];
        for format in [Format::Csv, Format::Jsonl] {
            let file = file(&content);
            let text = open(&file, format);
            let Ok(Scan { rows, index, .. }) = text.scan(&all()) else { continue };
            let Ok(mut batches) = text.read(&index.into(), &[0..rows], &columns) else { continue };
            let mut found = 0;
            while let Some(batch) = batches.next(3).expect("readable") {
                found += batch.rows.num_rows() as u64;
            }
            prop_assert_eq!(found, rows);
        }
    }

    #[test]
    fn numbers_that_were_written_are_read_again(bits in vec(any::<u32>(), 1..50)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let array = arrow_array::Float32Array::from(values.clone());
        let rows = RecordBatch::try_from_iter([("x", Arc::new(array) as arrow_array::ArrayRef)]);
        let rows = rows.expect("a table");
        let mut writer = crate::LineWriter::new(Vec::new(), &rows.schema()).expect("a writer");
        writer.write(&rows).expect("written");
        let text = writer.finish().expect("finished");
        let batch = read(&text, Format::Jsonl, &[column("x", Leaf::Single, Lists::Depth(0))]);
        let found = batch.rows.column(0).as_primitive::<Float32Type>().values();
        for (found, value) in found.iter().zip(&values) {
            prop_assert!(found.to_bits() == value.to_bits() || found.is_nan() && value.is_nan());
        }
    }
}
