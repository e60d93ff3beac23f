//! The whole life of models on an engine in this process and on one elsewhere, through `serve`'s
//! own wiring, beside TensorFlow Serving.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use outrigger_proto::outrigger::v1::{
    GetModelRequest, ListCanariesRequest, ListCanariesResponse, PredictRequest, PredictResponse,
    canary_decision::Outcome, model_version::State, predict_response::Output,
};
use outrigger_server::{Kind, Kinds};
use outrigger_testkit::{
    linear::{self, LINEAR},
    package::{Framework, Package},
    remote::{self, Mode, SCRIPTED, Server},
};
use serde::Deserialize;
use tokio::{sync::watch, task::JoinSet};
use tonic::Status;

use crate::{
    canaries::service,
    stack::{MODEL, Stack, linear, reason, request_for},
};

/// The time limit for any wait, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The model whose package belongs to the framework under test.
const TREE: &str = "tree";

/// A canary is decided about in seconds, from a few hundred requests.
const QUICK: &str = r#"{
    "minimumTime": "0.1s", "minimumRequests": 100, "warmUp": {"requests": 100},
    "ramp": {"share": 0.5},
    "signals": {
        "errorRate": {"margin": 0.2}, "nonFinite": {"limits": {"margin": 0.2}},
        "latency": {"limits": {"off": true}}, "scoreDrift": {"margin": 0.4}
    }
}"#;

/// The settings of an engine of the kind `scripted`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scripted {
    socket: PathBuf,
}

/// A server with an engine of each kind: `default`, `trees`, `linear` and `far`.
struct Three {
    stack: Stack,
    far: Server,
}

fn kinds() -> Kinds {
    let make = |budget: &_| Arc::new(linear::engine(budget)) as Arc<_>;
    let linear = Kind::in_process("linear", vec![LINEAR], make);
    let scripted = Kind::configured("scripted", vec![SCRIPTED], |settings| {
        let Scripted { socket } = settings.read()?;
        Ok(Box::new(|_| Ok(Arc::new(remote::Engine::new(socket, Duration::from_secs(3))))))
    });
    Kinds::shipped().with(linear).with(scripted)
}

impl Three {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let far = Server::start().expect("a socket");
        let engines = format!(
            "{{default: {{kind: tfserving, endpoint: '{{engine}}'}}, \
              far: {{kind: scripted, socket: '{}'}}}}",
            far.socket().display()
        );
        let usual =
            [("engines", &*engines), ("images.poll_interval", "1s"), ("canary.defaults", QUICK)];
        let settings: Vec<_> = usual.iter().chain(settings).copied().collect();
        Self { stack: Stack::of(kinds(), &settings).await, far }
    }

    async fn publish(&self, framework: Framework, tag: &str, package: Package) -> String {
        self.stack.publish_package(TREE, tag, Package { framework, ..package }).await
    }

    async fn canaries(&self) -> ListCanariesResponse {
        let asked = ListCanariesRequest { model: TREE.to_owned() };
        let seen = service(self.stack.addresses.grpc).list_canaries(asked).await;
        seen.expect("canaries").into_inner()
    }

    /// Waits for the first decision about a canary of [`TREE`].
    async fn decided(&self) -> (Outcome, String) {
        let end = Instant::now() + PATIENCE;
        let load = Load::start(&self.stack, &[TREE]);
        loop {
            load.more(50).await;
            let seen = self.canaries().await;
            if let Some(decision) = seen.decisions.first() {
                load.succeeded().await;
                return (decision.outcome(), decision.canary_digest.clone());
            }
            assert!(Instant::now() < end, "nothing was decided: {seen:#?}");
        }
    }

    /// Waits until [`TREE`] is answered by the version `digest`.
    async fn until_served(&self, digest: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = ask(&self.stack, TREE, 3.0).await.expect("an answer");
            if digest_of(&answer) == digest {
                return;
            }
            assert!(Instant::now() < end, "the tag never moved: {answer:?}");
        }
    }
}

/// Asks for the score of one treatment whose features have the sum `sum`.
async fn ask(stack: &Stack, model: &str, sum: f32) -> Result<PredictResponse, Status> {
    let request: PredictRequest = request_for(model, &[(sum - 1.0, 1.0)]);
    Ok(stack.predictions().predict(request).await?.into_inner())
}

fn digest_of(answer: &PredictResponse) -> &str {
    answer.model.as_ref().map_or("", |model| &model.digest)
}

fn score(answer: &PredictResponse) -> f32 {
    let Some(Output::Scores(scores)) = &answer.output else { panic!("scores") };
    scores.values[0]
}

/// Requests for models, of which none may fail.
struct Load {
    answered: watch::Sender<usize>,
    callers: JoinSet<()>,
    over: watch::Sender<bool>,
}

