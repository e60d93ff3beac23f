//! Trials of canaries from start to conclusion, as callers and operators see them.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use outrigger_proto::outrigger::v1::{
    AbortCanaryRequest, Arm, Canary, ListCanariesRequest, ListCanariesResponse, ModelSelector,
    PredictRequest, PredictResponse, canary::Phase, canary_decision::Outcome,
    model_selector::Version,
};
use outrigger_testkit::engine::{Gate, Loading};
use tokio::time::Instant;

use crate::{
    canaries::service,
    logged::{Lines, logged},
    stack::{Stack, by_name, hold, linear, request},
};

/// The time limit for any wait, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with a model of the test's own, because metrics are shared by all tests of the process.
/// Its canaries are tried with `settings`.
struct Tried {
    stack: Stack,
    model: &'static str,
    /// The tag that requests select; `None` selects the default tag.
    tag: Option<&'static str>,
}

impl Tried {
    async fn start(model: &'static str, settings: &str) -> Self {
        Self::start_with(model, settings, &[]).await
    }

    async fn start_with(model: &'static str, settings: &str, others: &[(&str, &str)]) -> Self {
        let usual = [("canary.defaults", settings), ("images.poll_interval", "1s")];
        let stack = Stack::with(&[&usual, others].concat()).await;
        stack.publish(model, &linear(0.0)).await;
        let tried = Self { stack, model, tag: None };
        tried.ask("").await;
        tried
    }

    fn request(&self, key: &str) -> PredictRequest {
        let version = self.tag.map(|tag| Version::Tag(tag.to_owned()));
        PredictRequest {
            model: Some(ModelSelector { version, ..by_name(self.model) }),
            routing_key: key.to_owned(),
            ..request(&[(1.0, 2.0)])
        }
    }

    async fn ask(&self, key: &str) -> PredictResponse {
        let asked = self.stack.predictions().predict(self.request(key)).await;
        asked.expect("an answer").into_inner()
    }

    async fn list(&self) -> ListCanariesResponse {
        let asked = ListCanariesRequest { model: self.model.to_owned() };
        let listed = service(self.stack.addresses.grpc).list_canaries(asked).await;
        listed.expect("canaries").into_inner()
    }

    /// Sends requests until the condition holds.
    async fn until(
        &self,
        condition: impl Fn(&ListCanariesResponse) -> bool,
    ) -> ListCanariesResponse {
        let end = Instant::now() + PATIENCE;
        loop {
            for _ in 0..50 {
                self.ask("").await;
            }
            let seen = self.list().await;
            if condition(&seen) {
                return seen;
            }
            assert!(Instant::now() < end, "it never came to that: {seen:#?}");
        }
    }

    /// Whether a series of the model has that value.
    async fn shows(&self, series: &str, value: &str) -> bool {
        let line = format!("{} {value}", series.replace("MODEL", self.model));
        let (_, text) = self.stack.health("/metrics").await;
        text.lines().any(|it| it == line)
    }
}

fn is_in(phase: Phase) -> impl Fn(&ListCanariesResponse) -> bool {
    move |it| it.canaries.first().is_some_and(|it| it.phase() == phase)
}

fn decided(seen: &ListCanariesResponse) -> bool {
    !seen.decisions.is_empty()
}

/// The trial concludes within seconds, after a few hundred requests.
const QUICK: &str = r#"{
    "minimumTime": "0.1s", "minimumRequests": 100,
    "warmUp": {"requests": 100}, "ramp": {"share": 0.5},
    "signals": {
        "errorRate": {"margin": 0.2}, "nonFinite": {"limits": {"margin": 0.2}},
        "latency": {"limits": {"off": true}}, "scoreDrift": {"off": true}
    }
}"#;

/// The canary gets half of the traffic, and the trial does not conclude.
const ENDLESS: &str = r#"{
    "minimumTime": "3600s", "warmUp": {"requests": 100}, "ramp": {"share": 0.5},
    "signals": {"latency": {"limits": {"off": true}}, "scoreDrift": {"off": true}}
}"#;

