//! The public view of canaries.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use outrigger_canary::{Share, Trial};
use outrigger_core::{
    Digest, ModelKey, ModelName,
    machines::{Answer, TagKey, of_name},
};
use tokio::sync::watch;

use super::{PERIOD, Trials};
use crate::{
    context::Context,
    metrics,
    pair::Pair,
    promotion::Promotion,
    record::Paused,
    running::Running,
    set::TrialSet,
    views::{
        ArmView, Canaries, CanaryDecision, CanaryOutcome, CanaryPhase, CanaryView, TagCanaryView,
    },
};

/// The state of a canary whose requests were stopped for live's sake.
const HELD_BACK: &str = "live is far worse than before the split, or was lately: the canary gets \
                         requests only in single probes";

impl Trials {
    /// The models with a trial, and those whose trial has just ended.
    pub fn models(&self) -> BTreeSet<ModelName> {
        let running = self.set.running.keys().map(|key| &key.name);
        running.chain(&self.set.changed).cloned().collect()
    }

    /// Publishes what has changed about the canaries of these models. Their routes must be in force.
    pub fn show(&mut self, models: &BTreeSet<ModelName>, cx: &dyn Context) {
        let now = cx.now();
        let mut is_changed = false;
        for name in models {
            is_changed |= self.show_model(name, cx);
        }
        let decisions = &self.set.decisions.0;
        let latest = |of: &VecDeque<CanaryDecision>| (of.len(), of.front().map(|it| it.at));
        if is_changed || latest(decisions) != latest(&self.shown.borrow().decisions) {
            let canaries: Vec<_> = self.views.values().cloned().collect();
            metrics::canaries(&canaries);
            let shown = Canaries { canaries, decisions: decisions.clone() };
            self.shown.send_replace(Arc::new(shown));
        }
        self.judge_at = match self.judge_at {
            _ if self.set.running.is_empty() => None,
            Some(at) if at > now => Some(at),
            _ => Some(now + PERIOD),
        };
    }

    /// Updates the views of the canaries of a model. Returns true if one has changed.
    fn show_model(&mut self, name: &ModelName, cx: &dyn Context) -> bool {
        let keys = cx.tags_of(name).into_iter();
        let views: BTreeMap<_, _> =
            keys.filter_map(|key| Some((key.clone(), view(&self.set, &key, cx)?))).collect();
        let before = of_name(&self.views, name);
        if before.eq(views.iter()) {
            return false;
        }
        let in_short = |(key, view): (&TagKey, &CanaryView)| (key.clone(), TagCanaryView::of(view));
        let before: Vec<_> = of_name(&self.views, name).map(in_short).collect();
        if !before.iter().cloned().eq(views.iter().map(in_short)) {
            self.set.changed.insert(name.clone());
        }
        before.iter().for_each(|(key, _)| drop(self.views.remove(key)));
        self.views.extend(views);
        true
    }

    /// Subscribes to the canaries, now and after every change.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Canaries>> {
        self.shown.subscribe()
    }

    /// The last published short view of a tag's canary.
    pub fn canary_of(&self, key: &TagKey) -> Option<TagCanaryView> {
        self.views.get(key).map(TagCanaryView::of)
    }
}

/// The canary of a tag, unless it is live: the one that a canary tag names, or else that of a
/// paused trial.
fn view(set: &TrialSet, key: &TagKey, cx: &dyn Context) -> Option<CanaryView> {
    let live = cx.tag(key)?.serving;
    let named = cx.canary(key).filter(|(_, canary)| live != Some(*canary));
    let named = named.map(|(tag, canary)| named_view(set, (key, live), (&tag, canary), cx));
    named.or_else(|| paused_view(key, set.paused.get(key)?, cx))
}

fn named_view(
    set: &TrialSet,
    (key, live): (&TagKey, Option<Digest>),
    (canary_tag, canary): (&TagKey, Digest),
    cx: &dyn Context,
) -> CanaryView {
    let running = set.running.get(key).filter(|it| it.pair.canary == canary);
    let standstill = running.and_then(|running| standstill(running, cx));
    let (phase, message) = match running {
        Some(running) => phase(running, standstill.as_deref()),
        None => untried(set, key, (canary_tag, canary), cx),
    };
    let trial = running.map(|running| &running.trial);
    let paused = set.paused.get(key).filter(|it| it.pair.canary == canary);
    let spent = trial.map(|trial| trial.spent(cx.now()));
    let share = trial.filter(|_| standstill.is_none()).and_then(Trial::share);
    CanaryView {
        model: key.name.clone(),
        tag: key.tag.clone(),
        canary_tag: canary_tag.tag.clone(),
        live,
        canary,
        phase,
        message,
        share: share.map_or(0.0, Share::probability),
        elapsed: spent.or(paused.map(|it| it.progress.spent())).unwrap_or_default(),
        verdict: running.and_then(Running::verdict),
        arms: trial.map(|trial| ArmView::of(trial, cx.now())).unwrap_or_default(),
        features: running.map(Running::features).unwrap_or_default(),
    }
}

