use std::{collections::BTreeMap, sync::Mutex};

use futures::future::BoxFuture;
use outrigger_canary::{Decision, Layer, Outcome, Salt, Verdict};
use outrigger_core::{Arm, Digest, Failure, ServableId, ServableName, Tensor};
use outrigger_features::Plan;
use outrigger_run::{Call, Run, RunError};
use outrigger_score::Scorer;
use serde_json::json;

use super::*;
use crate::{
    CanaryOutcome, CanaryPhase, Chosen, Evidence, LocalJudge, OnCanary, PackageFacts, Profiled,
    TagState,
};

/// A judge that follows a script.
#[derive(Clone)]
struct Scripted(Arc<Mutex<Script>>);

struct Script {
    decision: Decision,
    /// The evidence of each call: the tag, the canary, and the requests of both arms.
    evidence: Vec<(TagKey, Digest, u64)>,
}

impl Scripted {
    fn new() -> Self {
        let script = Script { decision: Decision::Continue, evidence: Vec::new() };
        Self(Arc::new(Mutex::new(script)))
    }

    fn decides(&self, decision: Decision) {
        self.0.lock().expect("no test panics with it").decision = decision;
    }

    fn evidence(&self) -> Vec<(TagKey, Digest, u64)> {
        self.0.lock().expect("no test panics with it").evidence.clone()
    }
}

impl Judge for Scripted {
    fn verdict(&mut self, evidence: &Evidence<'_>) -> Verdict {
        let mut script = self.0.lock().expect("no test panics with it");
        let (live, canary) = evidence.statistics.requests();
        script.evidence.push((evidence.tag.clone(), evidence.canary, live + canary));
        let verdict = evidence.decider.verdict(evidence.statistics, evidence.course);
        Verdict { decision: script.decision, ..verdict }
    }
}

fn key(tag: &str) -> TagKey {
    let name = "churn".parse().expect("a valid name");
    TagKey { name, tag: tag.parse().expect("a valid tag") }
}

fn version(text: &str) -> ModelKey {
    ModelKey { name: key("latest").name, digest: Digest::of(text.as_bytes()) }
}

fn live() -> ModelKey {
    version("live")
}

fn canary() -> ModelKey {
    version("canary")
}

/// A context with the tag `latest` and a canary, both up.
struct Cx {
    now: Moment,
    tags: BTreeMap<TagKey, TagState>,
}

impl Cx {
    fn new() -> Self {
        let [live, canary] = [live(), canary()].map(|version| Some(version.digest));
        let latest =
            TagState { serving: live, registry: live, followed: true, ..TagState::default() };
        let latest_canary = TagState { serving: canary, registry: canary, canary, ..latest };
        let tags = [(key("latest"), latest), (key("latest_canary"), latest_canary)];
        Self { now: Moment::at(Duration::from_secs(1)), tags: tags.into() }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }
}

impl Context for Cx {
    fn now(&self) -> Moment {
        self.now
    }

    fn tags_of(&self, _: &ModelName) -> Vec<TagKey> {
        self.tags.keys().cloned().collect()
    }

    fn tag(&self, key: &TagKey) -> Option<TagState> {
        self.tags.get(key).copied()
    }

    fn canary(&self, live: &TagKey) -> Option<(TagKey, Digest)> {
        let tag = key("latest_canary");
        let canary = self.tags.get(&tag)?.canary.filter(|_| *live == key("latest"))?;
        Some((tag, canary))
    }

    fn canary_tag(&self, live: &TagKey, canary: Digest) -> Option<TagKey> {
        self.canary(live).filter(|(_, named)| *named == canary).map(|(tag, _)| tag)
    }

    fn live_tag(&self, canary_tag: &TagKey) -> Option<TagKey> {
        (*canary_tag == key("latest_canary")).then(|| key("latest"))
    }

    fn answer(&self, version: &ModelKey) -> Answer {
        Answer::Ready(version.clone(), 1)
    }

    fn is_suspended(&self, _: &ModelKey) -> bool {
        false
    }

    fn package(&self, _: &ModelKey) -> PackageFacts {
        PackageFacts::default()
    }

    fn retry_delay(&self, _: u32) -> Duration {
        Duration::from_secs(1)
    }
}

