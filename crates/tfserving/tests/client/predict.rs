use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use outrigger_core::{Content, DType, Reason, Tensor};
use outrigger_run::RunError;
use outrigger_testkit::engine::{Gate, Predicting, Received, floats};
use outrigger_tfserving::Call;
use tonic::Code;

use crate::harness::{Harness, call, id, patient, within};

#[tokio::test]
async fn scores_come_back_over_both_transports() {
    for harness in Harness::both() {
        let id = id("offers/spring", 7);
        harness.serve(std::slice::from_ref(&id)).await;
        let answer = harness.client.predict(call(&id, &[[1.0, 2.0], [3.0, 4.0]], patient())).await;
        assert_eq!(answer.expect("answered"), [floats("scores", &[1, 2], [3.0, 7.0])]);
        harness.assert_no_violations();
    }
}

#[tokio::test]
async fn the_request_carries_the_remaining_time_and_a_minute_in_which_the_run_may_end() {
    let harness = Harness::tcp(|_| {});
    let id = id("m", 1);
    harness.serve(std::slice::from_ref(&id)).await;
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    harness.engine.on_predict(move |prediction| {
        sender.send(prediction.timeout).expect("received");
        Predicting::Outputs(vec![floats("scores", &[0], [])])
    });
    let deadline = within(Duration::from_secs(600));
    harness.client.predict(call(&id, &[], deadline)).await.expect("answered");
    let timeout = seen.recv().await.flatten().expect("a timeout");
    assert!(timeout <= Duration::from_secs(660) && timeout > Duration::from_secs(600));
}

#[tokio::test]
async fn the_engines_codes_become_reasons() {
    const WAITED: &str = "Run() timeout exceeded while waiting in batching queue";
    const MISSING: &str = "Servable not found for request: Specific(m, 1)";
    let by_message = [
        (Code::ResourceExhausted, WAITED, "overloaded", Reason::Overloaded),
        (Code::ResourceExhausted, "Server Threadpool Exhausted", "overloaded", Reason::Overloaded),
        (Code::ResourceExhausted, "", "overloaded", Reason::Overloaded),
        (Code::NotFound, MISSING, "not served", Reason::EngineUnavailable),
    ];
    // The model's own errors have other messages.
    let by_code = [
        (Code::Unavailable, "overloaded", Reason::Overloaded),
        (Code::ResourceExhausted, "failed", Reason::EngineFailed),
        // The values of the inputs are refused.
        (Code::InvalidArgument, "refused", Reason::RequestMalformed),
        (Code::OutOfRange, "refused", Reason::RequestMalformed),
        (Code::FailedPrecondition, "failed", Reason::EngineFailed),
        (Code::Internal, "failed", Reason::EngineFailed),
        (Code::Unknown, "failed", Reason::EngineFailed),
        (Code::DataLoss, "failed", Reason::EngineFailed),
        (Code::DeadlineExceeded, "deadline", Reason::Deadline),
        (Code::Cancelled, "cancelled", Reason::EngineUnavailable),
        (Code::NotFound, "failed", Reason::EngineFailed),
    ];
    let by_code = by_code.map(|(code, kind, reason)| (code, "why", kind, reason));
    for harness in Harness::both() {
        let id = id("m", 1);
        harness.serve(std::slice::from_ref(&id)).await;
        for (code, message, kind, reason) in by_message.into_iter().chain(by_code) {
            harness.engine.on_predict(move |_| Predicting::Fails(code, message.to_owned()));
            let error = harness.client.predict(call(&id, &[], patient())).await.expect_err("fails");
            assert_eq!(self::kind(&error), kind, "{code:?}: {error}");
            assert_eq!(error.reason(), reason, "{code:?}");
        }
    }
}

