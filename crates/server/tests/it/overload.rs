//! The server beyond the engine's capacity, and callers that ask for what does not exist.

use std::time::Duration;

use outrigger_proto::outrigger::v1::PredictRequest;
use outrigger_testkit::engine::{Predicting, Workers, row_sums};
use tokio::{
    task::JoinSet,
    time::{Instant, interval_at},
};
use tonic::{Code, Status};

use crate::certificates::Mount;
use crate::stack::{MODEL, Stack, by_name, reason, request};

/// Two workers of 40 ms: 50 answers a second.
const CAPACITY: u32 = 50;
const DEADLINE: Duration = Duration::from_millis(400);

/// Sends `rate` requests a second for `time`; returns how those ended that began in its second half,
/// when the first measurements have been made.
async fn send(stack: &Stack, rate: u32, time: Duration) -> (usize, Vec<Status>) {
    let (mut sent, start) = (JoinSet::new(), Instant::now());
    let mut ticks = interval_at(start, Duration::from_secs(1) / rate);
    while start.elapsed() < time {
        ticks.tick().await;
        let (mut client, is_counted) = (stack.predictions(), start.elapsed() > time / 2);
        sent.spawn(async move {
            let mut request = tonic::Request::new(request(&[(1.0, 1.0)]));
            request.set_timeout(DEADLINE);
            (client.predict(request).await, is_counted)
        });
    }
    let ended = sent.join_all().await.into_iter().filter(|(_, is_counted)| *is_counted);
    let (answered, failed): (Vec<_>, Vec<_>) =
        ended.map(|(result, _)| result.err()).partition(Option::is_none);
    (answered.len(), failed.into_iter().flatten().collect())
}

/// Without refusals all requests wait in the queue beyond their deadlines: almost none is answered.
#[tokio::test]
async fn beyond_capacity_what_would_be_late_is_refused_at_once() {
    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.expect("it is up");
    let workers = Workers::new(2, Duration::from_millis(40));
    stack.engine.on_predict(move |prediction| {
        Predicting::Worked(workers.clone(), Box::new(row_sums(prediction)))
    });
    let time = Duration::from_secs(8);
    let (answered, failed) = send(&stack, 4 * CAPACITY, time).await;
    // The share of answers is measured in the tests of `lifecycle::Load`, in simulated time.
    assert!(answered > 0, "the engine works for requests in time");
    let refused = failed.iter().filter(|status| status.code() == Code::ResourceExhausted).count();
    assert!(refused * 2 >= failed.len(), "{refused} of {} failures: {failed:?}", failed.len());
    let (_, metrics) = stack.health("/metrics").await;
    let counted = metrics.lines().any(|line| {
        line.starts_with("outrigger_requests_refused_total{limit=\"deadline\"}")
            && !line.ends_with(" 0")
    });
    assert!(counted, "the refusals are counted: {metrics}");
}

#[tokio::test]
async fn unknown_names_of_one_caller_leave_new_models_to_others() {
    let tokens =
        Mount::new(&[("greedy", "the-token-of-greedy"), ("modest", "the-token-of-modest")]);
    let stack = Stack::with(&[
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.callers", r#"{"*": [predict]}"#),
        ("limits.unknown_names", "3"),
    ])
    .await;
    let ask = |token: &str, model: &str| {
        let message = PredictRequest { model: Some(by_name(model)), ..request(&[(1.0, 1.0)]) };
        let mut request = tonic::Request::new(message);
        let value = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
        let mut client = stack.predictions();
        async move { client.predict(request).await.map_err(|status| reason(&status)) }
    };
    for number in 0..3 {
        let refused = ask("the-token-of-greedy", &format!("offers/nobody-{number}")).await;
        assert_eq!(refused.unwrap_err(), "MODEL_NOT_FOUND");
    }
    let again = ask("the-token-of-greedy", "offers/nobody-0").await;
    assert_eq!(again.unwrap_err(), "MODEL_NOT_FOUND", "a remembered answer costs no look-up");
    let more = ask("the-token-of-greedy", "offers/nobody-3").await;
    assert_eq!(more.unwrap_err(), "OVERLOADED", "the budget is spent");
    ask("the-token-of-modest", MODEL).await.expect("a new model for another caller");
    ask("the-token-of-greedy", MODEL).await.expect("a model that exists");
}