/// A version that no request reaches.
#[derive(Debug)]
struct Version(ModelKey, Scorer);

impl Servable for Version {
    fn key(&self) -> &ModelKey {
        &self.0
    }

    fn scorer(&self) -> &Scorer {
        &self.1
    }

    fn profile(&self) -> Option<&Arc<Profiled>> {
        None
    }
}

struct Never;

impl Run for Never {
    fn run(&self, _: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        unreachable!("no request is sent")
    }
}

fn servable(key: ModelKey) -> Arc<Version> {
    let metadata = json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "tensorflow",
        "inputs": [{"tensor": "offer", "entity": "treatment", "dtype": "float32",
                    "features": [{"name": "price", "missing": "nan"}]}],
        "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}],
    });
    let metadata = outrigger_features::Metadata::parse(metadata.to_string().as_bytes());
    let scorer = Scorer {
        id: ServableId { name: ServableName::of(&key.name), version: outrigger_core::Version(1) },
        plan: Arc::new(Plan::compile(metadata.expect("valid"))),
        run: Arc::new(Never),
        batches: false,
        limits: Default::default(),
        flight: Default::default(),
    };
    Arc::new(Version(key, scorer))
}

/// The configuration of trials with half of the requests on the canary.
fn config(mode: &str) -> CanaryDefaults {
    let defaults = json!({
        "mode": mode, "minimumRequests": 100, "warmUp": {"requests": 100},
        "ramp": {"share": 0.5},
    });
    let defaults = Layer::from_json(&defaults).expect("a configuration");
    CanaryDefaults { defaults, ..CanaryDefaults::default() }
}

fn salt() -> Salt {
    Salt::of_secret(b"a secret")
}

struct Rig {
    trials: Trials,
    cx: Cx,
}

impl Rig {
    /// Creates trials with the canary on trial, live measured, and the traffic split.
    fn split(judge: impl Judge + 'static) -> Self {
        Self::in_mode("MODE_LOCAL", judge)
    }

    fn in_mode(mode: &str, judge: impl Judge + 'static) -> Self {
        let config = config(mode);
        let (trials, _) = Trials::new(config, salt(), Box::new(judge));
        let mut rig = Self { trials, cx: Cx::new() };
        rig.trials.renew(&BTreeSet::from([key("latest").name]), &rig.cx);
        rig.requests(100);
        rig.judge();
        assert_eq!(rig.shown().canaries[0].phase, CanaryPhase::Split);
        rig
    }

    fn the_split(&self) -> Split<Version> {
        let answer = Answer::Ready(live(), 1);
        let arms = self.trials.arms(&key("latest"), &answer, &self.cx).expect("on trial");
        let (live, canary) = (servable(live()), servable(canary()));
        self.trials.split(&key("latest"), &arms, live, canary).expect("on trial")
    }

    /// Records requests that both arms answer alike.
    fn requests(&mut self, count: usize) {
        let split = self.the_split();
        for number in 0..count {
            let chosen = split.choose("");
            let score = Outcome::Scored(number as f64 / count as f64);
            split.observe(chosen.arm, chosen.is_counted, Some(Duration::from_millis(10)), score);
            chosen.on_canary.iter().for_each(OnCanary::end);
        }
    }

    /// Lets a second pass and judges the trials.
    fn judge(&mut self) -> Vec<Effect> {
        self.cx.pass(1);
        self.trials.judge(&self.cx);
        let effects = self.trials.take_effects();
        self.trials.show(&self.trials.models(), &self.cx);
        assert!(self.trials.take_effects().is_empty());
        // Only a trial that is running has to be judged again.
        assert_eq!(self.trials.judge_at().is_some(), self.is_on_trial());
        assert!(self.trials.judge_at().is_none_or(|at| at > self.cx.now));
        effects
    }

    fn shown(&self) -> Arc<Canaries> {
        self.trials.subscribe().borrow().clone()
    }

    fn is_on_trial(&self) -> bool {
        self.trials.arms(&key("latest"), &Answer::Ready(live(), 1), &self.cx).is_some()
    }
}

