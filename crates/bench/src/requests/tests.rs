use std::path::PathBuf;

use outrigger_core::{Content, DType};
use outrigger_proto::outrigger::v1::PredictRequest;
use prost::Message as _;

use super::*;

const SHAPE: Shape = Shape { treatments: 50, users: 1, distinct: 3, seed: 1 };

/// A model with a feature of every kind.
fn everything() -> Plan {
    let json = include_bytes!("../../../features/tests/metadata/good/everything.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

/// The same requests in the three forms.
fn in_all_forms(plan: &Plan, shape: &Shape) -> [Vec<Request>; 3] {
    [Form::KeyValue, Form::Columnar, Form::Json]
        .map(|form| generate(plan, shape, form).expect("made").all)
}

#[test]
fn every_model_accepts_the_requests_generated_for_it() {
    let good = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../features/tests/metadata/good");
    for file in fs::read_dir(good).expect("there") {
        let path = file.expect("readable").path();
        let plan = read_plan(&path).expect("valid");
        for request in in_all_forms(&plan, &SHAPE).concat() {
            request.pack(&plan).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

#[test]
fn every_form_of_a_request_is_converted_to_the_same_tensors() {
    let plan = everything();
    let [key_values, columns, json] = in_all_forms(&plan, &SHAPE);
    for (index, one) in key_values.iter().enumerate() {
        let tensors = one.pack(&plan).expect("packs");
        assert_eq!(json[index].pack(&plan).expect("packs"), tensors);
        let of_table = columns[index].pack(&plan).expect("packs");
        // A table holds float64 features as float32.
        let same = |tensor: &&Tensor| tensor.dtype != DType::Float64;
        assert!(of_table.inputs.iter().filter(same).eq(tensors.inputs.iter().filter(same)));
    }
}

#[test]
fn requests_differ_and_a_seed_reproduces_them() {
    let plan = everything();
    let made = |seed| in_all_forms(&plan, &Shape { seed, ..SHAPE });
    let [first, ..] = made(1);
    assert!(first[0] != first[1] && first[1] != first[2]);
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
}

#[test]
fn keys_have_a_fixed_order_and_ids_differ_in_length() {
    let plan = everything();
    let [key_values, ..] = in_all_forms(&plan, &SHAPE);
    let Request::Encoded(users) = &key_values[0] else { panic!("encoded") };
    let request = PredictRequest::decode(users[0].clone()).expect("a message");
    assert_eq!(request.treatments.len(), 50);
    let lengths = request.treatments.iter().map(|treatment| treatment.id.len());
    assert!(lengths.clone().max() > lengths.min().map(|length| length + 3));
    // Features are encoded in the order of metadata.json, treatment by treatment.
    let names = plan.metadata().features_of(outrigger_features::metadata::Entity::Treatment);
    let names: Vec<_> = names.map(|(_, feature)| feature).collect();
    let position = |name: &[u8]| users[0].windows(name.len()).position(|at| at == name);
    let positions: Vec<_> = names.iter().map(|feature| position(feature.name.as_bytes())).collect();
    assert!(positions.is_sorted() && positions[0].is_some(), "{positions:?}");
}

#[test]
fn a_request_of_several_users_has_a_row_for_each() {
    let plan = everything();
    let [key_values, columns, _] = [Form::KeyValue, Form::Columnar, Form::KeyValue]
        .map(|form| generate(&plan, &Shape { users: 4, ..SHAPE }, form).expect("made").all);
    for request in [&key_values[0], &columns[0]] {
        let tensors = request.pack(&plan).expect("packs");
        assert!(tensors.inputs.iter().all(|tensor| tensor.shape[0] == 4));
        let strings = tensors.inputs.iter().find(|tensor| tensor.dtype == DType::String);
        let Content::Strings(texts) = &strings.expect("a tensor of strings").content else {
            panic!("strings")
        };
        assert!(texts.iter().all(|text| !text.is_empty()));
    }
    let batch = key_values[0].addressed(&ModelSelector::default());
    assert!(batch.len() > 4 * 1000);
}