#[tokio::test]
async fn another_default_tag_has_a_canary_by_its_own_name() {
    let settings = [
        ("canary.defaults", QUICK),
        ("images.default_tag", "live"),
        ("images.poll_interval", "1s"),
    ];
    let stack = Stack::with(&settings).await;
    let live = stack.publish_as("trials/default", "live", &linear(0.0)).await;
    let tried = Tried { stack, model: "trials/default", tag: None };
    assert_eq!(tried.ask("").await.model.unwrap().digest, live);
    let canary = tried.stack.publish_as(tried.model, "live_canary", &linear(1.0)).await;
    // This tag is not the canary tag of the tag that is served, so no trial begins for it.
    tried.stack.publish_as(tried.model, "latest_canary", &linear(2.0)).await;
    let seen = tried.until(is_in(Phase::Split)).await;
    let Canary { tag, canary_tag, canary_digest, .. } = &seen.canaries[0];
    assert_eq!([tag, canary_tag, canary_digest], ["live", "live_canary", canary.as_str()]);
    let seen = tried.until(decided).await;
    let decision = &seen.decisions[0];
    assert_eq!((decision.outcome(), decision.tag.as_str()), (Outcome::Promoted, "live"));
    let model = tried.ask("").await.model.unwrap();
    assert_eq!((model.digest.as_str(), model.tag.as_str()), (canary.as_str(), "live"));
    assert_eq!(model.arm(), Arm::Live);
}

/// A trial of two seconds that gets too little evidence for a verdict.
fn starving(on_starved: &str) -> String {
    format!(
        r#"{{
            "minimumTime": "1s", "maximumTime": "2s", "minimumRequests": "1000000000",
            "warmUp": {{"requests": 100}}, "onStarved": "ON_STARVED_{on_starved}"
        }}"#
    )
}