#[test]
fn a_trial_goes_on_until_its_judge_decides() {
    let judge = Scripted::new();
    let mut rig = Rig::split(judge.clone());
    for turn in 1..=3 {
        rig.requests(200);
        let effects = rig.judge();
        assert!(effects.is_empty());
        let evidence = judge.evidence();
        let last = evidence.last().expect("it was asked");
        assert_eq!(*last, (key("latest"), canary().digest, 200 * turn));
    }
    assert!(rig.is_on_trial());
}

#[test]
fn a_trial_rolls_back_when_its_judge_says_so() {
    let judge = Scripted::new();
    let mut rig = Rig::split(judge.clone());
    judge.decides(Decision::Rollback);
    let effects = rig.judge();
    let rejects = |it: &Effect| matches!(it, Effect::Reject(tag, digest) if (tag, *digest) == (&key("latest_canary"), canary().digest));
    assert!(matches!(&effects[..], [effect] if rejects(effect)));
    assert!(!rig.is_on_trial());
    let decision = rig.shown().decisions[0].clone();
    assert_eq!((decision.outcome, &*decision.by), (CanaryOutcome::RolledBack, "judge"));
}

#[test]
fn a_trial_promotes_when_its_judge_says_so_and_ends_when_the_canary_is_live() {
    let judge = Scripted::new();
    let mut rig = Rig::split(judge.clone());
    judge.decides(Decision::Promote);
    let effects = rig.judge();
    let promotes = |it: &Effect| matches!(it, Effect::Promote(tag, digest) if (tag, *digest) == (&key("latest"), canary().digest));
    assert!(matches!(&effects[..], [effect] if promotes(effect)));
    assert!(rig.judge().is_empty(), "it is promoted once");
    let latest = rig.cx.tags.get_mut(&key("latest")).expect("known");
    latest.serving = Some(canary().digest);
    rig.trials.renew(&BTreeSet::from([key("latest").name]), &rig.cx);
    assert!(!rig.is_on_trial());
    rig.trials.show(&rig.trials.models(), &rig.cx);
    assert_eq!(rig.shown().decisions[0].outcome, CanaryOutcome::Promoted);
}

#[test]
fn the_local_judge_decides_by_the_requests_of_this_process() {
    let mut rig = Rig::split(LocalJudge);
    let answer = Answer::Ready(live(), 1);
    let arms = rig.trials.arms(&key("latest"), &answer, &rig.cx).expect("on trial");
    let (live, canary) = (servable(live()), servable(canary()));
    let split = rig.trials.split(&key("latest"), &arms, live, canary).expect("on trial");
    for _ in 0..2000 {
        let Chosen { arm, on_canary, .. } = split.choose("");
        let outcome = if arm == Arm::Canary { Outcome::Failed } else { Outcome::Scored(0.5) };
        split.observe(arm, true, Some(Duration::from_millis(10)), outcome);
        on_canary.iter().for_each(OnCanary::end);
    }
    rig.judge();
    assert_eq!(rig.shown().decisions[0].outcome, CanaryOutcome::RolledBack);
}

#[test]
fn no_request_counts_while_the_canary_has_no_room() {
    let mut rig = Rig::split(Scripted::new());
    let split = rig.the_split();
    let mut in_flight = Vec::new();
    while in_flight.is_empty() {
        in_flight.extend(split.choose("").on_canary);
    }
    for user in 0..100 {
        let chosen = split.choose(&format!("user-{user}"));
        assert_eq!((chosen.arm, chosen.is_counted), (Arm::Live, false));
        split.observe(Arm::Live, false, Some(Duration::from_millis(10)), Outcome::Empty);
    }
    in_flight.iter().for_each(OnCanary::end);
    rig.judge();
    let verdict = rig.shown().canaries[0].verdict.clone().expect("judged");
    assert_eq!((verdict.live, verdict.canary), (0, 0));
    // The keys have not counted yet, so they count now, in their own arms.
    let mut counted = [0, 0];
    for user in 0..100 {
        let chosen = split.choose(&format!("user-{user}"));
        counted[usize::from(chosen.arm == Arm::Canary)] += u32::from(chosen.is_counted);
        chosen.on_canary.iter().for_each(OnCanary::end);
    }
    assert_eq!(counted[0] + counted[1], 100);
    assert!(counted[1] > 20, "{counted:?}");
}

