//! Checks 38, 39 and 46: hosts that fail, refuse or answer late.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use outrigger_oip_client::{Backoff, Class, Config, EjectionSettings, ModelRef, Place};
use outrigger_testkit::oip::{Answer, Protocol, Server, identity};
use tokio::time::Instant;

use crate::harness::{config, connect, fault, grpc, request, soon, values};

#[tokio::test]
async fn check_38_a_host_that_is_ready_and_fails_every_call_is_ejected() {
    let good = Server::start(Protocol::Http1, identity::json).await;
    let bad = Server::start(Protocol::Http1, |seen| match seen.call.ends_with("/ready") {
        true => Answer::of(200, None, ""),
        false => Answer::json(500, r#"{"error":"Stub process is not healthy"}"#),
    })
    .await;
    let hour = Duration::from_secs(3600);
    let pause = Backoff { first: hour, most: hour };
    let ejection = EjectionSettings { pause, ..EjectionSettings::default() };
    let client = connect(Config { ejection, ..config(&[&good, &bad]) });
    for _ in 0..60 {
        client.infer(&request(&[1.0])).await.ok();
    }
    assert!(matches!(client.places()[..], [Place::In, Place::Out(_)]), "{:?}", client.places());
    let model = ModelRef { name: "m", version: None };
    assert!(client.is_ready(1, model, soon()).await.expect("a status"), "it still says so");
    let before = bad.count("/infer");
    client.infer(&request(&[1.0])).await.expect("an answer of the other host");
    assert_eq!(bad.count("/infer"), before);
}

#[tokio::test]
async fn check_39_an_overload_lowers_the_limit_and_ejects_nothing() {
    let busy = || Answer::Status(8, "too many requests".to_owned());
    let (server, _) = grpc(move |_| busy()).await;
    let client = connect(Config { max_in_flight: 10, attempts: 1, ..config(&[&server]) });
    for _ in 0..6 {
        assert_eq!(fault(&client).await.class, Class::Overloaded);
    }
    assert!(client.limits()[0] < 5, "{:?}", client.limits());
    assert_eq!(client.places(), [Place::In]);
    server.script(identity::grpc);
    client.infer(&request(&[1.0])).await.expect("an answer");
}

#[tokio::test]
async fn check_46_an_answer_after_the_deadline_is_dropped() {
    let calls = AtomicUsize::new(0);
    let (server, client) = grpc(move |seen| match calls.fetch_add(1, Relaxed) {
        1 => Answer::Never,
        _ => identity::grpc(seen),
    })
    .await;
    client.infer(&request(&[0.0])).await.expect("an answer");
    let mut late = request(&[1.0]);
    late.deadline = Instant::now() + Duration::from_millis(500);
    let failure = client.infer(&late).await.expect_err("no answer");
    assert_eq!(failure.class, Class::Timeout);
    let reply = client.infer(&request(&[2.0])).await.expect("an answer");
    assert_eq!((values(&reply), server.seen().len()), (vec![2.0], 3));
}
