//! The number of memory allocations per request, which must not grow with the number of
//! treatments.

use std::{collections::BTreeMap, ops::Range};

use outrigger_core::{Content, DType, Tensor};
use outrigger_features::{Limits, Metadata, Plan};
use outrigger_proto::outrigger::v1::{
    FeatureMap, IntegerColumn, Matrix, PredictRequest, ResponseOptions, TextColumn, TreatmentTable,
    Value, predict_request::User, value::Kind,
};
use outrigger_testkit::allocator::{self, Reporting};
use prost::Message;
use serde_json::{Value as Json, json};

const FEATURES: usize = 20;
/// The features of a model of several types: numbers, words of a vocabulary, hashed words
/// and integers.
const NUMBERS: usize = 12;
const WORDS: usize = 3;
const HASHED: usize = 3;
const INTEGERS: usize = 2;

#[global_allocator]
static COUNTING: Reporting = allocator::COUNTING;

/// Runs `work`; returns its result and the number of its allocations.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = allocator::allocations();
    let result = work();
    (result, allocator::allocations() - before)
}

fn name(index: usize) -> String {
    format!("feature_{index:02}")
}

/// A plan with the user's and the treatments' features in separate tensors.
fn plan() -> Plan {
    compiled(&[input("treatment", "treatment", "float32", 0..FEATURES, json!({}))])
}

/// A model of several types.
fn mixed_plan() -> Plan {
    let words = json!({"vocabulary": ["one", "two"], "out_of_vocabulary": 2});
    let [hashed, integers] = [NUMBERS + WORDS, NUMBERS + WORDS + HASHED];
    compiled(&[
        input("numbers", "treatment", "float32", 0..NUMBERS, json!({})),
        input("words", "treatment", "int64", NUMBERS..hashed, words),
        input("hashed", "treatment", "int64", hashed..integers, json!({"hash_buckets": 100})),
        input("integers", "treatment", "int64", integers..FEATURES, json!({})),
    ])
}

/// A model whose treatments are ranked by one of three columns.
fn wide_plan() -> Plan {
    let output = json!({
        "tensor": "scores", "name": "score", "kind": "per_treatment",
        "width": 3, "score": {"column": 1},
    });
    with_output(&[input("treatment", "treatment", "float32", 0..FEATURES, json!({}))], &output)
}

/// An input of required features; `more` is merged into each.
fn input(tensor: &str, entity: &str, dtype: &str, features: Range<usize>, more: Json) -> Json {
    let feature = |index| {
        let mut feature = json!({"name": name(index), "required": true});
        feature.as_object_mut()?.extend(more.as_object()?.clone());
        Some(feature)
    };
    let features: Vec<_> = features.map(feature).collect();
    json!({"tensor": tensor, "entity": entity, "dtype": dtype, "features": features})
}

fn compiled(of_treatments: &[Json]) -> Plan {
    let output = json!({"tensor": "scores", "name": "score", "kind": "per_treatment"});
    with_output(of_treatments, &output)
}

fn with_output(of_treatments: &[Json], output: &Json) -> Plan {
    let user = input("user", "user", "float32", 0..4, json!({}));
    let inputs: Vec<_> = [&[user], of_treatments].concat();
    let metadata = json!({
        "schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": inputs,
        "outputs": [output],
    });
    Plan::compile(Metadata::parse(metadata.to_string().as_bytes()).expect("valid"))
}

fn features(count: usize) -> impl Iterator<Item = (String, Value)> {
    (0..count).map(|index| (name(index), Value { kind: Some(Kind::Number(index as f32)) }))
}

fn request(options: ResponseOptions) -> PredictRequest {
    PredictRequest {
        request_id: "request-1".into(),
        user: Some(User::UserFeatures(FeatureMap { features: features(4).collect() })),
        options: Some(options),
        ..Default::default()
    }
}

fn columnar(treatments: usize, options: ResponseOptions) -> Vec<u8> {
    with_table(table((0..FEATURES).map(name).collect(), treatments), options)
}

/// Columns in another order than the plan's.
fn reordered(treatments: usize, options: ResponseOptions) -> Vec<u8> {
    with_table(table((0..FEATURES).rev().map(name).collect(), treatments), options)
}

/// Columns of several types.
fn mixed_columnar(treatments: usize, options: ResponseOptions) -> Vec<u8> {
    let text = |index| {
        let values = vec![word(index).to_owned(); treatments];
        TextColumn { name: name(index), values, ..Default::default() }
    };
    let integer = |index| {
        let values = vec![300; treatments];
        IntegerColumn { name: name(index), values, ..Default::default() }
    };
    let texts = (NUMBERS..NUMBERS + WORDS + HASHED).map(text).collect();
    let integers = (FEATURES - INTEGERS..FEATURES).map(integer).collect();
    let numbers = table((0..NUMBERS).map(name).collect(), treatments);
    with_table(TreatmentTable { texts, integers, ..numbers }, options)
}