#[tokio::test]
async fn a_starved_canary_ends_as_configured() {
    let ends = [
        ("ROLLBACK", "trials/starved-rollback", Outcome::RolledBack, "rolled_back"),
        ("PROMOTE", "trials/starved-promote", Outcome::Promoted, "promoted"),
    ];
    for (on_starved, model, outcome, counted) in ends {
        let tried = Tried::start(model, &starving(on_starved)).await;
        let live = tried.ask("").await.model.unwrap().digest;
        let canary = tried.stack.publish_as(model, "latest_canary", &linear(1.0)).await;
        let seen = tried.until(decided).await;
        let decision = &seen.decisions[0];
        assert_eq!((decision.outcome(), decision.by.as_str()), (outcome, "judge"));
        assert!(decision.reason.starts_with("it will not be decided in time; "), "{decision:?}");
        let rejected = outcome == Outcome::RolledBack;
        let expected = if rejected { live } else { canary };
        assert_eq!(tried.ask("").await.model.unwrap().digest, expected);
        assert_eq!(seen.canaries.iter().any(|it| it.phase() == Phase::Rejected), rejected);
        for (series, value) in [
            (r#"outrigger_canary_starved_total{model="MODEL"}"#.to_owned(), "1"),
            (
                format!(r#"outrigger_canary_decisions_total{{model="MODEL",outcome="{counted}"}}"#),
                "1",
            ),
            (r#"outrigger_canary_starving{model="MODEL",tag="latest"}"#.to_owned(), "0"),
        ] {
            assert!(tried.shows(&series, value).await, "{series}");
        }
    }
}

#[tokio::test]
async fn a_starved_canary_that_continues_is_reported() {
    let tried = Tried::start("trials/starved-continue", &starving("CONTINUE")).await;
    tried.stack.publish_as(tried.model, "latest_canary", &linear(1.0)).await;
    let seen = tried
        .until(|it| {
            let verdict = it.canaries.first().and_then(|it| it.verdict.as_ref());
            verdict.is_some_and(|it| it.decision == "starved")
        })
        .await;
    assert_eq!((seen.canaries[0].phase(), seen.canaries[0].share), (Phase::Split, 0.1));
    assert_eq!(seen.decisions, []);
    for (series, value) in [
        (r#"outrigger_canary_starved_total{model="MODEL"}"#, "1"),
        (r#"outrigger_canary_starving{model="MODEL",tag="latest"}"#, "1"),
    ] {
        assert!(tried.shows(series, value).await, "{series}");
    }
}

#[tokio::test]
async fn a_canary_that_is_not_up_yet_is_seen_to_wait() {
    let tried = Tried::start("trials/waiting", ENDLESS).await;
    let gate = Gate::closed();
    let held = gate.clone();
    tried.stack.engine.on_load(move |_| Loading::Held(held.clone()));
    let canary = tried.stack.publish_as(tried.model, "latest_canary", &linear(1.0)).await;
    let seen = tried.until(is_in(Phase::Waiting)).await;
    assert_eq!(seen.canaries[0].canary_digest, canary);
    assert_eq!(seen.canaries[0].message, "the canary is being brought up");
    assert_eq!((seen.canaries[0].share, seen.canaries[0].verdict.as_ref()), (0.0, None));
    gate.open();
    tried.until(is_in(Phase::Split)).await;
}

#[tokio::test]
async fn a_paused_trial_shows_its_earlier_evidence() {
    let idle = [("store.idle_ttl", "2s")];
    let tried = Tried::start_with("trials/idle", ENDLESS, &idle).await;
    tried.stack.publish_as(tried.model, "latest_canary", &linear(1.0)).await;
    let requests = |it: &ListCanariesResponse| {
        let verdict = it.canaries.first().and_then(|it| it.verdict.as_ref());
        verdict.map_or(0, |it| it.canary_requests)
    };
    let before = requests(&tried.until(|it| requests(it) > 200).await);
    let mut seen = tried.list().await;
    while !is_in(Phase::Waiting)(&seen) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        seen = tried.list().await;
    }
    let why = "no requests for trials/idle:latest: its trial continues with the next one";
    assert_eq!(seen.canaries[0].message, why);
    assert!(seen.canaries[0].elapsed.is_some_and(|it| (it.seconds, it.nanos) > (0, 0)));
    let share = r#"outrigger_canary_share{model="MODEL",tag="latest"}"#;
    assert!(tried.shows(share, "0").await);
    let end = Instant::now() + PATIENCE;
    let seen = loop {
        tried.ask("").await;
        let seen = tried.list().await;
        if requests(&seen) > 0 && tried.shows(share, "0.5").await {
            break seen;
        }
        assert!(Instant::now() < end, "{seen:#?}");
    };
    assert!(requests(&seen) >= before, "{seen:#?}");
    assert_eq!(seen.decisions, []);
}

#[tokio::test]
async fn two_tags_of_a_model_are_tried_side_by_side() {
    let mut tried = Tried::start("trials/tags", ENDLESS).await;
    for tag in ["beta", "beta_canary", "latest_canary"] {
        tried.stack.publish_as(tried.model, tag, &linear(tag.len() as f32)).await;
    }
    tried.until(is_in(Phase::Split)).await;
    tried.tag = Some("beta");
    let both = |it: &ListCanariesResponse| {
        it.canaries.iter().filter(|it| it.phase() == Phase::Split).count() == 2
    };
    let seen = tried.until(both).await;
    let tags: Vec<_> = seen.canaries.iter().map(|it| it.tag.as_str()).collect();
    assert_eq!(tags, ["beta", "latest"]);
    let share = |tag: &str| format!(r#"outrigger_canary_share{{model="MODEL",tag="{tag}"}}"#);
    for tag in ["beta", "latest"] {
        assert!(tried.shows(&share(tag), "0.5").await, "{tag}");
    }
    let abort = AbortCanaryRequest {
        model: tried.model.to_owned(),
        tag: "beta".to_owned(),
        by: "ada".to_owned(),
        reason: "a hunch".to_owned(),
    };
    service(tried.stack.addresses.admin).abort_canary(abort).await.expect("aborted");
    assert!(tried.shows(&share("beta"), "0").await);
    assert!(tried.shows(&share("latest"), "0.5").await, "it goes on");
}

#[tokio::test]
async fn callers_of_both_arms_wait_for_an_engine_that_restarts() {
    let patient = [("server.default_deadline", "2m")];
    let tried = Tried::start_with("trials/restart", ENDLESS, &patient).await;
    tried.stack.publish_as(tried.model, "latest_canary", &linear(1.0)).await;
    tried.until(is_in(Phase::Split)).await;
    let (gate, mut arrivals) = hold(&tried.stack);
    let keys: Vec<_> = (0..16).map(|key| key.to_string()).collect();
    let restart = async {
        for _ in &keys {
            arrivals.recv().await.expect("a call");
        }
        tried.stack.engine.stop().await;
        gate.open();
        tried.stack.engine.resume().expect("the address is free");
    };
    let (answers, ()) = tokio::join!(join_all(keys.iter().map(|key| tried.ask(key))), restart);
    for answer in answers {
        assert_eq!(answer.model.expect("the version that answered").arm(), Arm::Live);
    }
}

/// The arm and share of each exposure in the log, in order, by the routing keys with that prefix.
fn exposed(lines: &Lines, prefix: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut exposed = BTreeMap::<_, Vec<_>>::new();
    for line in lines.all() {
        let Some(key) = line["routing_key"].as_str().filter(|key| key.starts_with(prefix)) else {
            continue;
        };
        let arm = line["arm"].as_str().expect("a text").to_owned();
        let share = line["share"].as_f64().expect("a number");
        exposed.entry(key.to_owned()).or_default().push((arm, share));
    }
    exposed
}

#[tokio::test]
async fn a_key_that_changes_its_arm_is_exposed_again() {
    let lines = logged();
    let settings = r#"{
        "minimumTime": "3600s", "warmUp": {"requests": 100},
        "ramp": {"steps": {"steps": [{"share": 0.1, "requests": 150}, {"share": 0.9}]}},
        "signals": {"latency": {"limits": {"off": true}}, "scoreDrift": {"off": true}}
    }"#;
    let tried = Tried::start("trials/exposed", settings).await;
    let (mut logged, mut moved) = (BTreeMap::<String, usize>::new(), 0);
    // The second canary begins a new trial.
    for bias in [1.0, 2.0] {
        let canary = tried.stack.publish_as(tried.model, "latest_canary", &linear(bias)).await;
        for share in [0.1, 0.9] {
            let has_share = |it: &ListCanariesResponse| {
                let tried = it.canaries.iter().find(|it| it.canary_digest == canary);
                tried.is_some_and(|it| it.share == share)
            };
            tried.until(has_share).await;
            for key in (0..40).map(|number| format!("moved-{number}")) {
                let arm = tried.ask(&key).await.model.unwrap().arm();
                assert_eq!(tried.ask(&key).await.model.unwrap().arm(), arm);
            }
        }
        let exposed = exposed(&lines, "moved-");
        assert_eq!(exposed.len(), 40);
        for (key, seen) in exposed {
            let before = logged.insert(key, seen.len()).unwrap_or_default();
            let seen = seen[before..].iter().map(|(arm, share)| (arm.as_str(), *share));
            let seen = seen.collect::<Vec<_>>();
            moved += usize::from(seen == [("live", 0.1), ("canary", 0.9)]);
            assert!(
                matches!(seen[..], [("live" | "canary", 0.1)] | [("live", 0.1), ("canary", 0.9)]),
                "{seen:?}"
            );
        }
    }
    assert!(moved > 40, "{moved} of about 64");
}

#[tokio::test]
async fn an_explained_request_counts_for_nothing_and_its_key_is_still_to_come() {
    let lines = logged();
    let tried = Tried::start("trials/explained", ENDLESS).await;
    tried.stack.publish_as(tried.model, "latest_canary", &linear(1.0)).await;
    tried.until(is_in(Phase::Split)).await;
    let mut arms = BTreeMap::new();
    for number in 0..40 {
        let key = format!("explained-{number}");
        let explained = tried.stack.predictions().explain(tried.request(&key)).await;
        let model = explained.expect("explained").into_inner().model.unwrap();
        arms.insert(key, model.arm());
    }
    assert!([Arm::Live, Arm::Canary].iter().all(|arm| arms.values().any(|it| it == arm)));
    assert!(exposed(&lines, "explained-").is_empty(), "nobody has had an answer");
    for (key, arm) in &arms {
        assert_eq!(tried.ask(key).await.model.unwrap().arm(), *arm, "the one that was explained");
    }
    let exposed = exposed(&lines, "explained-");
    assert!(exposed.values().all(|seen| seen.len() == 1));
    assert!(exposed.len() > 35, "{}: hardly any of them passes for another", exposed.len());
}
