//! What a canary on trial costs a request: two models in one server, alike but for
//! the trial, are asked in turn. Counted is the processor time of the thread that
//! serves, which depends less than time does on what else the machine is doing.
//!
//! Prints `bench canary-path <nanoseconds> ns`, the median of many rounds, and the
//! whole request beside it.

#![allow(missing_docs)]

// The tests use the rest of it.
#[allow(dead_code)]
#[path = "../tests/it/stack.rs"]
mod stack;

use std::{fs, time::Duration};

use bytes::Bytes;
use outrigger_proto::{
    outrigger::v1::{
        ListCanariesRequest, PredictRequest, canary::Phase,
        canary_service_client::CanaryServiceClient,
    },
    raw::outrigger::prediction_service_client::PredictionServiceClient as RawClient,
};
use prost::Message as _;
use stack::{MODEL, Stack, by_name, channel, linear, request};
use tonic::transport::Channel;

type Client = RawClient<Channel>;

/// A model without a trial.
const ALONE: &str = "offers/alone";
/// Requests in a round, and rounds of each model.
const REQUESTS: usize = 500;
const ROUNDS: usize = 100;

/// Half of the traffic for as long as it takes: nothing of it is decided.
const SETTINGS: &str = r#"{
    "minimumTime": "3600s", "warmUp": {"requests": 100}, "ramp": {"share": 0.5},
    "signals": {"latency": {"limits": {"tolerance": 100, "margin": 1000}}}
}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let stack = Stack::with(&[
        ("server.threads", "1"),
        ("canary.defaults", SETTINGS),
        ("images.poll_interval", "1s"),
    ])
    .await;
    stack.publish(ALONE, &linear(0.0)).await;
    let mut client = RawClient::new(channel(stack.addresses.grpc));
    let (tried, alone) = (encoded(MODEL), encoded(ALONE));
    round(&mut client, &tried).await;
    stack.publish_as(MODEL, "latest_canary", &linear(1.0)).await;
    while !is_split(&stack).await {
        round(&mut client, &tried).await;
    }

    let (mut costs, mut wholes) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        // Whichever comes first may be the dearer one.
        let (with, without) = if number % 2 == 0 {
            let with = round(&mut client, &tried).await;
            (with, round(&mut client, &alone).await)
        } else {
            let without = round(&mut client, &alone).await;
            (round(&mut client, &tried).await, without)
        };
        costs.push(with - without);
        wholes.push(without);
    }
    println!("bench canary-path {:.0} ns", median(costs));
    println!("bench canary-path-without {:.0} ns", median(wholes));
}

/// A request without a key: each of them counts in the trial.
fn encoded(model: &str) -> Bytes {
    let request =
        PredictRequest { model: Some(by_name(model)), ..request(&[(1.0, 2.0), (3.0, 4.0)]) };
    request.encode_to_vec().into()
}

async fn is_split(stack: &Stack) -> bool {
    let asked = ListCanariesRequest { model: MODEL.to_owned() };
    let mut canaries = CanaryServiceClient::new(channel(stack.addresses.grpc));
    let seen = canaries.list_canaries(asked).await.expect("canaries").into_inner();
    seen.canaries.iter().any(|canary| canary.phase() == Phase::Split)
}

/// Nanoseconds of the serving thread that a request takes.
async fn round(client: &mut Client, request: &Bytes) -> f64 {
    let before = serving();
    for _ in 0..REQUESTS {
        client.predict(request.clone()).await.expect("an answer");
    }
    (serving() - before).as_nanos() as f64 / REQUESTS as f64
}

/// How long the serving thread has run, as the kernel counts it.
fn serving() -> Duration {
    let threads = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        let times = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let ran = times.split(' ').next()?.parse::<u64>().ok()?;
        name.starts_with("serving-").then_some(ran)
    });
    Duration::from_nanos(nanoseconds.sum())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
