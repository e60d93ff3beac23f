//! Parquet files, hostile ones too.

use ::parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, Encoding},
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
    },
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, Decimal128Array, Decimal256Array, DictionaryArray, Float16Array,
    NullArray, RecordBatch, StringArray, UInt64Array,
    types::{Float16Type, Int32Type},
};
use arrow_buffer::i256;
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
    let options =
        ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let to = file.reopen().expect("a file");
    let mut writer =
        ArrowWriter::try_new_with_options(to, Arc::clone(&schema), options).expect("a writer");
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

#[test]
fn every_number_is_read_exactly() {
    let decimals = |digits, scale| {
        let values = Decimal128Array::from(vec![Some(1_250), None, Some(-1)]);
        Arc::new(values.with_precision_and_scale(digits, scale).expect("a type")) as ArrayRef
    };
    let wide = Decimal256Array::from(vec![i256::from_i128(1_250), i256::ZERO, i256::MINUS_ONE]);
    let wide = wide.with_precision_and_scale(60, 2).expect("a type");
    let halves = [12.5, 0.0, -0.5].map(<Float16Type as ArrowPrimitiveType>::Native::from_f32);
    let halves = Float16Array::from(halves.to_vec());
    let words = ["1250", "0", "-1"].into_iter().collect::<DictionaryArray<Int32Type>>();
    let large = Decimal128Array::from(vec![(1 << 53) + 1, 0, i128::from(u64::MAX)]);
    let large = large.with_precision_and_scale(38, 0).expect("a type");
    let cases: [(ArrayRef, [Cell; 2]); 8] = [
        (Arc::new(NullArray::new(3)), [Cell::Absent, Cell::Absent]),
        (Arc::new(large), [Cell::Integer((1 << 53) + 1), Cell::Unsigned(u64::MAX)]),
        (decimals(9, 2), [Cell::Real(12.5), Cell::Real(-0.01)]),
        (decimals(30, 2), [Cell::Real(12.5), Cell::Real(-0.01)]),
        (decimals(9, 0), [Cell::Integer(1_250), Cell::Integer(-1)]),
        (Arc::new(wide), [Cell::Real(12.5), Cell::Real(-0.01)]),
        (Arc::new(halves), [Cell::Single(12.5), Cell::Single(-0.5)]),
        (Arc::new(words), ["1250", "-1"].map(|word| Cell::Text(word.to_owned()))),
    ];
    for (array, expected) in cases {
        let of = array.data_type().clone();
        let file = written(WriterProperties::default(), field("a", of.clone()), array);
        let mut reader =
            Reader::open(&Root::Any, file.path(), Format::Parquet, LIMITS).expect("rows");
        assert_eq!(reader.left_out(), [], "{of}");
        let mut next =
            || reader.read().expect("readable").expect("a row").expect("a row").cells[0].clone();
        assert_eq!(
            [next(), {
                next();
                next()
            }],
            expected,
            "{of}"
        );
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
fn a_page_is_as_large_as_it_declares() {
    for compression in
        [Compression::GZIP(Default::default()), Compression::BROTLI(Default::default())]
    {
        let file = texts(compression, Encoding::PLAIN, vec!["x".repeat(100_000)]);
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
}

/// Texts as Parquet, without a dictionary.
fn texts(compression: Compression, encoding: Encoding, texts: Vec<String>) -> NamedTempFile {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_encoding(encoding)
        .build();
    let array: ArrayRef = Arc::new(StringArray::from(texts));
    written(properties, field("a", DataType::Utf8), array)
}

#[test]
fn texts_of_all_compressions_and_encodings_are_read() {
    let expected: Vec<_> = (0..3000).map(|row| "ab".repeat(row % 7) + &row.to_string()).collect();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ] {
        for encoding in
            [Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY]
        {
            let file = texts(compression, encoding, expected.clone());
            let reader = Reader::open(&Root::Any, file.path(), Format::Parquet, LIMITS);
            let mut reader = reader.expect("it opens");
            for text in &expected {
                let row = reader.read().expect("readable").expect("a row").expect("a row");
                assert_eq!(row.cells, [Cell::Text(text.clone())], "{compression} {encoding}");
            }
        }
    }
}

#[test]
fn texts_that_repeat_those_before_them_take_the_memory_of_all() {
    let size = LIMITS.pages as usize / 200;
    let file =
        texts(Compression::UNCOMPRESSED, Encoding::DELTA_BYTE_ARRAY, vec!["x".repeat(size); 300]);
    let length = file.as_file().metadata().expect("a file").len();
    assert!(length < LIMITS.pages / 20, "{length}");
    assert_eq!(failure(file.path()).problem, Problem::TooLarge);
    let few =
        texts(Compression::UNCOMPRESSED, Encoding::DELTA_BYTE_ARRAY, vec!["x".repeat(size); 100]);
    assert_eq!(count(few.path()), Ok(100));
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

/// A file without rows whose footer has these elements: each the number of its children, or a leaf.
fn with_schema(elements: &[u8]) -> Vec<u8> {
    // The version, and the list of elements.
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
    let count = elements.len();
    footer.extend([(count & 0x7f) as u8 | 0x80, (count >> 7) as u8]);
    for children in elements {
        match children {
            // A leaf is an optional INT32.
            0 => footer.extend(b"\x15\x02\x25\x02\x18\x01a\x00"),
            // A group is optional.
            _ => footer.extend([&b"\x35\x02\x18\x01g\x15"[..], &[2 * children, 0]].concat()),
        }
    }
    // No rows and no row groups.
    footer.extend([0x16, 0x00, 0x19, 0x0c, 0x00]);
    let length = (footer.len() as u32).to_le_bytes();
    [b"PAR1", &footer[..], &length[..], b"PAR1"].concat()
}

#[test]
fn groups_within_each_other_are_limited_before_the_library_reads_them() {
    let chain = |depth| [vec![1; depth], vec![0]].concat();
    let pairs = [vec![2; 63], vec![0; 64]].concat();
    let wide = [&[60][..], &[1, 0].repeat(60)].concat();
    for elements in [chain(64), pairs, wide] {
        let file = file(&with_schema(&elements));
        assert_eq!(count(file.path()), Ok(0), "{elements:?}");
        crate::Table::open(&Root::Any, file.path(), LIMITS).expect("it opens");
    }
    let last = [vec![2; 64], vec![1, 0], vec![0; 64]].concat();
    for elements in [chain(65), chain(1_366), chain(16_000), last] {
        let file = file(&with_schema(&elements));
        let of_table = crate::Table::open(&Root::Any, file.path(), LIMITS).expect_err("too deep");
        for error in [failure(file.path()), of_table] {
            assert!(error.message.contains("more than 64 groups"), "{error}");
        }
    }
    // A field that is unknown: a struct whose only field is a struct with such a field, and so on.
    let structs = [&b"PAR1"[..], &[0xfc; 30_000], &30_000_u32.to_le_bytes(), b"PAR1"].concat();
    let error = failure(file(&structs).path());
    assert!(error.message.contains("nested too deeply"), "{error}");
}

#[test]
fn the_schema_of_arrow_in_a_file_is_not_read() {
    // Base64 of no message of Arrow: the library refuses it where it reads it.
    let of_arrow = KeyValue::new("ARROW:schema".to_owned(), "AAAA".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![of_arrow]));
    let array: ArrayRef = Arc::new(UInt64Array::from(vec![1]));
    let file = written(properties.build(), field("id", DataType::UInt64), array);
    assert_eq!(count(file.path()), Ok(1));
    crate::Table::open(&Root::Any, file.path(), LIMITS).expect("it opens");
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

#[test]
fn parts_of_the_path_are_named_as_columns_that_are_not_read() {
    let (_, directory) = parquet(&[column("a", Kind::Integer)], &[vec![Cell::Integer(1)]]);
    let partition = directory.path().join("day=1/a=2");
    fs::create_dir_all(&partition).expect("directories");
    fs::rename(directory.path().join("a.parquet"), partition.join("a.parquet")).expect("moved");
    let path = partition.join("a.parquet");
    let reader = Reader::open(&Root::Any, &path, Format::Parquet, LIMITS).expect("it opens");
    let names: Vec<_> = reader.left_out().iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["day"]);
}
