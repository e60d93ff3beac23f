//! How often memory is allocated for a request: a number that does not grow with
//! its treatments.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use outrigger_core::{Content, DType, Tensor};
use outrigger_features::{Limits, Metadata, Plan};
use outrigger_proto::outrigger::v1::{
    FeatureMap, Matrix, PredictRequest, ResponseOptions, TreatmentTable, Value,
    predict_request::User, value::Kind,
};
use prost::Message;
use serde_json::json;

const FEATURES: usize = 20;

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What some work returns, and how many allocations it takes.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = COUNT.get();
    let result = work();
    (result, COUNT.get() - before)
}

fn name(index: usize) -> String {
    format!("feature_{index:02}")
}

/// The user's features, and as many of treatments, in tensors of their own.
fn plan() -> Plan {
    let input = |entity: &str, count| {
        let features: Vec<_> =
            (0..count).map(|index| json!({"name": name(index), "required": true})).collect();
        json!({"tensor": entity, "entity": entity, "dtype": "float32", "features": features})
    };
    let metadata = json!({
        "schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [input("user", 4), input("treatment", FEATURES)],
        "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}],
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
    let numbers = Matrix {
        names: (0..FEATURES).map(name).collect(),
        values: vec![0; 4 * FEATURES * treatments].into(),
        ..Default::default()
    };
    let ids = (0..treatments).map(|index| format!("treatment-{index}")).collect();
    let table = TreatmentTable { ids, numbers: Some(numbers), ..Default::default() };
    PredictRequest { treatment_table: Some(table), ..request(options) }.encode_to_vec()
}

/// A treatment whose features stand in the order of their names.
#[derive(Clone, PartialEq, Message)]
struct Ordered {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(btree_map = "string, message", tag = "2")]
    features: std::collections::BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Treatments {
    #[prost(message, repeated, tag = "6")]
    treatments: Vec<Ordered>,
}

fn key_value(treatments: usize, options: ResponseOptions) -> Vec<u8> {
    let treatment = |index| {
        let id = format!("treatment-{index}");
        Ordered { id, features: features(FEATURES).collect() }
    };
    let treatments = Treatments { treatments: (0..treatments).map(treatment).collect() };
    [request(options).encode_to_vec(), treatments.encode_to_vec()].concat()
}

/// The allocations of packing a request, and of answering it.
fn path(request: &[u8], treatments: usize) -> (usize, usize) {
    let plan = plan();
    let content = Content::Bytes(vec![0; 4 * treatments].into());
    let shape = vec![1, treatments as i64];
    let outputs = [Tensor { name: "scores".into(), dtype: DType::Float32, shape, content }];
    let limits = Limits::default();
    let (packed, packing) = counted(|| plan.pack(&[request], &limits).expect("packs"));
    let (_, answering) = counted(|| plan.answer(&packed, &outputs, &[]).expect("answers").to_vec());
    (packing, answering)
}

/// Makes requests with no options, with ids, and with the ids of the best.
fn expect(request: fn(usize, ResponseOptions) -> Vec<u8>, expected: [(usize, usize); 3]) {
    let ids = ResponseOptions { treatment_ids: true, ..Default::default() };
    let best = ResponseOptions { top_k: 10, ..ids.clone() };
    for treatments in [100, 1000] {
        let options = [ResponseOptions::default(), ids.clone(), best.clone()];
        let found = options.map(|options| path(&request(treatments, options), treatments));
        assert_eq!(found, expected, "packing and answering {treatments} treatments");
    }
}

#[test]
fn a_columnar_request_takes_so_many() {
    expect(columnar, [(15, 3), (16, 3), (16, 6)]);
}

#[test]
fn a_key_value_request_takes_so_many() {
    expect(key_value, [(24, 3), (25, 3), (25, 6)]);
}