impl Load {
    fn start(stack: &Stack, models: &[&'static str]) -> Self {
        let (answered, over) = (watch::Sender::new(0), watch::Sender::new(false));
        let mut callers = JoinSet::new();
        for model in models.iter().copied() {
            let (client, answered, over) =
                (stack.predictions(), answered.clone(), over.subscribe());
            callers.spawn(async move {
                let sums = (0..8_u8).cycle().map(f32::from);
                for sum in sums.take_while(|_| !*over.borrow()) {
                    let request = request_for(model, &[(sum - 1.0, 1.0)]);
                    client.clone().predict(request).await.expect(model);
                    answered.send_modify(|count| *count += 1);
                }
            });
        }
        Self { answered, callers, over }
    }

    /// Waits until `count` more requests have been answered.
    async fn more(&self, count: usize) {
        let enough = *self.answered.borrow() + count;
        let mut answered = self.answered.subscribe();
        let reached = tokio::time::timeout(PATIENCE, answered.wait_for(|it| *it >= enough));
        reached.await.expect("the load goes on").expect("the load goes on");
    }

    /// Ends the load, of which every request must have been answered.
    async fn succeeded(self) {
        self.over.send_replace(true);
        self.callers.join_all().await;
        assert!(*self.answered.borrow() > 0);
    }
}

async fn it_is_pulled_answers_moves_under_load_and_survives_a_restart(framework: Framework) {
    let mut three = Three::start(&[]).await;
    let golden = Package { golden: Some(3), ..Package::default() };
    let first = three.publish(framework, "latest", golden).await;
    let answer = ask(&three.stack, TREE, 3.0).await.expect("an answer");
    assert_eq!((score(&answer), digest_of(&answer)), (3.0, &*first));
    assert_eq!(score(&ask(&three.stack, MODEL, 3.0).await.expect("an answer")), 3.0);
    let request = serde_json::json!({
        "model": {"name": TREE},
        "user": {"u0": 0.5},
        "treatments": [{"id": "a", "features": {"t0": 1, "t1": 2.5}}],
    });
    let http = reqwest::Client::new().post(three.stack.http("/v1/predict"));
    let http = http.body(request.to_string()).send().await.expect("an answer");
    let http: serde_json::Value = http.json().await.expect("an answer");
    assert_eq!(http["scores"][0], serde_json::json!({"id": "a", "score": 3.5}), "{http}");
    assert_eq!(three.stack.health("/readyz").await, (200, "ready\n".to_owned()));

    let load = Load::start(&three.stack, &[TREE, TREE]);
    let next = Package { bias: 4, golden: Some(7), ..Package::default() };
    let next = three.publish(framework, "latest", next).await;
    three.until_served(&next).await;
    load.succeeded().await;

    three.stack.restart().await;
    let answer = ask(&three.stack, TREE, 3.0).await.expect("an answer");
    assert_eq!((score(&answer), digest_of(&answer)), (7.0, &*next));
}

async fn its_gate_refuses_other_scores_than_the_package_expects(framework: Framework) {
    let three = Three::start(&[]).await;
    let wrong = Package { golden: Some(4), ..Package::default() };
    three.publish(framework, "latest", wrong).await;
    let refused = ask(&three.stack, TREE, 3.0).await.expect_err("the gate refuses it");
    assert_eq!(reason(&refused), "GOLDEN_MISMATCH");
}

async fn it_leaves_its_engine_when_idle_and_comes_back_on_demand(framework: Framework) {
    let three = Three::start(&[("store.idle_ttl", "1s")]).await;
    three.publish(framework, "latest", Package::default()).await;
    ask(&three.stack, TREE, 3.0).await.expect("an answer");
    let (asked, end) = (GetModelRequest { name: TREE.to_owned() }, Instant::now() + PATIENCE);
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    loop {
        let seen = three.stack.models().get_model(asked.clone()).await.expect("it is known");
        let model = seen.into_inner().model.expect("a model");
        if model.versions.iter().all(|version| version.state() == State::Downloaded) {
            break;
        }
        assert!(Instant::now() < end, "it never became idle: {model:?}");
        pace.tick().await;
    }
    assert_eq!(three.far.loaded(), []);
    ask(&three.stack, TREE, 3.0).await.expect("an answer");
}

/// Tries a canary of the framework beside a live version of the same or another one.
async fn its_canary_is_judged(live: Option<Framework>, canary: Framework) {
    for (bias, outcome) in [(0, Outcome::Promoted), (100, Outcome::RolledBack)] {
        let three = Three::start(&[]).await;
        let first = match live {
            Some(live) => three.publish(live, "latest", Package::default()).await,
            None => three.stack.publish(TREE, &linear(0.0)).await,
        };
        assert_eq!(score(&ask(&three.stack, TREE, 3.0).await.expect("an answer")), 3.0);
        let package = Package { bias, number: 2, ..Package::default() };
        let canary = three.publish(canary, "canary", package).await;
        assert_eq!(three.decided().await, (outcome, canary.clone()));
        three.until_served(if outcome == Outcome::Promoted { &canary } else { &first }).await;
        assert_eq!(three.stack.engine.violations(), []);
    }
}

/// Makes a module of tests for each kind of engine.
macro_rules! of_every_kind {
    ($($scenario:ident),* $(,)?) => {
        mod linear_models {
            $(#[tokio::test] async fn $scenario() {
                super::$scenario(super::Framework::Linear).await;
            })*
        }
        mod tree_models {
            $(#[tokio::test] async fn $scenario() {
                super::$scenario(super::Framework::Xgboost).await;
            })*
        }
        mod gbdt_fm_models {
            $(#[tokio::test] async fn $scenario() {
                super::$scenario(super::Framework::GbdtFm).await;
            })*
        }
        mod remote_models {
            $(#[tokio::test] async fn $scenario() {
                super::$scenario(super::Framework::Scripted).await;
            })*
        }
    };
}

