//! Canaries as callers and operators see them.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use outrigger_core::Content;
use outrigger_proto::outrigger::v1::{
    AbortCanaryRequest, Arm, GetModelRequest, ListCanariesRequest, ListCanariesResponse,
    PredictRequest, PredictResponse, PromoteCanaryRequest, canary::Phase, canary_decision::Outcome,
    canary_service_client::CanaryServiceClient, canary_verdict::Shadowed,
};
use outrigger_testkit::{
    engine::{Gate, Predicting, row_sums},
    saved_model::Model,
};
use serde_json::Value;
use tonic::{Code, Request, transport::Channel};

use crate::{
    logged::logged,
    stack::{MODEL, Stack, channel, linear, reason, request},
    validation::{asked, validate},
};

/// The time limit for any wait, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The canary gets half of the traffic, and the trial concludes only on harm.
const SETTINGS: &str = r#"{
    "minimumTime": "3600s", "warmUp": {"requests": 100}, "ramp": {"share": 0.5},
    "signals": {"latency": {"limits": {"off": true}}, "scoreDrift": {"off": true}}
}"#;

/// A fault that the engine injects into the canary.
#[derive(Clone)]
pub(crate) enum Fault {
    Fails,
    NotANumber,
    Hangs,
    /// The canary ranks treatments in the reverse order of live.
    Reverses,
}

pub(crate) struct Tried {
    pub(crate) stack: Stack,
    /// The live version in the engine.
    pub(crate) live: i64,
    broken: Arc<AtomicBool>,
}

impl Tried {
    /// A server whose canary has half of the traffic, and works until the test injects the fault.
    pub(crate) async fn start(fault: Fault) -> Self {
        Self::by(SETTINGS, None, fault).await
    }

    /// A server whose canary is tried with `settings`, and has a profile.json if `profile` is
    /// given.
    pub(crate) async fn by(settings: &str, profile: Option<&str>, fault: Fault) -> Self {
        Self::start_with(&linear(1.0), settings, profile, fault).await
    }

    /// A server with the given canary model, settings and profile.
    async fn start_with(
        canary: &Model,
        settings: &str,
        profile: Option<&str>,
        fault: Fault,
    ) -> Self {
        let stack = Stack::with(&[
            ("canary.defaults", settings),
            ("images.poll_interval", "1s"),
            ("validation.directory", "{root}/files"),
            ("server.oip", "127.0.0.1:0"),
        ])
        .await;
        ask(&stack, "").await.expect("an answer");
        let asked = GetModelRequest { name: MODEL.to_owned() };
        let model = stack.models().get_model(asked).await.expect("a model").into_inner().model;
        let live = model.expect("it is there").versions[0].servable_version;
        let broken = Arc::new(AtomicBool::new(false));
        let is_broken = Arc::clone(&broken);
        stack.engine.on_predict(move |prediction| {
            let well = row_sums(prediction);
            if prediction.version == live || !is_broken.load(SeqCst) {
                return well;
            }
            match fault {
                Fault::Fails => Predicting::Fails(Code::Internal, "broken".to_owned()),
                Fault::NotANumber => each_score(well, |_| f32::NAN),
                Fault::Hangs => Predicting::Held(Gate::closed(), Box::new(well)),
                Fault::Reverses => each_score(well, |score| -score),
            }
        });
        match profile {
            None => stack.publish_as(MODEL, "latest_canary", canary).await,
            Some(profile) => stack.publish_profiled(MODEL, "latest_canary", canary, profile).await,
        };
        let tried = Self { stack, live, broken };
        tried.until(|it| it.canaries.first().is_some_and(|it| it.phase() == Phase::Split)).await;
        tried
    }

    pub(crate) fn break_it(&self) {
        self.broken.store(true, SeqCst);
    }

    /// Sends requests until the condition holds.
    pub(crate) async fn until(
        &self,
        condition: impl Fn(&ListCanariesResponse) -> bool,
    ) -> ListCanariesResponse {
        self.until_by(async || drop(ask(&self.stack, "").await.expect("an answer")), condition)
            .await
    }

    /// Sends requests by `send` until the condition holds.
    pub(crate) async fn until_by(
        &self,
        send: impl AsyncFn(),
        condition: impl Fn(&ListCanariesResponse) -> bool,
    ) -> ListCanariesResponse {
        let end = Instant::now() + PATIENCE;
        loop {
            for _ in 0..50 {
                send().await;
            }
            let seen = list(&self.stack).await;
            if condition(&seen) {
                return seen;
            }
            assert!(Instant::now() < end, "it never came to that: {seen:#?}");
        }
    }
}

