//! Measures the memory that predictions hold while the engine works on them.

use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use outrigger_proto::{
    outrigger::v1::{PredictRequest, Treatment, Value, value::Kind},
    raw::outrigger::prediction_service_client::PredictionServiceClient as RawClient,
};
use outrigger_testkit::allocator::Reporting;
use prost::Message as _;

// This test uses only a part of the module.
#[allow(dead_code)]
#[path = "it/stack.rs"]
mod stack;

use stack::{Stack, channel, hold, request};

#[global_allocator]
static COUNTING: Reporting =
    Reporting { allocated: |size| count(size, 1), freed: |size| count(size, -1) };

/// The blocks in use that are at least as large as a request.
static LARGE: AtomicIsize = AtomicIsize::new(0);
const LARGE_FROM: usize = 1 << 20;

fn count(size: usize, blocks: isize) {
    if size >= LARGE_FROM {
        LARGE.fetch_add(blocks, Relaxed);
    }
}

/// A request of megabytes that packs to tensors of kilobytes, because the model has no feature for
/// the remarks.
fn remarked() -> PredictRequest {
    let remark = Value { kind: Some(Kind::Text("x".repeat(3000))) };
    let remarked = |mut treatment: Treatment| {
        treatment.features.insert("remark".to_owned(), remark.clone());
        treatment
    };
    let request = request(&[(1.0, 1.0); 1000]);
    PredictRequest { treatments: request.treatments.into_iter().map(remarked).collect(), ..request }
}

#[tokio::test]
async fn requests_go_once_they_are_tensors() {
    const HELD: usize = 20;
    let stack = Stack::start().await;
    let client = RawClient::new(channel(stack.addresses.grpc));
    let request = bytes::Bytes::from(remarked().encode_to_vec());
    assert!(request.len() > 2 * LARGE_FROM);
    // The server keeps the first requests, to warm up the next version with them.
    for _ in 0..16 {
        client.clone().predict(request.clone()).await.expect("an answer");
    }
    let before = LARGE.load(Relaxed);
    let (gate, mut arrivals) = hold(&stack);
    let asked: Vec<_> = (0..HELD)
        .map(|_| {
            let (mut client, request) = (client.clone(), request.clone());
            tokio::spawn(async move { client.predict(request).await })
        })
        .collect();
    for _ in 0..HELD {
        arrivals.recv().await.expect("it comes to the engine");
    }
    let kept = LARGE.load(Relaxed) - before;
    // The margin allows for buffers of connections that have grown.
    assert!(kept <= 6, "{kept} blocks of megabytes for {HELD} requests in flight");
    gate.open();
    for asked in asked {
        // The engine's answer covers only one treatment.
        let status = asked.await.expect("it runs").expect_err("too few scores");
        assert_eq!(stack::reason(&status), "SCORES_INVALID");
    }
}
