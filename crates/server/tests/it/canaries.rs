//! Canaries as callers and operators see them.

use std::{
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
    canary_service_client::CanaryServiceClient,
};
use outrigger_testkit::engine::{Gate, Predicting, row_sums};
use tonic::{Code, Request, transport::Channel};

use crate::stack::{MODEL, Stack, channel, linear, reason, request};

/// Half of the traffic, and no verdict of its own accord but for harm.
const SETTINGS: &str = r#"{
    "minimumTime": "3600s", "warmUp": {"requests": 100}, "ramp": {"share": 0.5},
    "signals": {"latency": {"limits": {"off": true}}, "scoreDrift": {"off": true}}
}"#;

/// What goes wrong with the canary.
#[derive(Clone)]
enum Fault {
    Fails,
    NotANumber,
    Hangs,
}

struct Tried {
    stack: Stack,
    broken: Arc<AtomicBool>,
}

impl Tried {
    /// A stack with a canary that has half of the traffic, and is well as long as
    /// nobody breaks it.
    async fn start(fault: Fault) -> Self {
        let stack =
            Stack::with(&[("canary.defaults", SETTINGS), ("images.poll_interval", "1s")]).await;
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
                Fault::NotANumber => not_a_number(well),
                Fault::Hangs => Predicting::Held(Gate::closed(), Box::new(well)),
            }
        });
        stack.publish_as(MODEL, "latest_canary", &linear(1.0)).await;
        let tried = Self { stack, broken };
        tried.until(|it| it.canaries.first().is_some_and(|it| it.phase() == Phase::Split)).await;
        tried
    }

    fn break_it(&self) {
        self.broken.store(true, SeqCst);
    }

    /// Asks until that is so.
    async fn until(
        &self,
        condition: impl Fn(&ListCanariesResponse) -> bool,
    ) -> ListCanariesResponse {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            for _ in 0..50 {
                ask(&self.stack, "").await.expect("an answer");
            }
            let seen = list(&self.stack).await;
            if condition(&seen) {
                return seen;
            }
            assert!(Instant::now() < end, "it never came to that: {seen:#?}");
        }
    }
}

#[tokio::test]
async fn a_canary_that_gets_too_few_requests_is_told_of() {
    let settings = r#"{
        "minimumTime": "1s", "maximumTime": "2s", "minimumRequests": "1000000000",
        "warmUp": {"requests": 100}, "onStarved": "ON_STARVED_CONTINUE"
    }"#;
    let stack = Stack::with(&[("canary.defaults", settings), ("images.poll_interval", "1s")]).await;
    ask(&stack, "").await.expect("an answer");
    stack.publish_as(MODEL, "latest_canary", &linear(1.0)).await;
    let end = Instant::now() + Duration::from_secs(60);
    let starved = format!("outrigger_canary_starved_total{{model=\"{MODEL}\"}} 1");
    loop {
        ask(&stack, "").await.expect("an answer");
        let (_, text) = stack.health("/metrics").await;
        if text.contains(&starved) {
            break;
        }
        assert!(Instant::now() < end, "{text}");
    }
}

fn not_a_number(mut answer: Predicting) -> Predicting {
    let Predicting::Outputs(tensors) = &mut answer else { return answer };
    for tensor in tensors {
        if let Content::Bytes(bytes) = &mut tensor.content {
            *bytes = f32::NAN.to_le_bytes().repeat(bytes.len() / 4).into();
        }
    }
    answer
}

fn service(address: std::net::SocketAddr) -> CanaryServiceClient<Channel> {
    CanaryServiceClient::new(channel(address))
}

async fn list(stack: &Stack) -> ListCanariesResponse {
    let asked = ListCanariesRequest { model: MODEL.to_owned() };
    service(stack.addresses.grpc).list_canaries(asked).await.expect("canaries").into_inner()
}

async fn ask(stack: &Stack, key: &str) -> Result<PredictResponse, tonic::Status> {
    let request = PredictRequest { routing_key: key.to_owned(), ..request(&[(1.0, 2.0)]) };
    Ok(stack.predictions().predict(request).await?.into_inner())
}

/// A key of the canary's.
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

#[tokio::test]
async fn where_the_canary_fails_live_answers_until_it_is_rolled_back() {
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
        .until(|it| it.canaries[0].verdict.as_ref().is_some_and(|it| it.canary_requests > 400))
        .await;
    let findings = &seen.canaries[0].verdict.as_ref().unwrap().findings;
    let errors = findings.iter().find(|it| it.signal == "error_rate").unwrap();
    assert_eq!((errors.live, errors.canary), (0.0, 0.0));
    assert!(seen.decisions.is_empty());
}

#[tokio::test]
async fn canaries_are_decided_about_on_the_admin_listener_and_by_somebody() {
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
    let again = PromoteCanaryRequest { model: abort.model, by: abort.by, ..Default::default() };
    let status = service(addresses.admin).promote_canary(again).await.unwrap_err();
    assert_eq!(reason(&status), "CANARY_NOT_FOUND");
}
