//! Tests of promotions that are aborted, or that the registry does not confirm.

use outrigger_canary::Layer;
use outrigger_core::{Digest, Failure, Reason};
use outrigger_lifecycle::{Act, By, CanaryOutcome, CanaryPhase, Handle};
use outrigger_testkit::registry::{Gate, Rule};
use serde_json::{Value, json};
use std::time::Duration;

use crate::rig::{Rig, acquire, canaries, decided, is_in, model, name, somebody};

const LIVE: &str = "/manifests/latest";

/// A control plane with a canary of `churn:latest` whose trial never ends by itself, and with a
/// single look-up per tag.
struct Trial {
    rig: Rig,
    handle: Handle,
    live: Digest,
    canary: Digest,
}

impl Trial {
    async fn start(settings: &Value) -> Self {
        let mut rig = Rig::new().await;
        rig.config.tunables.canary.defaults = Layer::from_json(settings).expect("a configuration");
        rig.config.images.poll_interval = Duration::from_secs(3600);
        let live = rig.push("churn", "latest", &model(1));
        let canary = rig.push("churn", "latest_canary", &model(2));
        let handle = started(&mut rig).await;
        rig.registry.forget_requests();
        Self { rig, handle, live, canary }
    }

    async fn decide(&self, act: Act, by: By) -> Result<(), Failure> {
        let tag = "latest".parse().expect("a valid tag");
        self.handle.decide(&name("churn"), &tag, act, by).await
    }

    async fn promote(&self) {
        self.decide(Act::Promote, somebody()).await.expect("promoting");
    }

    async fn abort(&self) -> Result<(), Failure> {
        self.decide(Act::Abort, By { who: "bob".to_owned(), why: "no".to_owned() }).await
    }

    fn tagged(&self) -> Option<Digest> {
        self.rig.registry.digest("team/churn", "latest")
    }

    async fn asked(&self, method: &str, path: &str) {
        self.rig.requested(|it| it.count(method, path) > 0).await;
    }

    /// Waits until the promotion has failed for the first time.
    async fn failed(&self) {
        let has_message = |it: &outrigger_lifecycle::Canaries| {
            it.canaries.first().is_some_and(|canary| !canary.message.is_empty())
        };
        canaries(&self.handle, has_message).await;
    }
}

async fn started(rig: &mut Rig) -> Handle {
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    handle
}

