//! What a request for a model gets.

use super::{Fleet, TagKey};
use crate::{
    Digest, EngineId, Failure, ModelKey, ModelName, Moment, Reason,
    model::{ModelMachine, Trouble},
};

/// What a request for a tag or a digest gets now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// That version, as that route.
    Ready(ModelKey, u64),
    /// Nothing yet: wait. What stands in the way for the moment, if anything.
    Waiting(Option<Failure>),
    /// It failed, and is tried again at that time; when that has passed, it is
    /// being tried, or will be once somebody asks.
    Retrying(Failure, Moment),
    /// A failure, without waiting.
    Refused(Failure),
}

impl Fleet {
    /// The answer to a request for exactly that version.
    pub fn answer_digest(&self, key: &ModelKey, now: Moment) -> Answer {
        match self.models.get(key) {
            None => Answer::Waiting(None),
            Some(model) => self.answer_of(model, now),
        }
    }

    /// The answer to every request that needs `engine` while it does not answer:
    /// requests wait as long as it may be restarting, and then fail.
    pub fn outage(&self, engine: &EngineId, now: Moment) -> Option<Answer> {
        let condition = self.engines.get(engine)?;
        let down_since = condition.down_since?;
        let failure = condition.failure.clone().unwrap_or_else(|| {
            Failure::new(Reason::EngineUnavailable, "the engine does not answer")
        });
        Some(if now.since(down_since) < self.policy.patience {
            Answer::Waiting(Some(failure))
        } else {
            Answer::Refused(failure)
        })
    }

    /// The answer to a request for a tag.
    pub fn answer_tag(&self, key: &TagKey, now: Moment) -> Answer {
        let Some(tag) = self.tags.get(key) else { return Answer::Waiting(None) };
        let of =
            |digest: Digest| self.answer_digest(&ModelKey { name: key.name.clone(), digest }, now);
        let lookup = || tag.trouble().map_or(Answer::Waiting(None), answer_trouble);
        match (tag.serving().map(of), tag.candidate()) {
            (Some(Answer::Refused(_)) | None, Some(candidate)) => of(candidate),
            (Some(answer), _) => answer,
            (None, None) => lookup(),
        }
    }

    fn answer_of(&self, model: &ModelMachine, now: Moment) -> Answer {
        if let Some(route) = model.routed() {
            return match self.outage_of(model.key(), now) {
                Some(wait) if is_gone(&wait) => wait,
                // An engine that is only slow to tell its state may well predict,
                // and of one that stays away the prediction itself tells best.
                _ => Answer::Ready(model.key().clone(), route),
            };
        }
        if let Some(trouble) = model.trouble() {
            return answer_trouble(trouble);
        }
        let outage = || self.outage_of(model.key(), now).unwrap_or(Answer::Waiting(None));
        if model.state().in_engine() { outage() } else { Answer::Waiting(None) }
    }

    fn outage_of(&self, key: &ModelKey, now: Moment) -> Option<Answer> {
        self.outage(self.engine_of(key)?, now)
    }

    /// When an answer changes although nothing happens: patience with an engine
    /// runs out.
    pub fn patience_ends_at(&self) -> Option<Moment> {
        let down = self.engines.values().filter_map(|condition| condition.down_since);
        let ends = down.map(|since| since + self.policy.patience);
        ends.filter(|at| *at > self.ticked_at).min()
    }

    /// Whether every preload is up, has failed for good, or belongs to an engine that
    /// does not answer.
    pub fn preloads_settled(&self, now: Moment) -> bool {
        let settled = |answer| !matches!(answer, Answer::Waiting(_) | Answer::Retrying(..));
        let is_away = |name: &ModelName| {
            let engine = self.expected_engine(name).and_then(|it| self.engines.get(it));
            engine.is_some_and(|condition| condition.reachable == Some(false))
        };
        let mut tags = self.tags.iter().filter(|(_, tag)| tag.is_configured());
        tags.all(|(key, _)| is_away(&key.name) || settled(self.answer_tag(key, now)))
            && (self.pinned.iter())
                .all(|key| is_away(&key.name) || settled(self.answer_digest(key, now)))
    }
}

/// Waiting helps against what is tried again, unless it takes a person to change.
fn answer_trouble(trouble: &Trouble) -> Answer {
    let failure = trouble.failure.clone();
    match trouble.retry_at {
        Some(at) if !takes_a_person(failure.reason) => Answer::Retrying(failure, at),
        _ => Answer::Refused(failure),
    }
}

/// Whether somebody has to grant access, or to sign.
fn takes_a_person(reason: Reason) -> bool {
    matches!(reason, Reason::RegistryDenied | Reason::SignatureMissing | Reason::SignatureInvalid)
}

/// Whether nobody listens where the engine should be.
fn is_gone(outage: &Answer) -> bool {
    matches!(outage, Answer::Waiting(Some(it)) if it.reason == Reason::EngineUnavailable)
}