of_every_kind!(
    it_is_pulled_answers_moves_under_load_and_survives_a_restart,
    its_gate_refuses_other_scores_than_the_package_expects,
    it_leaves_its_engine_when_idle_and_comes_back_on_demand,
);

#[tokio::test]
async fn a_canary_in_the_process_of_a_model_in_the_process() {
    its_canary_is_judged(Some(Framework::Linear), Framework::Linear).await;
}

#[tokio::test]
async fn a_tree_canary_of_a_tensorflow_model() {
    its_canary_is_judged(None, Framework::Xgboost).await;
}

#[tokio::test]
async fn a_tree_canary_of_trees_with_a_factorisation_machine() {
    its_canary_is_judged(Some(Framework::GbdtFm), Framework::Xgboost).await;
}

#[tokio::test]
async fn a_remote_canary_of_a_tree_model() {
    its_canary_is_judged(Some(Framework::Xgboost), Framework::Scripted).await;
}

#[tokio::test]
async fn a_remote_canary_of_a_remote_model() {
    its_canary_is_judged(Some(Framework::Scripted), Framework::Scripted).await;
}

#[tokio::test]
async fn a_remote_canary_of_a_tensorflow_model() {
    its_canary_is_judged(None, Framework::Scripted).await;
}

#[tokio::test]
async fn a_remote_canary_of_a_model_in_the_process() {
    its_canary_is_judged(Some(Framework::Linear), Framework::Scripted).await;
}

#[tokio::test]
async fn while_one_engine_hangs_or_is_down_no_request_for_the_others_fails() {
    let three = Three::start(&[]).await;
    for (name, framework) in [(TREE, Framework::Scripted), ("vine", Framework::Linear)] {
        let package = Package { framework, ..Package::default() };
        three.stack.publish_package(name, "latest", package).await;
        ask(&three.stack, name, 3.0).await.expect("an answer");
    }
    let load = Load::start(&three.stack, &[MODEL, "vine"]);
    three.far.behave(Mode::Hangs);
    let mut within = tonic::Request::new(request_for(TREE, &[(1.0, 2.0)]));
    within.set_timeout(Duration::from_millis(300));
    let hanging = three.stack.predictions().predict(within).await.expect_err("it hangs");
    // The client's own timer and the server's deadline end the call at the same time.
    let ended = [tonic::Code::DeadlineExceeded, tonic::Code::Cancelled];
    assert!(ended.contains(&hanging.code()), "{hanging:?}");
    load.more(200).await;
    three.far.behave(Mode::Answers);
    assert_eq!(score(&ask(&three.stack, TREE, 3.0).await.expect("an answer")), 3.0);

    three.far.stop().await;
    let mut within = tonic::Request::new(request_for(TREE, &[(1.0, 2.0)]));
    within.set_timeout(Duration::from_secs(3));
    let down = three.stack.predictions().predict(within).await.expect_err("it is down");
    assert_eq!(reason(&down), "ENGINE_UNAVAILABLE");
    load.more(200).await;
    let (status, body) = three.stack.health("/readyz").await;
    assert_eq!(status, 200);
    assert!(body.starts_with("ready; engine far does not answer"), "{body}");
    three.far.resume().expect("it starts");
    assert_eq!(score(&ask(&three.stack, TREE, 3.0).await.expect("an answer")), 3.0);
    load.succeeded().await;
}

#[test]
fn the_shipped_server_refuses_the_kinds_of_tests() {
    for kind in ["linear", "scripted"] {
        let file = format!("engines: {{mine: {{kind: {kind}}}}}");
        let loaded = outrigger_server::config::load(&Kinds::shipped(), Some(&file), [], &[]);
        let refused = loaded.expect_err("the kind is unknown").to_string();
        assert!(refused.contains(&format!("unknown kind \"{kind}\"")), "{refused}");
        assert!(!Kinds::shipped().frameworks().iter().any(|it| it.name == kind));
    }
}
