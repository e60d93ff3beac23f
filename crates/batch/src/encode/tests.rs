use std::sync::Arc;

use arrow_array::{
    Array as _, ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array,
    ListArray, NullArray, StringArray,
    types::{Float32Type, Int64Type},
};
use outrigger_oip::DataType;

use super::*;

fn input(datatype: DataType, row: &[i64], columns: &[&str]) -> InputTensor {
    let columns = columns.iter().map(ToString::to_string).collect();
    InputTensor { name: "x".to_owned(), datatype, row: row.to_vec(), columns, is_optional: false }
}

fn table<const N: usize>(columns: [(&str, ArrayRef); N]) -> Rows {
    RecordBatch::try_from_iter(columns).expect("a table").into()
}

fn lists(rows: &[Option<Vec<Option<f32>>>]) -> ArrayRef {
    Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows.to_vec()))
}

fn list(values: &[f32]) -> Option<Vec<Option<f32>>> {
    Some(values.iter().copied().map(Some).collect())
}

fn singles(tensor: &Tensor) -> Vec<f32> {
    tensor.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn rows_that_no_tensor_holds_are_left_out_of_all() {
    let x = lists(&[
        list(&[1.0, 2.0]),
        None,
        list(&[3.0]),
        Some(vec![Some(4.0), None]),
        list(&[5.0, 6.0]),
    ]);
    let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4, 300]));
    let inputs = [input(DataType::Fp32, &[2], &["x"]), input(DataType::Uint8, &[], &["n"])];
    let encoded = encode(&table([("x", x), ("n", n)]), &inputs);
    assert_eq!((&encoded.rows[..], encoded.read), (&[0][..], 5));
    assert_eq!(singles(&encoded.tensors[0]), [1.0, 2.0]);
    assert_eq!((&encoded.tensors[1].shape[..], &encoded.tensors[1].data[..]), (&[1][..], &[1][..]));
    let reasons: Vec<_> = encoded.invalid.iter().map(|(row, reason)| (*row, &**reason)).collect();
    assert_eq!(
        reasons,
        [
            (1, "input x: a value is absent"),
            (2, "input x: 1 values do not fill a row of [2]"),
            (3, "input x: a value is absent"),
            (4, "input x: 300 is out of the range of UINT8"),
        ]
    );
    encoded.tensors.iter().for_each(|tensor| tensor.check().expect("a valid tensor"));
}

#[test]
fn booleans_are_zeros_and_ones_and_decimals_are_numbers() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let cents = Decimal128Array::from(vec![1_250, -1]).with_precision_and_scale(9, 2);
    let cents: ArrayRef = Arc::new(cents.expect("a type"));
    let ones: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let rows = table([("flag", flags), ("cents", cents), ("one", ones)]);
    let data = |datatype, column| {
        let encoded = encode(&rows, &[input(datatype, &[], &[column])]);
        (encoded.tensors[0].data.to_vec(), encoded.invalid.len())
    };
    let floats = |values: [f32; 2]| (values.map(f32::to_le_bytes).concat(), 0);
    assert_eq!(data(DataType::Fp32, "flag"), floats([1.0, 0.0]));
    assert_eq!(data(DataType::Uint8, "flag"), (vec![1, 0], 0));
    assert_eq!(data(DataType::Fp32, "cents"), floats([12.5, -0.01]));
    assert_eq!(
        data(DataType::Fp64, "cents"),
        ([12.5_f64, -0.01].map(f64::to_le_bytes).concat(), 0)
    );
    assert_eq!(data(DataType::Bool, "one"), (vec![1], 1));
    // A fraction is never an integer.
    assert_eq!(data(DataType::Int8, "cents"), (vec![], 2));
}

#[test]
fn integers_with_absent_values_may_be_floats() {
    let values: ArrayRef = Arc::new(Float64Array::from(vec![7.0, f64::NAN, 0.5, -3.0]));
    let decimal = Decimal128Array::from(vec![700, 0, 50, -300]).with_precision_and_scale(9, 2);
    let rows = table([("x", values), ("d", Arc::new(decimal.expect("a type")))]);
    let of = |column, is_optional| {
        let input = InputTensor { is_optional, ..input(DataType::Int8, &[], &[column]) };
        encode(&rows, &[input])
    };
    let found = of("x", true);
    assert_eq!((&found.rows[..], &found.tensors[0].data[..]), (&[0, 1, 3][..], &[7, 0, 253][..]));
    assert_eq!(&found.tensors[1].data[..], [1, 0, 1]);
    assert_eq!(of("x", false).rows, [0, 3]);
    assert_eq!(of("d", false).rows, [0, 1, 3]);
}