#[tokio::test]
async fn an_abort_by_hand_is_answered() {
    let mut rig = Rig::split(Scripted::new());
    let by = || By { who: "ada".to_owned(), why: "it looks wrong".to_owned() };
    for expected in [None, Some(outrigger_core::Reason::CanaryNotFound)] {
        let (done, reply) = tokio::sync::oneshot::channel();
        rig.trials.decide(&key("latest"), Act::Abort, by(), done, &rig.cx);
        let reply: Result<(), Failure> = reply.await.expect("answered");
        assert_eq!(reply.err().map(|failure| failure.reason), expected);
    }
}

#[test]
fn every_step_that_a_later_process_continues_from_is_written_at_once() {
    let judge = Scripted::new();
    let mut rig = Rig::in_mode("MODE_RECOMMEND", judge.clone());
    let is_due = |rig: &mut Rig| rig.trials.take_record(rig.cx.now).is_some();
    assert!(is_due(&mut rig) && !is_due(&mut rig), "the split is written once");
    judge.decides(Decision::Promote);
    rig.judge();
    assert!(is_due(&mut rig) && !is_due(&mut rig), "so is the recommendation");
    let (done, _reply) = tokio::sync::oneshot::channel();
    let by = By { who: "ada".to_owned(), why: "it looks good".to_owned() };
    rig.trials.decide(&key("latest"), Act::Promote, by, done, &rig.cx);
    assert!(is_due(&mut rig), "and a person's promotion of it");
}

#[test]
fn trials_and_decisions_survive_a_restart() {
    let mut rig = Rig::split(Scripted::new());
    rig.requests(300);
    rig.judge();
    let record = rig.trials.record(rig.cx.now);
    let json = serde_json::to_string(&record).expect("text");
    let judge = Scripted::new();
    let (mut trials, _) =
        Trials::new(CanaryDefaults::default(), Salt::default(), Box::new(judge.clone()));
    trials.restore(serde_json::from_str(&json).expect("a record"));
    trials.renew(&BTreeSet::from([key("latest").name]), &rig.cx);
    trials.judge(&rig.cx);
    assert_eq!(judge.evidence(), [(key("latest"), canary().digest, 300)]);
}

/// The arms of a hundred keys.
fn arms(split: &Split<Version>) -> Vec<Arm> {
    (0..100).map(|user| split.arm(&format!("user-{user}"))).collect()
}

#[test]
fn keys_have_the_same_arms_in_every_process_with_the_secret_and_after_a_restart() {
    let rig = Rig::split(Scripted::new());
    let here = arms(&rig.the_split());
    assert_eq!(here, arms(&Rig::split(Scripted::new()).the_split()));
    let json = serde_json::to_value(rig.trials.record(rig.cx.now)).expect("a record");
    let restored = |json| {
        let judge = Box::new(Scripted::new());
        let (mut trials, _) = Trials::new(config("MODE_LOCAL"), Salt::default(), judge);
        trials.restore(serde_json::from_value(json).expect("a record"));
        trials.renew(&BTreeSet::from([key("latest").name]), &rig.cx);
        arms(&Rig { trials, cx: Cx::new() }.the_split())
    };
    assert_eq!(here, restored(json.clone()));
    // A version whose salt was the canary's digest wrote none.
    let mut older = json;
    older["trials"][0].as_object_mut().expect("a trial").remove("salt");
    assert_ne!(here, restored(older));
}

#[test]
fn a_caller_that_looks_at_arms_first_does_not_roll_back_an_identical_canary() {
    let mut rig = Rig::split(LocalJudge);
    let split = rig.the_split();
    let mut counted = 0;
    for user in 0..2000 {
        let user = format!("user-{user}");
        if split.arm(&user) == Arm::Canary {
            let chosen = split.choose(&user);
            counted += u32::from(chosen.is_counted);
            let score = Outcome::Scored(7.0);
            split.observe(chosen.arm, chosen.is_counted, Some(Duration::from_millis(10)), score);
            chosen.on_canary.iter().for_each(OnCanary::end);
        }
    }
    rig.requests(2000);
    rig.judge();
    assert!(rig.is_on_trial(), "{:?}", rig.shown().decisions);
    assert_eq!(counted, 0);
}
