//! BatchPredict while a canary is on trial.

use std::collections::BTreeMap;

use outrigger_proto::outrigger::v1::{
    Arm, BatchPredictRequest, BatchPredictResponse, ListCanariesResponse, PredictRequest,
    canary_decision::Outcome, predict_response::Output,
};
use outrigger_testkit::engine::{Predicting, Received, row_sums};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{
    canaries::{Fault, SHADOWED, SKEW, Tried, ask, shadowed},
    stack::{MODEL, Stack, by_name, reason, request},
};

const USERS: u8 = 16;

/// A request of a batch, whose only score is `score`.
fn user(key: &str, score: f32) -> PredictRequest {
    PredictRequest {
        model: None,
        request_id: format!("of {key}"),
        routing_key: key.to_owned(),
        ..request(&[(score, 0.0)])
    }
}

fn batch(requests: Vec<PredictRequest>) -> BatchPredictRequest {
    BatchPredictRequest {
        model: Some(by_name(MODEL)),
        request_id: "batch".to_owned(),
        requests,
        options: None,
    }
}

/// A batch of users with keys that begin with `name`, whose scores are their positions.
fn keyed(name: &str) -> BatchPredictRequest {
    let users = (0..USERS).map(|number| user(&format!("{name}-{number}"), f32::from(number)));
    batch(users.collect())
}

/// A batch of users without keys.
fn without_keys() -> BatchPredictRequest {
    batch((0..USERS).map(|number| user("", f32::from(number))).collect())
}

async fn send(stack: &Stack, batch: BatchPredictRequest) -> Result<BatchPredictResponse, Status> {
    Ok(stack.predictions().batch_predict(batch).await?.into_inner())
}

fn arms(answer: &BatchPredictResponse) -> Vec<Arm> {
    let served = answer.responses.iter().map(|response| response.model.as_ref());
    served.map(|model| model.expect("each names its model").arm()).collect()
}

/// The number of calls that the engine has received, by version.
fn calls(stack: &Stack) -> BTreeMap<Option<i64>, usize> {
    let mut calls = BTreeMap::new();
    for call in stack.engine.received() {
        if let Received::Predict { version, .. } = call {
            *calls.entry(version).or_default() += 1;
        }
    }
    calls
}

#[tokio::test]
async fn users_of_a_batch_keep_their_arms_by_one_call_for_each_arm() {
    let tried = Tried::start(Fault::Fails).await;
    for round in 0..10 {
        let batch = keyed(&format!("round-{round}"));
        let before = calls(&tried.stack);
        let answer = send(&tried.stack, batch.clone()).await.expect("an answer");
        let after = calls(&tried.stack);
        assert_eq!(answer.request_id, "batch");
        let scores = answer.responses.iter().map(|response| match &response.output {
            Some(Output::Scores(scores)) => (response.request_id.clone(), scores.values.clone()),
            other => panic!("no scores: {other:?}"),
        });
        let expected = batch.requests.iter().zip(0_u8..);
        let expected = expected.map(|(user, at)| (user.request_id.clone(), vec![f32::from(at)]));
        assert!(scores.eq(expected), "each user has its own scores, in order: {answer:?}");
        let batch_arms = arms(&answer);
        let different = if batch_arms.iter().all(|arm| *arm == batch_arms[0]) { 1 } else { 2 };
        for (version, count) in &after {
            assert!(count - before.get(version).unwrap_or(&0) <= 1, "{before:?} {after:?}");
        }
        let sum = |calls: &BTreeMap<_, usize>| calls.values().sum::<usize>();
        assert_eq!(sum(&after) - sum(&before), different);
        for (user, arm) in batch.requests.iter().zip(batch_arms) {
            let alone = ask(&tried.stack, &user.routing_key).await.expect("an answer");
            assert_eq!(alone.model.expect("a model").arm(), arm, "{}", user.routing_key);
        }
    }
}

#[tokio::test]
async fn users_without_a_key_go_to_one_arm_together() {
    let tried = Tried::start(Fault::Fails).await;
    let mut seen = Vec::new();
    for _ in 0..40 {
        let arms = arms(&send(&tried.stack, without_keys()).await.expect("an answer"));
        assert!(arms.iter().all(|arm| *arm == arms[0]), "{arms:?}");
        seen.push(arms[0]);
    }
    assert!(seen.contains(&Arm::Live) && seen.contains(&Arm::Canary));
}

#[tokio::test]
async fn live_answers_the_users_of_a_canary_that_fails_a_batch_and_it_is_rolled_back() {
    for fault in [Fault::Fails, Fault::NotANumber] {
        let reason = if matches!(fault, Fault::Fails) { "ENGINE_FAILED" } else { "SCORES_INVALID" };
        let tried = Tried::start(fault).await;
        let before = arms(&send(&tried.stack, keyed("user")).await.expect("an answer"));
        assert!(before.contains(&Arm::Live) && before.contains(&Arm::Canary), "{before:?}");
        tried.break_it();
        let answer = send(&tried.stack, keyed("user")).await.expect("an answer");
        for (response, arm) in answer.responses.iter().zip(before) {
            let degraded = response.degraded.as_ref().map(|it| (&*it.reason, &*it.used));
            assert_eq!(degraded, (arm == Arm::Canary).then_some((reason, "live")));
        }
        assert!(arms(&answer).iter().all(|arm| *arm == Arm::Live));
        let number = std::cell::Cell::new(0);
        let send = async || {
            let next = number.replace(number.get() + 1);
            send(&tried.stack, keyed(&format!("later-{next}"))).await.expect("an answer");
        };
        let seen = tried.until_by(&send, |it| !it.decisions.is_empty()).await;
        assert_eq!(seen.decisions[0].outcome(), Outcome::RolledBack);
        assert!(!seen.decisions[0].reason.contains("share_mismatch"));
    }
}

