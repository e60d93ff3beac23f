//! A canary becomes live where its trial's mode says, unless somebody aborts that
//! in time.

use std::sync::Arc;

use outrigger_canary::Mode;
use outrigger_core::{
    Failure, Moment, Reason,
    fleet::{Event, TagKey},
    tags,
};

use super::Pair;
use crate::{
    canaries::By,
    handle::Reply,
    jobs::{
        Done,
        promote::{self, Push, Told},
    },
    service::Service,
    world::defect,
};

/// How far a promotion has come.
pub(super) enum Promotion {
    /// Nobody has decided.
    Undecided,
    /// It may be promoted, when somebody says so.
    Recommended,
    /// The registry is being told.
    Running(Telling),
    /// The registry was told, or this process answers by it soon. `missed`: the tag
    /// was looked up since, and named something else.
    Told { by: By, missed: bool },
    /// The registry's tag has moved elsewhere: the trial ends when that answers.
    Overtaken(By),
    /// The registry could not be told, and is told again then. If `unsure`, it may
    /// have been.
    Failed { by: By, failure: Failure, retry_at: Moment, unsure: bool },
}

/// A promotion that the registry is being told of.
pub(super) struct Telling {
    by: By,
    push: Arc<Push>,
    /// The registry may have been told before.
    unsure: bool,
    /// Who wants the canary gone, and has to hear first whether it is live.
    aborts: Vec<(By, Reply)>,
}

impl Promotion {
    fn told(by: By) -> Self {
        Self::Told { by, missed: false }
    }

    /// Whether it is decided, or up to a person to decide.
    pub(super) fn is_decided(&self) -> bool {
        !matches!(self, Self::Undecided)
    }

    /// Who has decided that the canary become live.
    pub(super) fn by(&self) -> Option<&By> {
        match self {
            Self::Undecided | Self::Recommended => None,
            Self::Running(Telling { by, .. })
            | Self::Told { by, .. }
            | Self::Overtaken(by)
            | Self::Failed { by, .. } => Some(by),
        }
    }

    /// Whether the registry is not told any more. What it has been told, or is being
    /// told, cannot be taken back.
    pub(super) fn retract(&self) -> bool {
        match self {
            Self::Running(telling) => telling.push.cancel(),
            Self::Told { .. } => false,
            _ => true,
        }
    }

    /// Answers those who want the canary gone.
    pub(super) fn refuse_aborts(&mut self, failure: &Failure) {
        if let Self::Running(telling) = self {
            refuse(std::mem::take(&mut telling.aborts), failure);
        }
    }
}

impl Service {
    /// Has the canary become live, where this trial's mode says.
    pub(super) fn promote(&mut self, key: &TagKey, by: By) {
        let Some(running) = self.canaries.trials.get(key) else { return };
        match running.promotion {
            Promotion::Running(_) | Promotion::Told { .. } => {}
            Promotion::Failed { unsure, .. } => self.tell(key, by, unsure),
            _ => self.tell(key, by, false),
        }
    }

    /// The same where an earlier process may have been at it.
    pub(super) fn promote_again(&mut self, key: &TagKey, by: By) {
        self.tell(key, by, true);
    }