/// Columns of numbers.
fn table(names: Vec<String>, treatments: usize) -> TreatmentTable {
    let values = vec![0; 4 * names.len() * treatments].into();
    let numbers = Some(Matrix { names, values, ..Default::default() });
    TreatmentTable { ids: ids(treatments), numbers, ..Default::default() }
}

fn with_table(table: TreatmentTable, options: ResponseOptions) -> Vec<u8> {
    PredictRequest { treatment_table: Some(table), ..request(options) }.encode_to_vec()
}

fn ids(treatments: usize) -> Vec<String> {
    (0..treatments).map(|index| format!("treatment-{index}")).collect()
}

/// A word; only some of the words are in the vocabulary.
fn word(index: usize) -> &'static str {
    ["one", "two", "many"][index % 3]
}

/// A treatment whose features stand in the order of their names.
#[derive(Clone, PartialEq, Message)]
struct Ordered {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(btree_map = "string, message", tag = "2")]
    features: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Treatments {
    #[prost(message, repeated, tag = "6")]
    treatments: Vec<Ordered>,
}

fn key_value(treatments: usize, options: ResponseOptions) -> Vec<u8> {
    with_treatments(treatments, options, features(FEATURES).collect())
}

/// Treatments with features of several types.
fn mixed_key_value(treatments: usize, options: ResponseOptions) -> Vec<u8> {
    let feature = |(index, (name, number)): (usize, (String, Value))| {
        let kind = match index {
            0..NUMBERS => return (name, number),
            _ if index < FEATURES - INTEGERS => Kind::Text(word(index).into()),
            _ => Kind::Integer(300),
        };
        (name, Value { kind: Some(kind) })
    };
    with_treatments(treatments, options, features(FEATURES).enumerate().map(feature).collect())
}

fn with_treatments(
    treatments: usize,
    options: ResponseOptions,
    features: BTreeMap<String, Value>,
) -> Vec<u8> {
    let treatment = |id| Ordered { id, features: features.clone() };
    let treatments = ids(treatments).into_iter().map(treatment).collect();
    [request(options).encode_to_vec(), Treatments { treatments }.encode_to_vec()].concat()
}

/// The number of allocations to pack a request, and to answer it.
fn path(plan: &Plan, request: &[u8], treatments: usize) -> (usize, usize) {
    let width = plan.metadata().outputs[0].width;
    let content = Content::Bytes(vec![0; 4 * treatments * width].into());
    let shape = vec![1, treatments as i64, width as i64];
    let outputs = [Tensor { name: "scores".into(), dtype: DType::Float32, shape, content }];
    let limits = Limits::default();
    let (packed, packing) = counted(|| plan.pack(&[request], &limits).expect("packs"));
    let (_, answering) = counted(|| plan.answer(&packed, &outputs, &[]).expect("answers").to_vec());
    (packing, answering)
}

/// Makes requests with no options, with ids, and with the ids of the best.
fn expect(
    plan: &Plan,
    request: fn(usize, ResponseOptions) -> Vec<u8>,
    expected: [(usize, usize); 3],
) {
    let ids = ResponseOptions { treatment_ids: true, ..Default::default() };
    let best = ResponseOptions { top_k: 10, ..ids.clone() };
    for treatments in [100, 1000] {
        let options = [ResponseOptions::default(), ids.clone(), best.clone()];
        let found = options.map(|options| path(plan, &request(treatments, options), treatments));
        assert_eq!(found, expected, "packing and answering {treatments} treatments");
    }
}

#[test]
fn a_columnar_request_takes_so_many() {
    expect(&plan(), columnar, [(16, 3), (19, 3), (19, 6)]);
}

#[test]
fn a_key_value_request_takes_so_many() {
    expect(&plan(), key_value, [(25, 3), (28, 3), (28, 6)]);
}

#[test]
fn columns_in_another_order_take_no_more() {
    expect(&plan(), reordered, [(16, 3), (19, 3), (19, 6)]);
}

#[test]
fn a_columnar_request_of_several_types_takes_so_many() {
    expect(&mixed_plan(), mixed_columnar, [(36, 3), (39, 3), (39, 6)]);
}

#[test]
fn a_key_value_request_of_several_types_takes_so_many() {
    expect(&mixed_plan(), mixed_key_value, [(41, 3), (44, 3), (44, 6)]);
}

#[test]
fn outputs_of_several_columns_take_one_more_to_be_ranked() {
    expect(&wide_plan(), columnar, [(16, 3), (19, 3), (19, 7)]);
}
