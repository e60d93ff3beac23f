use arrow_schema::Field;
use outrigger_tables::{Leaf, TextColumn};

use super::*;

fn schema() -> Schema {
    let list = |of| ArrowType::new_list(of, true);
    Schema::new(vec![
        Field::new("id", ArrowType::Int64, false),
        Field::new("x", list(ArrowType::Float32), true),
        Field::new("a", ArrowType::Float64, true),
        Field::new("b", ArrowType::Int32, true),
        Field::new("text", ArrowType::Utf8, true),
        TextColumn::of("home", Leaf::Json).field(),
        Field::new_struct("car", vec![Field::new("age", ArrowType::Int64, true)], true),
    ])
}

fn tensor(name: &str, datatype: &str, shape: &[i64]) -> TensorMetadata {
    TensorMetadata { name: name.to_owned(), datatype: datatype.to_owned(), shape: shape.to_vec() }
}

fn columns_of(columns: &[&str]) -> Source {
    Source { columns: columns.iter().map(ToString::to_string).collect(), ..Source::default() }
}

fn sources<const N: usize>(sources: [(&str, Source); N]) -> BTreeMap<String, Source> {
    sources.map(|(name, source)| (name.to_owned(), source)).into()
}

/// The inputs of a file with these columns.
fn inputs_of(
    described: (&[TensorMetadata], &BTreeSet<String>),
    of: &BTreeMap<String, Source>,
) -> Result<Vec<InputTensor>, Error> {
    present_inputs(resolve_inputs(described, of)?, of, &schema())
}

fn refused(described: &[TensorMetadata], of: BTreeMap<String, Source>, fault: &str) {
    match inputs_of((described, &BTreeSet::new()), &of) {
        Err(Error::Usage(message)) if message.contains(fault) => {}
        other => panic!("{fault}: {other:?}"),
    }
}

#[test]
fn inputs_are_found_by_their_names_or_by_the_job() {
    let described = [tensor("x", "FP32", &[-1, 4]), tensor("t", "BYTES", &[-1, 1])];
    let of = sources([("t", columns_of(&["text"]))]);
    let inputs = inputs_of((&described, &BTreeSet::new()), &of).expect("they match");
    assert_eq!(inputs[0].columns, ["x"]);
    assert_eq!((&inputs[0].row[..], inputs[0].datatype), (&[4][..], DataType::Fp32));
    assert_eq!(inputs[1].columns, ["text"]);
    let keys = resolve_keys(None, &inputs, &schema()).expect("keys");
    assert_eq!(keys, ["id", "a", "b", "home", "car"]);
}

#[test]
fn a_job_describes_what_hosts_do_not() {
    let source =
        Source { datatype: Some(DataType::Fp32), shape: Some(vec![2]), ..columns_of(&["a", "b"]) };
    let inputs = resolve_inputs((&[], &BTreeSet::new()), &sources([("x", source)]));
    let inputs = inputs.expect("described");
    assert_eq!(
        (&inputs[0].row[..], &inputs[0].columns[..]),
        (&[2][..], &["a", "b"].map(String::from)[..])
    );
    refused(&[], BTreeMap::new(), "do not describe");
    refused(&[], sources([("x", columns_of(&["a"]))]), "needs a datatype");
}

#[test]
fn an_optional_input_without_a_column_is_left_out() {
    let described =
        [tensor("a", "FP32", &[-1, 1]), tensor("q", "FP32", &[-1, 1]), tensor("r", "FP32", &[-1])];
    let optional = ["a", "q", "r"].map(str::to_owned).into();
    let of = sources([("r", columns_of(&["b"]))]);
    let inputs = inputs_of((&described, &optional), &of).expect("they match");
    let found: Vec<_> = inputs.iter().map(|input| (&*input.name, input.is_optional)).collect();
    assert_eq!(found, [("a", true), ("r", true)]);
    // One that the job names must be there, and so must one at least.
    let of = sources([("r", columns_of(&["c"]))]);
    let refused = |described: &[TensorMetadata], of| {
        inputs_of((described, &optional), of).expect_err("refused").to_string()
    };
    assert!(refused(&described, &of).contains("no column \"c\""));
    assert!(refused(&described[1..2], &BTreeMap::new()).contains("no column of an input"));
    for (name, column) in [("home.zip.code", "home"), ("car.age", "car")] {
        let optional = [name.to_owned(), "a".to_owned()].into();
        let described = [tensor("a", "FP32", &[-1]), tensor(name, "FP32", &[-1])];
        let found = inputs_of((&described, &optional), &BTreeMap::new()).expect_err("in objects");
        assert!(found.to_string().contains(&format!("{column:?} has objects")), "{found}");
    }
    let apart = [tensor("a", "FP32", &[-1]), tensor("text.x", "FP32", &[-1])];
    let optional = ["text.x".to_owned()].into();
    assert!(inputs_of((&apart, &optional), &BTreeMap::new()).is_ok());
}

