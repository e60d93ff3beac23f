//! Counts the allocations of a prediction on the serving threads.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use outrigger_proto::{
    outrigger::v1::{Matrix, PredictRequest, Treatment, TreatmentTable, predict_request::User},
    raw::outrigger::prediction_service_client::PredictionServiceClient as RawClient,
};
use outrigger_testkit::{allocator::Reporting, saved_model::Linear};
use prost::Message as _;

// This test uses only a part of the module.
#[allow(dead_code)]
#[path = "it/stack.rs"]
mod stack;

use stack::{Stack, by_name, channel, features};

#[global_allocator]
static COUNTING: Reporting = Reporting { allocated: count, freed: |_| {} };

/// The allocations of serving threads.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a serving thread, by its name. A thread is named before its work starts.
fn serves() -> bool {
    let known = SERVES.get();
    if known {
        return true;
    }
    let mut name = [0_u8; 16];
    // SAFETY: the call writes at most 16 bytes, a name and a zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    SERVES.set(name.starts_with(b"serving-"));
    SERVES.get()
}

fn count(_: usize) {
    if serves() {
        COUNT.fetch_add(1, Relaxed);
    }
}

const NAME: &str = "offers/reference";
const TREATMENTS: usize = 1000;
const FEATURES: usize = 20;
const REQUESTS: usize = 50;

/// Starts a server with a model of 4 user features and 20 treatment features, as the reference
/// model has.
async fn stack(settings: &[(&str, &str)]) -> Stack {
    let few = [("server.threads", "1"), ("engine.connections", "1")];
    let stack = Stack::with(&[&few, settings].concat()).await;
    let wide = Linear { user: vec![1.0; 4], treatment: vec![1.0; FEATURES], bias: 0.0 };
    stack.publish(NAME, &wide.model()).await;
    stack
}

fn request() -> PredictRequest {
    let user = ["u0", "u1", "u2", "u3"].map(|name| (name, 0.5));
    PredictRequest {
        model: Some(by_name(NAME)),
        request_id: "request-1".to_owned(),
        user: Some(User::UserFeatures(features(&user))),
        ..Default::default()
    }
}

fn name(feature: usize) -> String {
    format!("t{feature}")
}

fn columnar() -> PredictRequest {
    let values = vec![0.5_f32.to_le_bytes(); TREATMENTS * FEATURES];
    let numbers = Matrix {
        names: (0..FEATURES).map(name).collect(),
        values: values.concat().into(),
        ..Default::default()
    };
    let ids = (0..TREATMENTS).map(|treatment| format!("treatment-{treatment}")).collect();
    let table = TreatmentTable { ids, numbers: Some(numbers), ..Default::default() };
    PredictRequest { treatment_table: Some(table), ..request() }
}

fn key_value() -> PredictRequest {
    let names: Vec<_> = (0..FEATURES).map(name).collect();
    let values: Vec<_> = names.iter().map(|name| (name.as_str(), 0.5)).collect();
    let features = features(&values).features;
    let treatment =
        |number| Treatment { id: format!("treatment-{number}"), features: features.clone() };
    PredictRequest { treatments: (0..TREATMENTS).map(treatment).collect(), ..request() }
}

/// The mean number of allocations of a request in the long run. It is not a whole number: some
/// allocations serve many requests at once, at irregular times.
#[allow(clippy::cast_precision_loss)]
async fn allocations(client: &mut RawClient<tonic::transport::Channel>, request: &[u8]) -> f64 {
    let request = bytes::Bytes::copy_from_slice(request);
    let mut before = 0;
    for number in 0..2 * REQUESTS {
        if number == REQUESTS {
            before = COUNT.load(Relaxed);
        }
        client.predict(request.clone()).await.expect("an answer");
    }
    (COUNT.load(Relaxed) - before) as f64 / REQUESTS as f64
}

#[tokio::test]
async fn a_prediction_allocates_a_few_dozen_times_however_many_treatments_it_has() {
    let stack = stack(&[]).await;
    let mut client = RawClient::new(channel(stack.addresses.grpc));
    let columnar = allocations(&mut client, &columnar().encode_to_vec()).await;
    let key_value = allocations(&mut client, &key_value().encode_to_vec()).await;
    println!("bench path-allocations {columnar:.0} allocations");
    println!("bench path-allocations-kv {key_value:.0} allocations");
    assert!(columnar < 66.5, "{columnar} of a columnar request");
    assert!(key_value < 77.5, "{key_value} of a key-value request");

    // The first server stops before the second starts, because all serving threads of the process
    // are counted.
    stack.tell_to_stop();
    stack.stopped().await.expect("it stops");
    let unsampled = [("traces.endpoint", "http://127.0.0.1:1"), ("traces.ratio", "0")];
    let stack = self::stack(&unsampled).await;
    let mut client = RawClient::new(channel(stack.addresses.grpc));
    let traced = allocations(&mut client, &self::columnar().encode_to_vec()).await;
    // One allocation for each request would be a difference of 1.
    assert!(traced < columnar + 0.5, "not sampled: {traced} instead of {columnar}");
}
