use arrow_schema::Field;

use super::*;

fn schema() -> Schema {
    let list = |of| ArrowType::new_list(of, true);
    Schema::new(vec![
        Field::new("id", ArrowType::Int64, false),
        Field::new("x", list(ArrowType::Float32), true),
        Field::new("a", ArrowType::Float64, true),
        Field::new("b", ArrowType::Int32, true),
        Field::new("text", ArrowType::Utf8, true),
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
    assert_eq!(keys, ["id", "a", "b"]);
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
    refused(&[tensor("a", "INT64", &[-1])], BTreeMap::new(), "takes INT64");
    refused(&[tensor("a", "FP32", &[8, 1])], BTreeMap::new(), "does not begin");
    refused(&[tensor("a", "FP9", &[-1])], BTreeMap::new(), "none of the protocol");
    refused(&[tensor("x", "FP32", &[-1, -1, -1])], BTreeMap::new(), "several sizes");
    refused(&[x], sources([("x", columns_of(&["x", "a"]))]), "has lists");
}

#[test]
fn outputs_are_columns_of_values_or_lists() {
    let output = |name: &str, shape: &[i64]| Tensor {
        name: name.into(),
        datatype: DataType::Fp32,
        shape: shape.to_vec(),
        data: vec![0; 4 * shape.iter().product::<i64>() as usize].into(),
    };
    let answer = [
        output("s", &[2]),
        output("one", &[2, 1]),
        output("open", &[2, 1]),
        output("grid", &[2, 3, 4]),
    ];
    let outputs = vec![tensor("open", "FP32", &[-1, -1])];
    let metadata = ModelMetadata { outputs, ..ModelMetadata::default() };
    let columns = resolve_outputs(&BTreeMap::new(), &[], (&answer, &metadata)).expect("columns");
    assert_eq!(columns.iter().map(|column| column.depth).collect::<Vec<_>>(), [0, 0, 1, 2]);
    let wanted = BTreeMap::from([("score".to_owned(), "one".to_owned())]);
    let columns = resolve_outputs(&wanted, &[], (&answer, &metadata)).expect("columns");
    assert_eq!((columns.len(), &*columns[0].column), (1, "score"));
    let clash = resolve_outputs(&wanted, &["score".to_owned()], (&answer, &metadata));
    assert!(matches!(clash, Err(Error::Usage(message)) if message.contains("another one")));
    let unknown = BTreeMap::from([("score".to_owned(), "two".to_owned())]);
    assert!(check_outputs(&unknown, &metadata.outputs).is_err());
    assert!(check_outputs(&unknown, &[]).is_ok(), "the host does not describe outputs");
}