#[test]
fn a_column_without_a_type_has_no_values_and_too_large_a_number_is_none() {
    let none: ArrayRef = Arc::new(NullArray::new(2));
    let reals: ArrayRef = Arc::new(Float64Array::from(vec![1e39, f64::INFINITY]));
    let rows = table([("n", none), ("r", reals)]);
    let of = |column, is_optional| {
        let input = InputTensor { is_optional, ..input(DataType::Fp32, &[], &[column]) };
        encode(&rows, &[input])
    };
    let optional = of("n", true);
    assert_eq!((&optional.rows[..], &optional.tensors[1].data[..]), (&[0, 1][..], &[0, 0][..]));
    assert_eq!(of("n", false).invalid[1], (1, "input x: a value is absent".to_owned()));
    let large = of("r", false);
    assert_eq!(singles(&large.tensors[0]), [f32::INFINITY]);
    assert!(large.invalid[0].1.ends_with("is not a value of FP32"), "{:?}", large.invalid);
}

#[test]
fn malformed_rows_are_left_out() {
    let n: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), None]));
    let malformed = [1, 3].map(|row| (row, format!("fault {row}"))).to_vec();
    let rows = Rows { malformed, ..table([("n", n)]) };
    let inputs = [input(DataType::Int64, &[], &["n"])];
    let encoded = encode(&rows, &inputs);
    assert_eq!((&encoded.rows[..], encoded.read), (&[0, 2][..], 4));
    let invalid = [(1, "fault 1".to_owned()), (3, "fault 3".to_owned())];
    assert_eq!(encoded.invalid, invalid);
    let encoded = encode(&rows.slice(1, 2), &inputs);
    assert_eq!(
        (&encoded.rows[..], &encoded.invalid[..]),
        (&[1][..], &[(0, "fault 1".to_owned())][..])
    );
    assert_eq!(rows.after(2).malformed, [(1, "fault 3".to_owned())]);
}

#[test]
fn columns_are_joined_and_numbers_converted() {
    let a: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5]));
    let b: ArrayRef = Arc::new(Int64Array::from(vec![7, -8]));
    let encoded = encode(&table([("a", a), ("b", b)]), &[input(DataType::Fp32, &[2], &["b", "a"])]);
    assert_eq!(encoded.tensors[0].shape, [2, 2]);
    assert_eq!(singles(&encoded.tensors[0]), [7.0, 0.5, -8.0, 1.5]);
}

#[test]
fn texts_and_flags_have_their_forms() {
    let t: ArrayRef = Arc::new(StringArray::from(vec!["a", "", "数"]));
    let f: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
    let whole = table([("t", t), ("f", f)]);
    let inputs = [input(DataType::Bytes, &[1], &["t"]), input(DataType::Bool, &[1], &["f"])];
    // The rows of a slice are those of the whole table.
    let encoded = encode(&whole.slice(1, 2), &inputs);
    let [texts, flags] = &encoded.tensors[..] else { panic!("two tensors") };
    assert_eq!(texts.texts().collect::<Vec<_>>(), [&b""[..], "数".as_bytes()]);
    assert_eq!(&flags.data[..], [0, 1]);
    assert_eq!(flags.shape, [2, 1]);
}

#[test]
fn a_row_of_another_open_size_ends_the_batch() {
    let x = lists(&[None, list(&[1.0, 2.0]), list(&[3.0, 4.0]), list(&[5.0]), list(&[6.0])]);
    let whole = table([("x", x)]);
    let inputs = [input(DataType::Fp32, &[-1], &["x"])];
    let encoded = encode(&whole, &inputs);
    assert_eq!((&encoded.rows[..], encoded.read), (&[1, 2][..], 3));
    assert_eq!(encoded.tensors[0].shape, [2, 2]);
    let rest = encode(&whole.slice(3, 2), &inputs);
    assert_eq!((rest.read, &rest.tensors[0].shape[..]), (2, &[2, 1][..]));
    let pairs = encode(&whole, &[input(DataType::Fp32, &[-1, 2], &["x"])]);
    assert_eq!((pairs.read, &pairs.tensors[0].shape[..]), (5, &[2, 1, 2][..]));
    assert_eq!(pairs.invalid.len(), 3);
}