fn each_score(mut answer: Predicting, change: impl Fn(f32) -> f32) -> Predicting {
    let Predicting::Outputs(tensors) = &mut answer else { return answer };
    for tensor in tensors {
        if let Content::Bytes(bytes) = &mut tensor.content {
            let (scores, _) = bytes.as_chunks();
            let scores = scores.iter().map(|score| change(f32::from_le_bytes(*score)));
            *bytes = scores.flat_map(f32::to_le_bytes).collect();
        }
    }
    answer
}

pub(crate) fn service(address: std::net::SocketAddr) -> CanaryServiceClient<Channel> {
    CanaryServiceClient::new(channel(address))
}

async fn list(stack: &Stack) -> ListCanariesResponse {
    let asked = ListCanariesRequest { model: MODEL.to_owned() };
    service(stack.addresses.grpc).list_canaries(asked).await.expect("canaries").into_inner()
}

pub(crate) async fn ask(stack: &Stack, key: &str) -> Result<PredictResponse, tonic::Status> {
    let request =
        PredictRequest { routing_key: key.to_owned(), ..request(&[(1.0, 2.0), (3.0, 4.0)]) };
    Ok(stack.predictions().predict(request).await?.into_inner())
}

/// A routing key that is assigned to the canary.
async fn canary_key(stack: &Stack) -> String {
    for number in 0..100 {
        let key = format!("user-{number}");
        let model = ask(stack, &key).await.expect("an answer").model;
        if model.is_some_and(|model| model.arm() == Arm::Canary) {
            return key;
        }
    }
    panic!("no key is the canary's");
}

#[tokio::test]
async fn a_key_has_one_arm_and_the_response_says_which() {
    let tried = Tried::start(Fault::Fails).await;
    let key = canary_key(&tried.stack).await;
    for _ in 0..20 {
        let answer = ask(&tried.stack, &key).await.expect("an answer");
        assert_eq!(answer.degraded, None);
        assert_eq!(answer.model.unwrap().arm(), Arm::Canary);
    }
    let mut arms = Vec::new();
    for _ in 0..50 {
        arms.push(ask(&tried.stack, "").await.expect("an answer").model.unwrap().arm());
    }
    assert!(arms.contains(&Arm::Live) && arms.contains(&Arm::Canary));
}

/// The requests that the trial has counted, of both arms.
fn counted(seen: &ListCanariesResponse) -> u64 {
    let arms = seen.canaries[0].arms.iter();
    arms.map(|arm| arm.trial.as_ref().map_or(0, |figures| figures.requests)).sum()
}

#[tokio::test]
async fn a_file_is_scored_by_live_and_counted_for_no_arm() {
    const USERS: u64 = 5000;
    let tried = Tried::start(Fault::Fails).await;
    let stack = &tried.stack;
    fs::create_dir(stack.path("files")).expect("a directory");
    let rows = (0..USERS).map(|user| format!("user-{user},0.5,1,2\n")).collect::<String>();
    fs::write(stack.path("files/rows.csv"), format!("user,u0,t0,t1\n{rows}")).expect("a file");
    let before = list(stack).await;
    let report = validate(stack, asked("rows.csv", "")).await.expect("a report");
    assert_eq!((report.scored, report.requests), (USERS, USERS));
    assert_eq!(report.digest, before.canaries[0].live_digest);
    // The figures are at most a second old.
    let after = tried.until(|it| counted(it) > counted(&before)).await;
    let more = counted(&after) - counted(&before);
    assert!(more < USERS / 2, "{more} requests");
}

#[tokio::test]
async fn where_the_canary_fails_live_answers_until_it_is_rolled_back() {
    let lines = logged();
    for fault in [Fault::Fails, Fault::NotANumber] {
        let reason = if matches!(fault, Fault::Fails) { "ENGINE_FAILED" } else { "SCORES_INVALID" };
        let tried = Tried::start(fault).await;
        let key = canary_key(&tried.stack).await;
        tried.break_it();
        let answer = ask(&tried.stack, &key).await.expect("an answer");
        let degraded = answer.degraded.expect("it is not what was asked for");
        assert_eq!((degraded.reason.as_str(), degraded.used.as_str()), (reason, "live"));
        assert_eq!(answer.model.unwrap().arm(), Arm::Live);
        let seen = tried.until(|it| !it.decisions.is_empty()).await;
        assert_eq!(seen.decisions[0].outcome(), Outcome::RolledBack);
        assert_eq!(seen.canaries[0].phase(), Phase::Rejected);
        let answer = ask(&tried.stack, &key).await.expect("an answer");
        assert_eq!((answer.degraded, answer.model.unwrap().arm()), (None, Arm::Live));
    }
    let recorded = |line: &Value| {
        line["target"] == "outrigger::audit"
            && line["outcome"] == "rolled_back"
            && line["by"] == "judge"
    };
    assert!(lines.all().iter().any(recorded), "a change that nobody asked for is recorded too");
}