#[tokio::test]
async fn all_or_nothing_holds_where_live_fails() {
    let tried = Tried::start(Fault::Fails).await;
    let both = arms(&send(&tried.stack, keyed("user")).await.expect("an answer"));
    assert!(both.contains(&Arm::Live) && both.contains(&Arm::Canary), "{both:?}");
    let live = tried.live;
    tried.stack.engine.on_predict(move |prediction| match prediction.version == live {
        true => Predicting::Fails(Code::Internal, "broken".to_owned()),
        false => row_sums(prediction),
    });
    let status = send(&tried.stack, keyed("user")).await.expect_err("live failed");
    assert_eq!(reason(&status), "ENGINE_FAILED");
}

#[tokio::test]
async fn faults_of_a_divided_batch_are_those_of_the_whole_one() {
    let tried = Tried::start(Fault::Fails).await;
    let mut bad = keyed("user");
    let both = arms(&send(&tried.stack, bad.clone()).await.expect("an answer"));
    let on = |arm| both.iter().position(|of| *of == arm).expect("both arms have users");
    let mut faulty = [on(Arm::Live), on(Arm::Canary)];
    faulty.sort_unstable();
    for user in faulty {
        bad.requests[user].treatments[0].features.remove("t0");
    }
    let status = send(&tried.stack, bad).await.expect_err("a feature is missing");
    assert_eq!(reason(&status), "FEATURE_MISSING");
    let violations = status.get_details_bad_request().expect("violations").field_violations;
    let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
    let field = |user| format!("requests[{user}].treatments[0].features[\"t0\"]");
    assert_eq!(fields, faulty.map(field));
}

/// The numbers of counted requests, if the trial has a verdict.
fn counted(seen: &ListCanariesResponse) -> Option<(u64, u64)> {
    let verdict = seen.canaries.first()?.verdict.as_ref()?;
    Some((verdict.live_requests, verdict.canary_requests))
}

#[tokio::test]
async fn a_batch_counts_as_one_request() {
    let tried = Tried::start(Fault::Fails).await;
    let sent = std::cell::Cell::new(0_u64);
    let send = async || {
        let number = sent.replace(sent.get() + 1);
        send(&tried.stack, keyed(&format!("batch-{number}"))).await.expect("an answer");
    };
    let enough = |it: &ListCanariesResponse| counted(it).is_some_and(|it| it.1 > 100);
    let before = {
        // The requests until the split are counted by now.
        let seen = tried.until(|it| counted(it).is_some_and(|it| it.1 > 0)).await;
        counted(&seen).expect("a verdict")
    };
    let seen = tried.until_by(&send, enough).await;
    let (live, canary) = counted(&seen).expect("a verdict");
    let more = live + canary - before.0 - before.1;
    assert!(more <= sent.get() + 50, "{more} of {}", sent.get());
    let arms = &seen.canaries[0].arms;
    for arm in arms {
        let trial = arm.trial.as_ref().expect("counted");
        assert_eq!((trial.failed, trial.non_finite), (0, 0));
    }
    let half = (live + canary) / 2;
    assert!((half / 2..half * 3 / 2).contains(&canary), "{canary} of {live} + {canary}");
}

#[tokio::test]
async fn batches_are_shadowed() {
    let tried = Tried::by(SHADOWED, None, Fault::Reverses).await;
    let number = std::cell::Cell::new(0);
    let send = async || {
        let mut batch = keyed(&format!("batch-{}", number.replace(number.get() + 1)));
        for user in &mut batch.requests {
            user.treatments = request(&[(1.0, 2.0), (3.0, 4.0)]).treatments;
        }
        send(&tried.stack, batch).await.expect("an answer");
    };
    let seen = tried.until_by(&send, |it| shadowed(it).is_some_and(|it| it.requests > 100)).await;
    assert_eq!(shadowed(&seen).expect("shadowed").agreement, 1.0);
    tried.break_it();
    let seen = tried.until_by(&send, |it| !it.decisions.is_empty()).await;
    assert!(seen.decisions[0].reason.contains("disagreement"), "{}", seen.decisions[0].reason);
}

#[tokio::test]
async fn features_in_batches_are_compared_with_the_profile() {
    // The requests until the split are as at training; most scores in batches are above 2.
    let profile = r#"{"schema": "outrigger.dev/profile/v1", "features": [
        {"name": "t0", "entity": "treatment", "edges": [2], "shares": [0.5, 0.5]}
    ]}"#;
    let tried = Tried::by(SKEW, Some(profile), Fault::Fails).await;
    let number = std::cell::Cell::new(0);
    let send = async || {
        let batch = keyed(&format!("batch-{}", number.replace(number.get() + 1)));
        send(&tried.stack, batch).await.expect("an answer");
    };
    let seen = tried.until_by(&send, |it| !it.decisions.is_empty()).await;
    assert!(seen.decisions[0].reason.contains("skew (t0: "), "{}", seen.decisions[0].reason);
}