fn kind(error: &RunError) -> &'static str {
    match error {
        RunError::EngineOverloaded { .. } => "overloaded",
        RunError::Failed { message, .. } if message == "why" => "failed",
        RunError::Refused { message, .. } if message.contains("why") => "refused",
        RunError::DeadlineExceeded => "deadline",
        RunError::Cancelled { .. } => "cancelled",
        RunError::NotServed { .. } => "not served",
        _ => "other",
    }
}

#[tokio::test]
async fn a_version_that_is_not_loaded_is_not_served() {
    let harness = Harness::unix(|_| {});
    let (loaded, missing) = (id("m", 1), id("m", 2));
    harness.serve(std::slice::from_ref(&loaded)).await;
    let error = harness.client.predict(call(&missing, &[], patient())).await.expect_err("fails");
    assert!(matches!(error, RunError::NotServed { servable } if servable == missing));
}

#[tokio::test]
async fn an_input_the_model_does_not_have_fails_in_the_engine() {
    let harness = Harness::unix(|_| {});
    let id = id("m", 1);
    harness.serve(std::slice::from_ref(&id)).await;
    let mut call = call(&id, &[], patient());
    call.inputs[0].name = "other".into();
    let error = harness.client.predict(call).await.expect_err("fails");
    assert!(
        matches!(&error, RunError::Refused { message, .. } if message.contains("InvalidArgument")),
        "{error}"
    );
}

#[tokio::test]
async fn calls_over_the_limit_wait_and_control_calls_do_not() {
    // A version has half of the places.
    let harness = Harness::unix(|config| config.max_in_flight = 4);
    let id = id("m", 1);
    harness.serve(std::slice::from_ref(&id)).await;
    let gate = Gate::closed();
    let held = gate.clone();
    harness.engine.on_predict(move |_| {
        let answer = Predicting::Outputs(vec![floats("scores", &[0], [])]);
        Predicting::Held(held.clone(), Box::new(answer))
    });
    let mut waiting = tokio::task::JoinSet::new();
    let one = call(&id, &[], patient());
    for _ in 0..2 {
        let client = Arc::clone(&harness.client);
        let call = one.clone();
        waiting.spawn(async move { client.predict(call).await });
    }
    harness.arrived(2).await;
    let late = Call { deadline: within(Duration::from_millis(20)), ..one.clone() };
    let error = harness.client.predict(late).await.expect_err("no place");
    assert!(matches!(error, RunError::Overloaded), "{error}");
    assert_eq!(error.reason(), Reason::Overloaded);
    let client = Arc::clone(&harness.client);
    waiting.spawn(async move { client.predict(one).await });
    assert_eq!(harness.client.status(&id.name).await.expect("answered").len(), 1);
    gate.open();
    while let Some(answer) = waiting.join_next().await {
        answer.expect("no panic").expect("answered, the third when there was room");
    }
}