#[test]
fn columns_that_may_be_meant_for_inputs_without_one_are_named() {
    let names = ["A", "text.x", "b", "Other"];
    let described = names.map(|name| tensor(name, "FP32", &[-1]));
    let optional = names.map(str::to_owned).into();
    let remarks_of = |of| {
        let inputs = resolve_inputs((&described, &optional), &of).expect("inputs");
        remarks(&inputs, &of, &schema())
    };
    let of_case = "the column \"a\" is no input; the input \"A\" has no column";
    let of_part = "the column \"text\" is no input; the input \"text.x\" has no column";
    assert_eq!(remarks_of(BTreeMap::new()), [of_case, of_part]);
    let named = sources([("A", columns_of(&["x"])), ("Other", columns_of(&["text"]))]);
    assert_eq!(remarks_of(named), Vec::<String>::new());
}

#[test]
fn every_number_and_boolean_fits_a_number() {
    let decimal = ArrowType::Decimal128(9, 2);
    for of in [ArrowType::Boolean, ArrowType::Float16, ArrowType::UInt64, decimal.clone()] {
        assert!(fits(&of, DataType::Fp32) && fits(&of, DataType::Fp64), "{of}");
    }
    assert!(fits(&ArrowType::Boolean, DataType::Int32) && fits(&ArrowType::Int8, DataType::Bool));
    assert!(fits(&decimal, DataType::Int32) && !fits(&ArrowType::Date32, DataType::Fp32));
    assert!(fits(&ArrowType::Null, DataType::Fp32) && fits(&ArrowType::Null, DataType::Bytes));
    assert!(!fits(&ArrowType::Utf8, DataType::Fp32) && fits(&ArrowType::Float32, DataType::Bool));
}

#[test]
fn faults_are_found_before_the_first_row() {
    let x = tensor("x", "FP32", &[-1, 4]);
    refused(
        std::slice::from_ref(&x),
        sources([("y", columns_of(&["a"]))]),
        "no input \"y\"; it has x",
    );
    refused(&[tensor("q", "FP32", &[-1])], BTreeMap::new(), "no column \"q\"");
    refused(&[tensor("text", "FP32", &[-1])], BTreeMap::new(), "takes FP32");
    refused(&[tensor("text", "INT64", &[-1])], BTreeMap::new(), "takes INT64");
    refused(&[tensor("a", "FP32", &[8, 1])], BTreeMap::new(), "does not begin");
    refused(&[tensor("a", "FP9", &[-1])], BTreeMap::new(), "none of the protocol");
    refused(&[tensor("x", "FP32", &[-1, -1, -1])], BTreeMap::new(), "several sizes");
    refused(&[x], sources([("x", columns_of(&["x", "a"]))]), "has lists");
}

#[test]
fn an_output_and_a_key_have_different_names() {
    let output = OutputColumn {
        column: "score".to_owned(),
        tensor: "one".to_owned(),
        datatype: DataType::Fp32,
        depth: 0,
        sizes: Vec::new(),
        is_json: false,
    };
    assert_eq!(check_columns_apart(std::slice::from_ref(&output), &["id".to_owned()]), Ok(()));
    let clash = check_columns_apart(&[output], &["score".to_owned()]);
    assert!(matches!(clash, Err(Error::Usage(message)) if message.contains("another one")));
}
