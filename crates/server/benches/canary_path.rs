//! Measures the cost of a canary trial per request: two models in one server, which differ only in
//! the trial, are asked in turn. It counts the processor time of the serving thread, which depends
//! less on the machine's other load than wall time does. Several requests are in flight at a time,
//! so that the thread is not woken for each.
//!
//! Prints `bench canary-path <nanoseconds> ns` for each turn, and beside it the median for a
//! request without a trial.

#![allow(missing_docs)]

// This bench uses only a part of the module.
#[allow(dead_code)]
#[path = "../tests/it/stack.rs"]
mod stack;

use std::{fs, future::ready, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
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
/// Requests per round.
const REQUESTS: usize = 50;
/// Requests in flight at the same time.
const AT_A_TIME: usize = 16;
/// Rounds of each model in a turn. A round is shorter than a change of the machine's speed.
const ROUNDS: usize = 20;
const TURNS: usize = 25;

/// The canary gets half of the traffic, and the trial does not conclude during the bench.
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
    let client = RawClient::new(channel(stack.addresses.grpc));
    let (tried, alone) = (encoded(MODEL), encoded(ALONE));
    round(&client, &tried).await;
    stack.publish_as(MODEL, "latest_canary", &linear(1.0)).await;
    while !is_split(&stack).await {
        round(&client, &tried).await;
    }

    let mut wholes = Vec::new();
    for _ in 0..TURNS {
        let (mut with, mut without) = (0.0, 0.0);
        for number in 0..ROUNDS {
            // The order alternates, in case the first round costs more.
            if number % 2 == 0 {
                with += round(&client, &tried).await;
                without += round(&client, &alone).await;
            } else {
                without += round(&client, &alone).await;
                with += round(&client, &tried).await;
            }
        }
        let rounds = ROUNDS as f64;
        println!("bench canary-path {:.0} ns", (with - without) / rounds);
        wholes.push(without / rounds);
    }
    println!("bench canary-path-without {:.0} ns", median(wholes));
}

/// An encoded request without a routing key, so that each one counts in the trial.
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

/// Measures the serving thread's processor time per request, in nanoseconds.
async fn round(client: &Client, request: &Bytes) -> f64 {
    let before = serving();
    let answers = stream::iter(0..REQUESTS).map(|_| {
        let (mut client, request) = (client.clone(), request.clone());
        async move { client.predict(request).await }
    });
    let answered = answers.buffer_unordered(AT_A_TIME).map(|answer| answer.expect("an answer"));
    answered.for_each(|_| ready(())).await;
    (serving() - before).as_nanos() as f64 / REQUESTS as f64
}

/// The processor time of the serving thread, as the kernel counts it.
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