/// The reason why a canary is not on trial.
fn untried(
    set: &TrialSet,
    key: &TagKey,
    (canary_tag, canary): (&TagKey, Digest),
    cx: &dyn Context,
) -> (CanaryPhase, String) {
    if cx.tag(canary_tag).and_then(|tag| tag.rejected) == Some(canary) {
        let decision = set.decisions.last_for_good(key, canary);
        let message = match decision.filter(|it| it.outcome != CanaryOutcome::Promoted) {
            Some(decision) => format!("{}: {}", decision.by, decision.reason),
            None => "it has been live before".to_owned(),
        };
        return (CanaryPhase::Rejected, message);
    }
    let message = not_up(key, "the canary", canary, cx);
    let message = message.unwrap_or_else(|| "nothing answers for the tag yet".to_owned());
    (CanaryPhase::Waiting, message)
}

/// The reason why a running trial gets no requests; `None` if it gets them.
fn standstill(running: &Running, cx: &dyn Context) -> Option<String> {
    let Pair { live, canary } = running.pair;
    let not_up = |which, digest| not_up(&running.key, which, digest, cx);
    not_up("live", live).or_else(|| not_up("the canary", canary))
}

/// The reason why a version of a model is not up; `None` if it is up.
fn not_up(key: &TagKey, which: &str, digest: Digest, cx: &dyn Context) -> Option<String> {
    let version = ModelKey { name: key.name.clone(), digest };
    if cx.is_suspended(&version) {
        return Some(format!("{which} was unloaded by hand"));
    }
    match cx.answer(&version) {
        Answer::Waiting(Some(failure))
        | Answer::Retrying(failure, _)
        | Answer::Refused(failure) => Some(format!("{which} is not up: {failure}")),
        Answer::Waiting(None) => Some(format!("{which} is being brought up")),
        Answer::Ready(..) => None,
    }
}

/// The paused trial of a tag without requests.
fn paused_view(key: &TagKey, paused: &Paused, cx: &dyn Context) -> Option<CanaryView> {
    let tag = cx.tag(key).filter(|it| !it.followed)?;
    let canary_tag = cx.canary_tag(key, paused.pair.canary)?;
    Some(CanaryView {
        model: key.name.clone(),
        tag: key.tag.clone(),
        canary_tag: canary_tag.tag,
        live: tag.serving,
        canary: paused.pair.canary,
        phase: CanaryPhase::Waiting,
        message: format!(
            "no requests for {}:{}: its trial continues with the next one",
            key.name, key.tag
        ),
        share: 0.0,
        elapsed: paused.progress.spent(),
        verdict: None,
        arms: Vec::new(),
        features: Vec::new(),
    })
}

/// The phase of a canary on trial, which may be at a standstill.
fn phase(running: &Running, standstill: Option<&str>) -> (CanaryPhase, String) {
    let phase = match &running.promotion {
        Promotion::Undecided if standstill.is_some() => CanaryPhase::Waiting,
        Promotion::Undecided if running.trial.share().is_none() => CanaryPhase::WarmingUp,
        Promotion::Undecided => CanaryPhase::Split,
        Promotion::Recommended => CanaryPhase::Recommended,
        Promotion::Moving(_)
        | Promotion::Moved { .. }
        | Promotion::Overtaken(_)
        | Promotion::Failed { .. } => CanaryPhase::Promoting,
    };
    let message = match &running.promotion {
        Promotion::Failed { failure, .. } => failure.to_string(),
        Promotion::Overtaken(_) => "the tag has moved in the meantime".to_owned(),
        Promotion::Undecided if standstill.is_none() && running.trial.is_held_back() => {
            HELD_BACK.to_owned()
        }
        _ => standstill.unwrap_or_default().to_owned(),
    };
    (phase, message)
}