#[tokio::test]
async fn calls_that_are_given_up_keep_their_places_until_the_engine_has_ended_them() {
    let harness = Harness::tcp(|config| config.max_in_flight = 2);
    let [id, other] = ["m", "other"].map(|name| id(name, 1));
    harness.serve(&[id.clone(), other.clone()]).await;
    let gate = Gate::closed();
    let held = gate.clone();
    let free = other.name.as_str().to_owned();
    harness.engine.on_predict(move |prediction| {
        let answer = Predicting::Outputs(vec![floats("scores", &[0], [])]);
        match prediction.name == free {
            true => answer,
            false => Predicting::Held(held.clone(), Box::new(answer)),
        }
    });
    let first = call(&id, &[], patient());
    let again = || harness.client.predict(Call { deadline: patient(), ..first.clone() });
    tokio::select! {
        answer = again() => panic!("it is held: {answer:?}"),
        () = harness.arrived(1) => {}
    }
    let error = again().await.expect_err("no place");
    assert!(matches!(error, RunError::GivenUp(1)), "{error}");
    assert_eq!(error.reason(), Reason::Overloaded);
    harness.client.predict(call(&other, &[], patient())).await.expect("it has places of its own");
    gate.open();
    while let Err(error) = again().await {
        assert!(matches!(error, RunError::GivenUp(1)), "{error}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_deadline_that_has_passed_sends_nothing() {
    let harness = Harness::tcp(|_| {});
    let id = id("m", 1);
    let error = harness.client.predict(call(&id, &[], within(Duration::ZERO))).await;
    assert!(matches!(error, Err(RunError::DeadlineExceeded)));
    assert_eq!(harness.engine.received(), []);
}

#[tokio::test]
async fn megabytes_pass_both_ways() {
    for harness in Harness::both() {
        let id = id("m", 1);
        harness.serve(std::slice::from_ref(&id)).await;
        harness.engine.on_predict(|prediction| {
            let treatment = prediction.inputs["treatment"].clone();
            Predicting::Outputs(vec![Tensor { name: "scores".into(), ..treatment }])
        });
        let treatments: Vec<[f32; 2]> = (0..655_360_u32).map(|n| [n as f32, 0.5]).collect();
        let call = call(&id, &treatments, patient());
        let sent = call.inputs[1].content.clone();
        assert!(matches!(&sent, Content::Bytes(bytes) if bytes.len() == 5 << 20));
        let answer = harness.client.predict(call).await.expect("answered");
        assert!(answer[0].content == sent, "other bytes than were sent");
    }
}

#[tokio::test]
async fn messages_over_the_limit_are_refused_either_way() {
    let harness = Harness::tcp(|config| config.max_message = 10_000);
    let id = id("m", 1);
    harness.serve(std::slice::from_ref(&id)).await;
    let error = harness.client.predict(call(&id, &[[0.0; 2]; 2000], patient())).await;
    assert!(matches!(error, Err(RunError::TooLarge { limit: 10_000, .. })));
    harness
        .engine
        .on_predict(|_| Predicting::Outputs(vec![floats("scores", &[3000], [0.5; 3000])]));
    let error = harness.client.predict(call(&id, &[], patient())).await.expect_err("too large");
    assert_eq!(error.reason(), Reason::EngineFailed, "{error}");
    harness.engine.on_predict(|_| Predicting::Outputs(vec![floats("scores", &[1], [0.5])]));
    harness.client.predict(call(&id, &[], patient())).await.expect("the connection lives on");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_error_of_that_call_only() {
    let harness = Harness::unix(|_| {});
    let id = id("m", 1);
    harness.serve(std::slice::from_ref(&id)).await;
    for garbage in [&b"\xff\xff\xff\xff\xff"[..], b"\x0a\x05scores", b"not protobuf at all"] {
        harness.engine.on_predict(move |_| Predicting::Bytes(Bytes::from_static(garbage)));
        let error = harness.client.predict(call(&id, &[], patient())).await.expect_err("garbage");
        assert!(matches!(error, RunError::Answer { .. }), "{error}");
    }
    harness.engine.on_predict(|_| Predicting::Outputs(Vec::new()));
    let error = harness.client.predict(call(&id, &[], patient())).await.expect_err("no output");
    assert_eq!(error.reason(), Reason::ScoresInvalid);
    harness.engine.on_predict(|_| {
        let content = Content::Strings(vec!["a".into()]);
        let scores =
            Tensor { name: "scores".into(), dtype: DType::String, shape: vec![1], content };
        Predicting::Outputs(vec![scores])
    });
    let answer = harness.client.predict(call(&id, &[], patient())).await.expect("answered");
    assert_eq!(answer[0].dtype, DType::String);
}

impl Harness {
    /// Waits until the engine holds that many predictions.
    async fn arrived(&self, count: usize) {
        let predicts = || {
            let received = self.engine.received();
            received.iter().filter(|call| matches!(call, Received::Predict { .. })).count()
        };
        while predicts() < count {
            tokio::task::yield_now().await;
        }
    }
}