#[tokio::test]
async fn where_the_canary_hangs_live_answers_in_time() {
    let tried = Tried::start(Fault::Hangs).await;
    let key = canary_key(&tried.stack).await;
    tried.break_it();
    let mut request = Request::new(PredictRequest { routing_key: key, ..request(&[(1.0, 2.0)]) });
    request.set_timeout(Duration::from_secs(2));
    let answer = tried.stack.predictions().predict(request).await.expect("an answer").into_inner();
    assert_eq!(answer.degraded.expect("it is not what was asked for").used, "live");
    assert_eq!(answer.model.unwrap().arm(), Arm::Live);
}

#[tokio::test]
async fn a_mistake_of_the_callers_is_no_failure_of_the_canary() {
    let tried = Tried::start(Fault::Fails).await;
    let malformed = |key: &str| PredictRequest {
        routing_key: key.to_owned(),
        user: None,
        treatments: vec![Default::default()],
        ..request(&[])
    };
    let key = canary_key(&tried.stack).await;
    let status = tried.stack.predictions().predict(malformed(&key)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for _ in 0..200 {
        tried.stack.predictions().predict(malformed("")).await.unwrap_err();
    }
    let seen = tried
        .until(|it| it.canaries[0].verdict.as_ref().is_some_and(|it| it.canary_requests > 100))
        .await;
    let findings = &seen.canaries[0].verdict.as_ref().unwrap().findings;
    let errors = findings.iter().find(|it| it.signal == "error_rate").unwrap();
    assert_eq!((errors.live, errors.canary), (0.0, 0.0));
    assert!(seen.decisions.is_empty());
}

#[tokio::test]
async fn figures_of_each_arm_cover_the_whole_trial_and_recent_minutes() {
    let tried = Tried::start(Fault::Fails).await;
    let counted = |it: &ListCanariesResponse| it.canaries[0].verdict.clone();
    let seen = tried.until(|it| counted(it).is_some_and(|it| it.canary_requests > 20)).await;
    let verdict = counted(&seen).unwrap();
    let arms = &seen.canaries[0].arms;
    let names: Vec<_> = arms.iter().map(|it| it.arm.as_str()).collect();
    assert_eq!(names, ["live", "canary"]);
    for (arm, requests) in arms.iter().zip([verdict.live_requests, verdict.canary_requests]) {
        let trial = arm.trial.unwrap();
        assert_eq!((trial.requests, trial.failed, trial.non_finite), (requests, 0, 0));
        assert!(trial.latency_median > Some(0.0) && trial.latency_median <= trial.latency_p95);
        assert!(trial.score_median.is_some());
        assert_eq!(arm.lately, Some(trial), "all of it was of late");
    }
}

#[tokio::test]
async fn decisions_need_the_admin_listener_and_a_name() {
    let lines = logged();
    let tried = Tried::start(Fault::Fails).await;
    let abort = AbortCanaryRequest {
        model: MODEL.to_owned(),
        by: "ada".to_owned(),
        reason: "a hunch".to_owned(),
        ..Default::default()
    };
    let addresses = tried.stack.addresses;
    let status = service(addresses.grpc).abort_canary(abort.clone()).await.unwrap_err();
    assert_eq!(reason(&status), "ADMIN_ONLY");
    let nobody = AbortCanaryRequest { by: String::new(), ..abort.clone() };
    let status = service(addresses.admin).abort_canary(nobody).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_MALFORMED");
    service(addresses.admin).abort_canary(abort.clone()).await.expect("aborted");
    let seen = list(&tried.stack).await;
    assert_eq!(
        (seen.decisions[0].by.as_str(), seen.decisions[0].reason.as_str()),
        ("ada", "a hunch")
    );
    let promote = PromoteCanaryRequest { model: abort.model, by: abort.by, ..Default::default() };
    let status = service(addresses.admin).promote_canary(promote.clone()).await.unwrap_err();
    assert_eq!(reason(&status), "CANARY_NOT_FOUND");
    let second = tried.stack.publish_as(MODEL, "latest_canary", &linear(2.0)).await;
    tried
        .until(|it| {
            let canary = it.canaries.first();
            canary.is_some_and(|it| it.canary_digest == second && it.phase() == Phase::Split)
        })
        .await;
    service(addresses.admin).promote_canary(promote).await.expect("promoted");
    let seen = tried.until(|it| it.decisions.len() == 2).await;
    assert!(seen.decisions.iter().any(|it| it.outcome() == Outcome::Promoted), "{seen:#?}");
    let recorded = lines.all().into_iter().filter(|line| {
        line["target"] == "outrigger::audit" && line["by"] == "ada" && line["verb"].is_string()
    });
    let recorded: Vec<_> =
        recorded.map(|line| [line["verb"].clone(), line["outcome"].clone()]).collect();
    let expected = [
        ["abort", "ADMIN_ONLY"],
        ["abort", "OK"],
        ["promote", "CANARY_NOT_FOUND"],
        ["promote", "OK"],
    ];
    assert_eq!(recorded, expected);
}

/// The live version answers all of the traffic, and all of it is shadowed.
pub(crate) const SHADOWED: &str = r#"{
    "minimumTime": "3600s", "warmUp": {"requests": 100}, "ramp": {"share": 0.000001}, "shadow": 1,
    "signals": {
        "latency": {"limits": {"off": true}}, "scoreDrift": {"off": true}, "disagreement": {}
    }
}"#;