#[tokio::test]
async fn an_abort_before_the_tag_is_pushed_wins() {
    let trial = Trial::start(&json!({})).await;
    let gate = Gate::new();
    trial.rig.registry.script(Rule::head(LIVE).times(1).answered_after(&gate));
    trial.promote().await;
    trial.asked("HEAD", LIVE).await;
    trial.abort().await.expect("nothing was pushed");
    let seen = canaries(&trial.handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(seen.decisions[0].by, "bob");
    trial.rig.registry.forget_requests();
    gate.open();
    // The next request of the promotion, if it makes one.
    let next = tokio::time::timeout(Duration::from_millis(500), trial.asked("PUT", LIVE));
    next.await.expect_err("it pushes all the same");
    assert_eq!(trial.tagged(), Some(trial.live));
}

#[tokio::test]
async fn an_abort_after_the_push_is_refused_as_promoted() {
    for confirmed in [false, true] {
        let trial = Trial::start(&json!({})).await;
        let gate = Gate::new();
        let push = Rule::on("PUT", LIVE).times(1).answered_after(&gate);
        trial.rig.registry.script(if confirmed { push } else { push.processed_but_answers(500) });
        trial.promote().await;
        trial.asked("PUT", LIVE).await;
        let mut abort = std::pin::pin!(trial.abort());
        assert!(futures::poll!(&mut abort).is_pending());
        gate.open();
        let refused = abort.await.expect_err("the tag has moved");
        assert_eq!(refused.reason, Reason::CanaryPromoted, "{refused:?}");
        let seen = canaries(&trial.handle, decided(CanaryOutcome::Promoted)).await;
        assert_eq!((seen.decisions.len(), seen.decisions[0].by.as_str()), (1, "ada"));
        assert_eq!(trial.tagged(), Some(trial.canary));
    }
}

#[tokio::test]
async fn an_abort_wins_where_the_registry_refuses_the_push() {
    let trial = Trial::start(&json!({})).await;
    let gate = Gate::new();
    trial.rig.registry.script(Rule::on("PUT", LIVE).status(403).answered_after(&gate));
    trial.promote().await;
    trial.asked("PUT", LIVE).await;
    let mut abort = std::pin::pin!(trial.abort());
    assert!(futures::poll!(&mut abort).is_pending());
    gate.open();
    abort.await.expect("the tag is where it was");
    let seen = canaries(&trial.handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!((seen.decisions.len(), seen.decisions[0].by.as_str()), (1, "bob"));
    assert_eq!(trial.tagged(), Some(trial.live));
}

#[tokio::test]
async fn an_abort_promises_nothing_while_the_state_of_the_tag_is_unknown() {
    let trial = Trial::start(&json!({})).await;
    trial.rig.registry.script(Rule::on("PUT", LIVE).processed_but_answers(500));
    // The promotion looks the tag up before the push; this look-up is answered.
    trial.rig.registry.script(Rule::head(LIVE).times(1));
    trial.rig.registry.script(Rule::head(LIVE).status(503));
    trial.promote().await;
    trial.failed().await;
    let refused = trial.abort().await.expect_err("it may be live");
    assert_eq!(refused.reason, Reason::RegistryUnavailable, "{refused:?}");
    trial.rig.registry.behave();
    let seen = canaries(&trial.handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!(seen.decisions.len(), 1);
}

#[tokio::test]
async fn where_the_look_says_that_the_tag_has_not_moved_an_abort_wins() {
    let trial = Trial::start(&json!({})).await;
    trial.rig.registry.script(Rule::on("PUT", LIVE).status(500));
    trial.rig.registry.script(Rule::head(LIVE).times(1));
    trial.rig.registry.script(Rule::head(LIVE).times(1).status(503));
    trial.promote().await;
    trial.failed().await;
    trial.abort().await.expect("the tag is where it was");
    canaries(&trial.handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(trial.tagged(), Some(trial.live));
}

#[tokio::test]
async fn an_abort_after_a_restart_waits_for_the_push_of_the_earlier_process() {
    let mut trial = Trial::start(&json!({})).await;
    let never = Gate::new();
    trial.rig.registry.script(Rule::on("PUT", LIVE).times(1).answered_after(&never));
    trial.promote().await;
    trial.asked("PUT", LIVE).await;
    trial.rig.stop().await;
    // Neither the look-up of the tag nor that of the promotion is answered yet.
    let gate = Gate::new();
    trial.rig.registry.script(Rule::head(LIVE).answered_after(&gate));
    let handle = trial.rig.start();
    acquire(&handle, "churn").await.expect("served");
    canaries(&handle, is_in(CanaryPhase::Promoting)).await;
    trial.handle = handle;
    let mut abort = std::pin::pin!(trial.abort());
    assert!(futures::poll!(&mut abort).is_pending());
    gate.open();
    assert_eq!(abort.await.expect_err("it is live").reason, Reason::CanaryPromoted);
    let seen = canaries(&trial.handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!(seen.decisions[0].by, "ada");
}

#[tokio::test]
async fn a_canary_whose_live_tag_has_moved_elsewhere_can_be_aborted() {
    let trial = Trial::start(&json!({})).await;
    // The new image cannot be served, so the trial goes on.
    let next = trial.rig.registry.push_image("team/churn", "latest", &[], "{}");
    trial.promote().await;
    canaries(&trial.handle, |it| {
        it.canaries.first().is_some_and(|it| it.message == "the tag has moved in the meantime")
    })
    .await;
    trial.abort().await.expect("it is not live");
    canaries(&trial.handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(trial.tagged(), Some(next));
}

#[tokio::test]
async fn a_tag_that_is_moved_on_before_the_promotion_is_seen_ends_the_trial() {
    for elsewhere in [false, true] {
        let trial = Trial::start(&json!({})).await;
        let registry = &trial.rig.registry;
        let (push, look) = (Gate::new(), Gate::new());
        registry.script(Rule::on("PUT", LIVE).times(1).answered_after(&push));
        trial.promote().await;
        trial.asked("PUT", LIVE).await;
        registry.forget_requests();
        // The push is confirmed, but the answer to the next look-up is held back until the tag was
        // moved again.
        registry.script(Rule::head(LIVE).times(1).answered_after(&look));
        push.open();
        trial.asked("HEAD", LIVE).await;
        if elsewhere {
            // The new image cannot be served, so live stays as it is.
            registry.push_image("team/churn", "latest", &[], "{}");
        } else {
            registry.tag("team/churn", "latest", trial.live);
        }
        look.open();
        let seen = canaries(&trial.handle, decided(CanaryOutcome::Promoted)).await;
        assert_eq!((seen.decisions.len(), seen.decisions[0].by.as_str()), (1, "ada"));
        canaries(&trial.handle, is_in(CanaryPhase::Rejected)).await;
        let served = acquire(&trial.handle, "churn").await.expect("served");
        assert_eq!(served.key.digest, trial.live);
    }
}
