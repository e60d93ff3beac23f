use outrigger_core::Reason;
use serde_json::json;

use super::*;
use crate::{Arrived, Metadata};

/// A plan of trees with a factorisation machine, with outputs of one and of two columns.
fn plan() -> Plan {
    let input = |tensor: &str| {
        json!({
            "tensor": tensor, "weights": format!("{tensor}_weights"),
            "lengths": format!("{tensor}_lengths"), "entity": "joined", "dtype": "int64",
            "features": [{"name": tensor, "entity": "treatment", "max": 2, "default": []}],
        })
    };
    compiled(json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "gbdt_fm",
        "inputs": [input("trees"), input("machine")],
        "outputs": [
            {"tensor": "score", "name": "score", "kind": "per_treatment"},
            {"tensor": "leaf", "name": "leaves", "kind": "per_treatment", "width": 2,
             "score": {"column": 0}},
        ],
    }))
}

fn compiled(metadata: serde_json::Value) -> Plan {
    Plan::compile(Metadata::parse(metadata.to_string().as_bytes()).expect("valid"))
}

fn input(tensor: &'static str, rows: &[&[(u64, f32)]]) -> GivenInput {
    let all = || rows.iter().copied().flatten();
    GivenInput {
        tensor,
        ids: all().flat_map(|(id, _)| id.to_le_bytes()).collect(),
        weights: all().flat_map(|(_, weight)| weight.to_le_bytes()).collect(),
        lengths: rows.iter().flat_map(|row| (row.len() as i64).to_le_bytes()).collect(),
    }
}

fn given(inputs: Vec<GivenInput>, rows: usize) -> GivenRows {
    GivenRows { rows, inputs, number: None, output: "score" }
}

/// More ids than the list of the metadata has room for: that limit is for the named feature.
fn two_rows() -> GivenRows {
    let trees: &[&[(u64, f32)]] = &[&[(u64::MAX, 1.0), (7, 2.0), (7, f32::NAN)], &[]];
    given(vec![input("machine", &[&[], &[(1, 0.5)]]), input("trees", trees)], 2)
}

#[test]
fn a_number_is_a_tensor_of_its_own() {
    let given = GivenRows { number: Some(("limit", -7)), ..two_rows() };
    let packed = pack(&plan(), &given).expect("rows");
    let (number, rows) = packed.tensors.split_last().expect("tensors");
    assert_eq!(rows, pack(&plan(), &two_rows()).expect("rows").tensors);
    assert_eq!((&*number.name, number.dtype, &number.shape[..]), ("limit", DType::Int64, &[1][..]));
    assert_eq!(number.content, Content::Bytes((-7_i64).to_le_bytes().to_vec().into()));
}

fn pack(plan: &Plan, given: &GivenRows) -> Result<Packed, Failure> {
    plan.pack_given(given, &Limits::default())
}

#[test]
fn rows_become_the_tensors_of_the_model_without_a_copy() {
    let (plan, given) = (plan(), two_rows());
    let packed = pack(&plan, &given).expect("rows");
    let names: Vec<_> = packed.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    assert!(names.iter().eq(plan.input_names()), "{names:?}");
    let shapes: Vec<_> = packed.tensors.iter().map(|tensor| tensor.shape[0]).collect();
    assert_eq!(shapes, [3, 1, 3, 2, 1, 2]);
    let Content::Bytes(ids) = &packed.tensors[0].content else { panic!("strings") };
    assert_eq!(ids.as_ptr(), given.inputs[1].ids.as_ptr());
    assert_eq!((packed.treatments, packed.users[0].requested), (2, 2));
    assert!(packed.needs_engine());
}

#[test]
fn rows_can_be_packed_again_as_they_arrived() {
    let (plan, limits) = (plan(), Limits::default());
    let arrived = Arrived::Rows(two_rows());
    assert_eq!(arrived.size(), two_rows().size());
    assert_eq!(plan.pack_arrived(&arrived.copied(), &limits), pack(&plan, &two_rows()));
    assert_eq!(plan.sent(&arrived, &[], 0, &limits), Ok(None), "they have no named features");
}

#[test]
fn no_rows_need_no_engine() {
    let plan = plan();
    let packed = pack(&plan, &given(vec![input("machine", &[]), input("trees", &[])], 0));
    let packed = packed.expect("rows");
    assert!(!packed.needs_engine());
    let scores = plan.given_scores(&packed, &[]).expect("scores");
    assert_eq!((scores.width, scores.floats.len()), (1, 0));
}

#[test]
fn the_answer_is_the_output_that_was_asked_for() {
    let plan = plan();
    let packed = pack(&plan, &GivenRows { output: "leaf", ..two_rows() }).expect("rows");
    assert!(plan.output_names(&packed).iter().map(|name| &**name).eq(["leaf"]));
    let leaves = [3_i32, 1 << 25, 5, 6].iter().flat_map(|leaf| leaf.to_le_bytes());
    let content = Content::Bytes(leaves.collect());
    let leaf = Tensor { name: "leaf".into(), dtype: DType::Int32, shape: vec![2, 2], content };
    let outputs = [leaf];
    let scores = plan.given_scores(&packed, &outputs).expect("scores");
    assert_eq!((scores.width, scores.integers), (2, vec![3, 1 << 25, 5, 6]));
    let failure = plan.given_scores(&packed, &[]).expect_err("no output");
    assert_eq!(failure.reason, Reason::ScoresInvalid);
}

#[test]
fn rows_that_do_not_fit_the_model_are_refused() {
    let (trees, machine) = (|| input("trees", &[&[]]), || input("machine", &[&[]]));
    let other = |rows| given(vec![trees(), machine(), input("other", rows)], 1);
    assert!(pack(&plan(), &other(&[&[]])).is_ok(), "no id of it would be lost");
    let unnamed = GivenRows { output: "margin", ..given(vec![trees(), machine()], 1) };
    for (given, problem) in [
        (other(&[&[(1, 1.0)]]), r#"the model has no input "other""#),
        (given(vec![trees()], 1), r#"the model takes "machine" too"#),
        (unnamed, r#"no output of "margin", it has ["score", "leaf"]"#),
    ] {
        let failure = pack(&plan(), &given).expect_err(problem);
        assert_eq!(failure.reason, Reason::RequestMalformed);
        assert!(failure.message.contains(problem), "{failure}");
    }
    let failure = pack(&crate::fixtures::plan(), &two_rows()).expect_err("other inputs");
    assert!(failure.message.contains("takes no rows of ids"), "{failure}");
}

#[test]
fn rows_over_a_limit_are_refused() {
    let (plan, given) = (plan(), two_rows());
    let size = given.size();
    let limits =
        |rows, bytes| Limits { max_treatments: rows, max_tensor_bytes: bytes, ..Limits::default() };
    for (limits, reason) in [
        (limits(2, size), None),
        (limits(1, size), Some(Reason::TooManyTreatments)),
        (limits(2, size - 1), Some(Reason::TooLarge)),
    ] {
        let packed = plan.pack_given(&given, &limits);
        assert_eq!(packed.err().map(|failure| failure.reason), reason);
    }
}