pub(crate) fn shadowed(seen: &ListCanariesResponse) -> Option<Shadowed> {
    seen.canaries.first()?.verdict.as_ref()?.shadowed
}

#[tokio::test]
async fn a_shadowed_canary_is_compared_and_rolled_back_before_anybody_has_its_answers() {
    let tried = Tried::by(SHADOWED, None, Fault::Reverses).await;
    let seen = tried.until(|it| shadowed(it).is_some_and(|it| it.requests > 100)).await;
    assert_eq!(shadowed(&seen).unwrap().agreement, 1.0);
    tried.break_it();
    let seen = tried.until(|it| !it.decisions.is_empty()).await;
    let decision = &seen.decisions[0];
    assert_eq!(decision.outcome(), Outcome::RolledBack);
    assert!(decision.reason.contains("disagreement"), "{}", decision.reason);
    let verdict = decision.verdict.as_ref().unwrap();
    let pairs = verdict.shadowed.unwrap();
    assert!(pairs.agreement < 1.0 && pairs.lower < -2.0, "{pairs:?}");
    assert_eq!(verdict.canary_requests, 0);
}

#[tokio::test]
async fn callers_do_not_wait_for_shadows() {
    let tried = Tried::by(SHADOWED, None, Fault::Hangs).await;
    tried.break_it();
    let skipped = |metrics: &str| {
        metrics.lines().any(|line| {
            line.starts_with("outrigger_canary_shadows_total") && line.contains("skipped")
        })
    };
    let end = Instant::now() + PATIENCE;
    while !skipped(&tried.stack.health("/metrics").await.1) {
        assert!(Instant::now() < end, "never too many at once");
        for _ in 0..50 {
            let answer = ask(&tried.stack, "").await.expect("an answer");
            assert_eq!((answer.degraded, answer.model.unwrap().arm()), (None, Arm::Live));
        }
    }
}

/// Only the skew of features is judged.
pub(crate) const SKEW: &str = r#"{
    "minimumTime": "3600s", "warmUp": {"requests": 100}, "ramp": {"share": 0.5},
    "signals": {
        "errorRate": {"off": true}, "nonFinite": {"limits": {"off": true}}, "skew": {},
        "latency": {"limits": {"off": true}}, "scoreDrift": {"off": true}
    }
}"#;

#[tokio::test]
async fn features_other_than_at_training_roll_the_canary_back() {
    // Half of the requested treatments have a t0 above 2.
    let profile = r#"{"schema": "outrigger.dev/profile/v1", "features": [
        {"name": "u0", "edges": [], "shares": [1]},
        {"name": "t0", "entity": "treatment", "edges": [2], "shares": [0.9, 0.1]}
    ]}"#;
    let tried = Tried::by(SKEW, Some(profile), Fault::Fails).await;
    let seen = tried.until(|it| !it.decisions.is_empty()).await;
    let decision = &seen.decisions[0];
    assert_eq!(decision.outcome(), Outcome::RolledBack);
    assert!(decision.reason.contains("skew (t0: "), "{}", decision.reason);
    let deviations = &decision.verdict.as_ref().unwrap().deviations;
    assert_eq!(deviations[0].arm, "canary", "live has no profile");
    assert!(deviations[0].place.starts_with("t0: "), "{deviations:?}");
    let metrics = tried.stack.health("/metrics").await.1;
    assert!(metrics.contains("outrigger_canary_skew{"), "{metrics}");
}

