use outrigger_core::{Content, Interface};
use outrigger_proto::outrigger::v1::{NumberList, PredictRequest, ResponseOptions, value::Kind};

use super::*;
use crate::{
    RawCall, RawPlan,
    fixtures::{
        floats, ints, longs, number, output, pack, request, treatment, user, wide, wide_joined,
    },
    limits::Limits,
};

/// A plan whose model declares these outputs and the input `numbers`.
fn with_interface(plan: Plan, outputs: Vec<TensorSpec>) -> Plan {
    let inputs = vec![spec("numbers", DType::Float32, Shape::of(&[-1, 2]))];
    let raw = RawPlan::new(Interface::new(inputs, outputs)).expect("known types");
    Plan { raw: Some(Box::new(raw)), ..plan }
}

fn spec(name: &str, dtype: DType, shape: Shape) -> TensorSpec {
    TensorSpec::new(name, dtype.into(), shape)
}

#[test]
fn outputs_are_as_large_as_the_run_or_the_answer_makes_them() {
    let outputs = [
        ("classes", DType::Float32, floats(&[0.5; 6]), [1, 3, 2]),
        ("moods", DType::Int32, ints(&[1; 3]), [1, 1, 3]),
        ("ranks", DType::Int64, longs(&[1; 3]), [1, 3, 1]),
    ];
    let specs = outputs.iter().map(|(name, dtype, ..)| spec(name, *dtype, Shape::Any)).collect();
    let plan = with_interface(wide(), specs);
    let asked = request(&[0.1, 0.2, 0.3]);
    let packed = pack(&plan, std::slice::from_ref(&asked)).expect("packs");
    // Six float32 twice; three int32 and three int64, each with a float32 and an int64.
    assert_eq!(plan.outputs_to_come(&packed), 6 * 8 + 3 * 16 + 3 * 20);
    // Without an interface, all are float32.
    assert_eq!(wide().outputs_to_come(&packed), 6 * 8 + 3 * 8 + 3 * 8);
    let tensors = outputs.map(|(name, dtype, content, shape)| Tensor {
        dtype,
        content,
        ..output(name, &shape, &[])
    });
    // One copy of the float32 is left.
    assert_eq!(plan.outputs_memory(&packed, &tensors), 6 * 4 + 3 * 16 + 3 * 20);

    let options =
        ResponseOptions { outputs: vec!["mood".to_owned()], ..ResponseOptions::default() };
    let mood = pack(&plan, &[PredictRequest { options: Some(options), ..asked }]).expect("packs");
    assert_eq!(plan.outputs_to_come(&mood), 3 * 16);
}

#[test]
fn joined_rows_are_those_of_all_users() {
    let embedding = Kind::Numbers(NumberList { values: vec![0.5, 1.0] });
    let request = |treatments: &[f32]| PredictRequest {
        user: Some(user([("embedding", embedding.clone())])),
        treatments: treatments
            .iter()
            .map(|it| treatment("t", [("discount", number(*it))]))
            .collect(),
        ..PredictRequest::default()
    };
    let plan = Plan::compile(wide_joined());
    let packed = pack(&plan, &[request(&[0.1]), request(&[0.2, 0.3])]).expect("packs");
    assert_eq!(plan.outputs_to_come(&packed), 3 * 3 * 8);
    let nothing = pack(&plan, &[request(&[])]).expect("packs");
    assert_eq!(plan.outputs_to_come(&nothing), 0);
}

#[test]
fn raw_outputs_have_the_sizes_of_the_interface() {
    let outputs = vec![
        spec("leaf", DType::Int32, Shape::of(&[-1, 7])),
        spec("one", DType::Float64, Shape::of(&[])),
        spec("open", DType::Float32, Shape::Any),
        spec("words", DType::String, Shape::of(&[-1])),
    ];
    let plan = with_interface(Plan::compile(wide_joined()), outputs);
    let inputs = vec![output("numbers", &[5, 2], &[0.0; 10])];
    let call = RawCall { inputs, outputs: Vec::new() };
    let packed = plan.pack_raw(&call, &Limits::default()).expect("packs");
    assert_eq!(plan.outputs_to_come(&packed), 2 * (5 * 7 * 4 + 8));
    // They are returned as they are.
    let content = Content::Bytes(vec![0; 140].into());
    let leaf = Tensor { dtype: DType::Int32, content, ..output("leaf", &[5, 7], &[]) };
    assert_eq!(plan.outputs_memory(&packed, &[leaf]), 140);
}
