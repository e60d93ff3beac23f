//! A canary whose arms run on two engines.

use std::time::Duration;

use outrigger_canary::Layer;
use outrigger_core::{Digest, EngineId, Stage};
use outrigger_lifecycle::{CanaryOutcome, CanaryPhase, Handle, Watch};
use outrigger_testkit::{package::Package, remote::Request, saved_model};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use crate::{
    canaries::{quick, with},
    kinds::{Kind, Load, score},
    rig::{PATIENCE, Rig, acquire, canaries, decided, is_in, stage, until},
    whole_life::push,
};

/// The engine of the live version; the canary's is the scripted one.
#[derive(Clone, Copy)]
enum Live {
    TensorFlowServing,
    Linear,
}

/// A process with `tree:latest` served, and its next versions for the scripted engine.
struct Tried {
    remote: Kind,
    rig: Rig,
    handle: Handle,
    live: Digest,
}

impl Tried {
    async fn start(live: Live, settings: &Value) -> Self {
        Self::start_with(live, settings, Watch::default()).await
    }

    async fn start_with(live: Live, settings: &Value, engine: Watch) -> Self {
        let remote = Kind::scripted();
        let mut rig = remote.rig().await;
        rig.config.engine = engine;
        rig.beside.push(Kind::linear().make());
        rig.config.tunables.canary.defaults = Layer::from_json(settings).expect("a configuration");
        let (digest, engine) = match live {
            Live::TensorFlowServing => {
                // The fake engine sums a treatment's features, whatever the model says.
                let (user, treatment) = (vec![0.0], vec![1.0, 1.0]);
                let model = saved_model::Linear { user, treatment, bias: 0.0 }.model();
                (rig.push("tree", "latest", &model), EngineId::default())
            }
            Live::Linear => {
                let kind = Kind::linear();
                (push(&rig, &kind, "latest", Package::default()), kind.id())
            }
        };
        let handle = rig.start();
        let lease = acquire(&handle, "tree").await.expect("served");
        assert_eq!((&lease.engine, score(&lease, 3.0).await.expect("a score")), (&engine, 3.0));
        Self { remote, rig, handle, live: digest }
    }

    fn push_canary(&self, bias: u16) -> Digest {
        push(&self.rig, &self.remote, "canary", Package { bias, ..Package::default() })
    }

    /// Waits until the canary has answered `count` more requests.
    async fn until_canary_runs(&self, count: usize) {
        let runs = || {
            let received = self.remote.server().received();
            received.iter().filter(|it| matches!(it, Request::Run(..))).count()
        };
        let (enough, mut looks) = (runs() + count, interval(Duration::from_millis(5)));
        let reached = async {
            while runs() < enough {
                looks.tick().await;
            }
        };
        timeout(PATIENCE, reached).await.expect("the canary gets requests");
    }
}

async fn is_promoted(live: Live) {
    let tried = Tried::start(live, &quick()).await;
    let load = Load::start(&tried.handle, "tree");
    let canary = tried.push_canary(0);
    let seen = canaries(&tried.handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!((seen.decisions[0].live, seen.decisions[0].canary), (Some(tried.live), canary));
    until(&tried.handle, |it| stage(it, "tree", tried.live) == Some(Stage::Downloaded)).await;
    load.succeeded().await;
    let lease = acquire(&tried.handle, "tree").await.expect("served");
    assert_eq!((lease.key.digest, &lease.engine), (canary, &tried.remote.id()));
    assert_eq!(tried.rig.registry.digest("team/tree", "latest"), Some(canary));
    assert_eq!(tried.rig.engine.violations(), []);
}

async fn is_rolled_back(live: Live) {
    let tried = Tried::start(live, &quick()).await;
    let load = Load::start(&tried.handle, "tree");
    let canary = tried.push_canary(100);
    let seen = canaries(&tried.handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(seen.decisions[0].outcome, CanaryOutcome::RolledBack);
    until(&tried.handle, |it| stage(it, "tree", canary) == Some(Stage::Downloaded)).await;
    load.succeeded().await;
    assert_eq!(tried.remote.server().loaded(), []);
    let lease = acquire(&tried.handle, "tree").await.expect("served");
    assert_eq!(lease.key.digest, tried.live);
    assert_eq!(tried.rig.registry.digest("team/tree", "latest"), Some(tried.live));
}

#[tokio::test]
async fn a_remote_canary_of_a_tensorflow_model_is_promoted() {
    is_promoted(Live::TensorFlowServing).await;
}

#[tokio::test]
async fn a_remote_canary_of_a_tensorflow_model_is_rolled_back() {
    is_rolled_back(Live::TensorFlowServing).await;
}

#[tokio::test]
async fn a_remote_canary_of_a_model_in_the_process_is_promoted() {
    is_promoted(Live::Linear).await;
}

#[tokio::test]
async fn a_remote_canary_of_a_model_in_the_process_is_rolled_back() {
    is_rolled_back(Live::Linear).await;
}

#[tokio::test]
async fn while_the_canarys_engine_is_down_live_answers_and_the_trial_goes_on_afterwards() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    for live in [Live::TensorFlowServing, Live::Linear] {
        // The outage lasts longer than this patience with an engine.
        let engine = Watch { patience: Duration::from_millis(50), ..Watch::default() };
        let tried = Tried::start_with(live, &settings, engine).await;
        let load = Load::start(&tried.handle, "tree");
        tried.push_canary(0);
        canaries(&tried.handle, is_in(CanaryPhase::Split)).await;
        let (server, id) = (tried.remote.server(), tried.remote.id());
        server.stop().await;
        until(&tried.handle, |it| !it.engines[&id].reachable).await;
        load.more(400).await;
        let lease = acquire(&tried.handle, "tree").await.expect("served");
        assert_eq!(lease.key.digest, tried.live);
        assert_eq!(tried.handle.canaries().borrow().decisions, [], "an outage is no evidence");
        server.resume().expect("it starts");
        until(&tried.handle, |it| it.engines[&id].reachable).await;
        tried.until_canary_runs(50).await;
        load.succeeded().await;
        assert_eq!(tried.handle.canaries().borrow().canaries[0].phase, CanaryPhase::Split);
        assert_eq!(tried.handle.canaries().borrow().decisions, []);
    }
}