#[test]
fn nested_lists_are_flattened() {
    let inner = ListArray::from_iter_primitive::<Int64Type, _, _>(
        [[1, 2], [3, 4], [5, 6], [7, 8]].map(|pair| Some(pair.map(Some))),
    );
    let field = Arc::new(arrow_schema::Field::new_list_field(inner.data_type().clone(), true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([2, 2]);
    let outer: ArrayRef = Arc::new(ListArray::new(field, offsets, Arc::new(inner), None));
    let whole = table([("x", outer)]);
    let encoded = encode(&whole.slice(1, 1), &[input(DataType::Int64, &[2, 2], &["x"])]);
    let values: Vec<_> =
        encoded.tensors[0].data.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it)).collect();
    assert_eq!(values, [5, 6, 7, 8]);
    assert_eq!(encoded.tensors[0].shape, [1, 2, 2]);
}

#[test]
fn a_column_of_floats_is_copied() {
    let a: ArrayRef = Arc::new(Float32Array::from(vec![0.1, f32::NAN]));
    let encoded = encode(&table([("a", a)]), &[input(DataType::Fp32, &[1], &["a"])]);
    assert_eq!(singles(&encoded.tensors[0])[0], 0.1);
    assert!(singles(&encoded.tensors[0])[1].is_nan());
}

#[test]
fn rows_without_a_value_of_an_optional_input_are_named() {
    let optional = |input: InputTensor, name: &str| InputTensor {
        name: name.to_owned(),
        is_optional: true,
        ..input
    };
    let x = lists(&[list(&[1.0, 2.0]), None, list(&[3.0]), list(&[5.0, 6.0])]);
    let n: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(2), Some(3), Some(4)]));
    let t: ArrayRef = Arc::new(StringArray::from(vec![None, Some("a"), Some("b"), None]));
    let m: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let inputs = [
        optional(input(DataType::Fp32, &[2], &["x"]), "x"),
        optional(input(DataType::Int64, &[1], &["n"]), "n"),
        optional(input(DataType::Bytes, &[], &["t"]), "t"),
        optional(input(DataType::Fp32, &[1], &["m"]), "m"),
    ];
    let encoded = encode(&table([("x", x), ("n", n), ("t", t), ("m", m)]), &inputs);
    // The third row has a list of another length, which is not an absent one.
    assert_eq!(encoded.rows, [0, 1, 3]);
    assert_eq!(encoded.invalid.len(), 1);
    let names: Vec<_> = encoded.tensors.iter().map(|tensor| &*tensor.name).collect();
    assert_eq!(names, ["x", "present(x)", "n", "present(n)", "t", "present(t)", "m"]);
    assert_eq!(singles(&encoded.tensors[0]), [1.0, 2.0, 0.0, 0.0, 5.0, 6.0]);
    let present = |at: usize| encoded.tensors[at].data.to_vec();
    assert_eq!([present(1), present(3), present(5)], [[1, 0, 1], [0, 1, 1], [0, 1, 0]]);
    assert_eq!(&encoded.tensors[4].data[..], b"\0\0\0\0\x01\0\0\0a\0\0\0\0");
    encoded.tensors.iter().for_each(|tensor| tensor.check().expect("a valid tensor"));
}

#[test]
fn an_absent_list_of_any_length_is_as_long_as_those_before_it() {
    let open = InputTensor { is_optional: true, ..input(DataType::Fp32, &[-1], &["x"]) };
    let x = lists(&[list(&[1.0, 2.0]), None, list(&[3.0])]);
    let encoded = encode(&table([("x", x)]), std::slice::from_ref(&open));
    assert_eq!((&encoded.rows[..], encoded.read), (&[0, 1][..], 2));
    assert_eq!(encoded.tensors[0].shape, [2, 2]);
    assert_eq!(&encoded.tensors[1].data[..], [1, 0]);
    let first = encode(&table([("x", lists(&[None, list(&[1.0, 2.0])]))]), &[open]);
    assert_eq!((&first.rows[..], &first.tensors[0].shape[..]), (&[0][..], &[1, 1][..]));
}