    fn tell(&mut self, key: &TagKey, by: By, unsure: bool) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        let Pair { live, canary } = running.pair;
        if running.trial.settings().mode == Mode::Local {
            running.promotion = Promotion::told(by);
            return self.apply(Event::Tag(key.clone(), tags::Event::Promote(canary)));
        }
        let push = Arc::<Push>::default();
        let telling = Telling { by, push: Arc::clone(&push), unsure, aborts: Vec::new() };
        running.promotion = Promotion::Running(telling);
        let (world, number) = (Arc::clone(&self.world), running.number);
        let done = {
            let key = key.clone();
            move |result| Done::Promoted { key, number, result }
        };
        let key = key.clone();
        self.jobs.start(done.clone()(Err(defect())), async move {
            done(promote::promote(&world, &key, (live, canary), &push).await)
        });
    }

    /// Rolls the canary back by hand: at once, unless only the registry can say
    /// whether it is live.
    pub(super) fn abort(&mut self, key: &TagKey, by: By, done: Reply) {
        let Some(running) = self.canaries.trials.get(key) else { return };
        if let Promotion::Failed { by, unsure: true, .. } = &running.promotion {
            let by = by.clone();
            self.tell(key, by, true);
        }
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        match &mut running.promotion {
            Promotion::Told { .. } => refuse(vec![(by, done)], &promoted(key)),
            Promotion::Running(telling) if !telling.push.cancel() || telling.unsure => {
                telling.aborts.push((by, done));
            }
            _ => self.carry_out_aborts(key, vec![(by, done)]),
        }
    }

    fn carry_out_aborts(&mut self, key: &TagKey, aborts: Vec<(By, Reply)>) {
        for (by, done) in aborts {
            self.roll_back(key, by);
            // Whoever asked may have gone.
            done.send(Ok(())).ok();
        }
    }

    /// What became of telling the registry, in the trial `number`.
    pub(in crate::service) fn told(
        &mut self,
        key: &TagKey,
        number: u64,
        result: Result<Told, Failure>,
    ) {
        let now = self.clock.now();
        let running = self.canaries.trials.get_mut(key).filter(|it| it.number == number);
        let Some(running) = running else { return };
        let promotion = std::mem::replace(&mut running.promotion, Promotion::Undecided);
        let Promotion::Running(Telling { by, push, unsure, aborts }) = promotion else {
            running.promotion = promotion;
            return;
        };
        match result {
            Ok(Told::Promoted) => {
                running.promotion = Promotion::told(by);
                refuse(aborts, &promoted(key));
                self.apply(Event::Tag(key.clone(), tags::Event::Retry));
            }
            Ok(Told::Elsewhere(digest)) => {
                tracing::warn!(
                    model.name = %key.name, model.tag = %key.tag,
                    model.digest = %running.pair.canary, registry = %digest,
                    "the canary is not promoted: the tag has moved in the meantime"
                );
                running.promotion = Promotion::Overtaken(by);
                self.carry_out_aborts(key, aborts);
                self.apply(Event::Tag(key.clone(), tags::Event::Retry));
            }
            Ok(Told::Failed(failure)) => {
                self.told_nothing(key, by, failure, false, now);
                self.carry_out_aborts(key, aborts);
            }
            Ok(Told::Cancelled) => self.carry_out_aborts(key, aborts),
            Err(failure) => {
                refuse(aborts, &failure);
                self.told_nothing(key, by, failure, unsure || push.has_begun(), now);
            }
        }
        self.show_canaries(now);
    }

    /// The tag `key` was looked up. Where it names the canary no more that it was moved
    /// to, somebody has moved it on.
    pub(super) fn live_polled(&mut self, key: &TagKey) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        let Some(tag) = self.fleet.tag(key).filter(|tag| tag.trouble().is_none()) else { return };
        let moved_on = tag.registry() != Some(running.pair.canary);
        match &mut running.promotion {
            // There, the registry is not told.
            _ if running.trial.settings().mode == Mode::Local => {}
            // This look may have begun before the tag was moved.
            Promotion::Told { missed: missed @ false, .. } if moved_on => {
                *missed = true;
                self.apply(Event::Tag(key.clone(), tags::Event::Retry));
            }
            Promotion::Told { missed: true, .. } if moved_on => {
                tracing::warn!(
                    model.name = %key.name, model.tag = %key.tag,
                    model.digest = %running.pair.canary,
                    "the canary was promoted, and the tag was moved on before that was seen here"
                );
                self.note_promoted(key);
            }
            _ => {}
        }
    }

    /// The registry is told again later.
    fn told_nothing(&mut self, key: &TagKey, by: By, failure: Failure, unsure: bool, now: Moment) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        tracing::warn!(
            model.name = %key.name, model.tag = %key.tag, model.digest = %running.pair.canary,
            reason = %failure.reason, error = %failure.message,
            "the canary cannot be promoted in the registry"
        );
        running.failures += 1;
        let delay = self.fleet.policy().backoff.delay(running.failures, rand::random(), None);
        running.promotion = Promotion::Failed { by, failure, retry_at: now + delay, unsure };
    }

    /// Tells the registry again, when that is due.
    pub(super) fn retry_promotion(&mut self, key: &TagKey, now: Moment) {
        let Some(running) = self.canaries.trials.get(key) else { return };
        if let Promotion::Failed { by, retry_at, .. } = &running.promotion
            && *retry_at <= now
        {
            self.promote(key, by.clone());
        }
    }
}

/// That the canary cannot be aborted any more.
pub(super) fn promoted(key: &TagKey) -> Failure {
    let TagKey { name, tag } = key;
    let message = format!("the canary of {name}:{tag} is promoted: the tag names it already");
    Failure::new(Reason::CanaryPromoted, message)
}

fn refuse(aborts: Vec<(By, Reply)>, failure: &Failure) {
    for (_, done) in aborts {
        // Whoever asked may have gone.
        done.send(Err(failure.clone())).ok();
    }
}