#[tokio::test]
async fn features_as_at_training_are_harmless_and_a_model_without_a_profile_has_no_skew() {
    let profile = r#"{"schema": "outrigger.dev/profile/v1", "features": [
        {"name": "t0", "entity": "treatment", "edges": [2], "shares": [0.5, 0.5]}
    ]}"#;
    let tried = Tried::by(SKEW, Some(profile), Fault::Fails).await;
    let seen = tried
        .until(|it| {
            let verdict = it.canaries.first().and_then(|it| it.verdict.as_ref());
            let mut findings = verdict.iter().flat_map(|it| &it.findings);
            findings.any(|it| it.signal == "skew" && it.state == "harmless")
        })
        .await;
    assert!(seen.decisions.is_empty());
    let [t0] = &seen.canaries[0].features[..] else { panic!("live has no profile: {seen:?}") };
    assert_eq!(
        (t0.arm.as_str(), t0.name.as_str(), t0.entity.as_str()),
        ("canary", "t0", "treatment")
    );
    let names: Vec<_> = t0.categories.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["missing", "out of vocabulary", "up to 2", "above the last edge"]);
    assert_eq!(t0.categories.iter().map(|it| it.seen).sum::<f64>(), 1.0);
    assert!(t0.requests > 0 && t0.categories[3].seen > 0.2 && t0.categories[3].expected == 0.5);
    let mut canaries = service(tried.stack.addresses.grpc);
    let all = canaries.list_canaries(ListCanariesRequest::default()).await;
    let all = all.expect("canaries").into_inner();
    assert!(all.canaries[0].features.is_empty(), "only of a model that is named");
    // The next canary has no profile to compare with, so it is refused.
    tried.stack.publish_as(MODEL, "latest_canary", &linear(2.0)).await;
    let refused = |it: &ListCanariesResponse| {
        it.decisions.first().is_some_and(|it| it.outcome() == Outcome::Refused)
    };
    let seen = tried.until(refused).await;
    assert!(seen.decisions[0].reason.contains("profile.json"), "{}", seen.decisions[0].reason);
}

#[tokio::test]
async fn each_key_is_logged_once_and_with_the_propensity_of_a_model_that_draws() {
    let lines = logged();
    let tried = Tried::start_with(&drawing(), SETTINGS, None, Fault::Fails).await;
    for round in 0..2 {
        for number in 0..20 {
            let key = format!("exposed-{round}-{number}");
            for _ in 0..3 {
                ask(&tried.stack, &key).await.expect("an answer");
            }
        }
        tried.break_it();
    }
    let mut seen = std::collections::BTreeMap::new();
    for fields in lines.all() {
        let Some(key) = fields["routing_key"].as_str().filter(|key| key.starts_with("exposed-"))
        else {
            continue;
        };
        assert!(seen.insert(key.to_owned(), fields.clone()).is_none(), "{key} twice");
        let (canary, broken) = (fields["arm"] == "canary", key.starts_with("exposed-1-"));
        // The fake engine returns the sums of the features for each output.
        let propensity = (canary && !broken).then_some(7.0);
        assert_eq!(fields["propensity"].as_f64(), propensity, "{fields}");
    }
    assert_eq!(seen.len(), 40);
    assert!(seen.values().any(|fields| fields["arm"] == "canary" && fields["share"] == 0.5));
}

/// A model that samples treatments and returns their propensities.
fn drawing() -> Model {
    let mut model = linear(1.0);
    let graph = &mut model.saved_model.meta_graphs[0];
    let signature = graph.signature_def.get_mut("serving_default").expect("it is there");
    let scores = signature.outputs["scores"].clone();
    signature.outputs.insert("p".to_owned(), scores);
    model.metadata["deterministic"] = false.into();
    let output = serde_json::json!({
        "tensor": "p", "name": "propensity", "kind": "per_treatment", "role": "propensity"
    });
    model.metadata["outputs"].as_array_mut().expect("a list").push(output);
    model
}
