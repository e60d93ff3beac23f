//! Answers to requests for a model.

use super::{Machines, TagKey};
use crate::{
    Digest, EngineId, Failure, ModelKey, ModelName, Moment, Reason, Selector,
    model::{ModelMachine, Slot, Trouble},
};

/// The answer to a request for a tag or a digest at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The version is served, under the route of this number.
    Ready(ModelKey, u64),
    /// The version is not available yet: the request waits. Carries the current obstacle, if there
    /// is one.
    Waiting(Option<Failure>),
    /// The version failed and is tried again at this time. After that time the attempt is under
    /// way, or starts with the next request.
    Retrying(Failure, Moment),
    /// The request fails without waiting.
    Refused(Failure),
}

impl Machines {
    /// The answer to a request for exactly that version.
    pub fn answer_digest(&self, key: &ModelKey, now: Moment) -> Answer {
        match self.models.get(key) {
            None => Answer::Waiting(None),
            Some(model) => self.answer_of(model, now),
        }
    }

    /// The answer to every request that needs `engine` while the engine does not answer: requests
    /// wait as long as the engine may be restarting, and then fail.
    pub fn outage(&self, engine: &EngineId, now: Moment) -> Option<Answer> {
        let condition = self.engines.get(engine)?;
        let down_since = condition.down_since?;
        let failure = unavailable(condition.failure.as_ref());
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
        let is_replacing = |digest: Digest| {
            let key = ModelKey { name: key.name.clone(), digest };
            self.models.get(&key).is_some_and(|model| model.slot() == Slot::Replacing)
        };
        let lookup = || tag.trouble().map_or(Answer::Waiting(None), answer_trouble);
        let answer = match (tag.serving().map(of), tag.candidate()) {
            (Some(Answer::Refused(_)) | None, Some(candidate)) => of(candidate),
            // The old version has left the engine for the new one.
            (Some(Answer::Waiting(_)), Some(candidate)) if is_replacing(candidate) => of(candidate),
            (Some(answer), _) => answer,
            (None, None) => lookup(),
        };
        match answer {
            Answer::Refused(_) | Answer::Retrying(..) => {
                self.answer_latest(key, now).unwrap_or(answer)
            }
            answer => answer,
        }
    }

    /// Whether requests for `selector` of `name` are answered.
    pub fn is_up(&self, name: &ModelName, selector: &Selector, now: Moment) -> bool {
        let name = name.clone();
        let answer = match selector {
            Selector::Tag(tag) => self.answer_tag(&TagKey { name, tag: tag.clone() }, now),
            Selector::Digest(digest) => {
                self.answer_digest(&ModelKey { name, digest: *digest }, now)
            }
        };
        matches!(answer, Answer::Ready(..))
    }

    fn answer_of(&self, model: &ModelMachine, now: Moment) -> Answer {
        if let Some(route) = model.routed() {
            return match self.outage_of(model.key(), now) {
                Some(wait @ Answer::Waiting(_)) if self.is_gone(model.key()) => wait,
                // A slow status call does not mean that predictions fail, and if the engine stays
                // away the prediction itself returns the best error. So the request goes ahead.
                _ => Answer::Ready(model.key().clone(), route),
            };
        }
        if let Some(failure) = self.exclusion(model) {
            return Answer::Refused(failure);
        }
        if let Some(trouble) = model.trouble() {
            return answer_trouble(trouble);
        }
        let outage = || self.outage_of(model.key(), now).unwrap_or(Answer::Waiting(None));
        if model.state().in_engine() { outage() } else { Answer::Waiting(None) }
    }

    /// The failure of a version that cannot be in the engine, because another one of its model serves.
    fn exclusion(&self, model: &ModelMachine) -> Option<Failure> {
        let ModelKey { name, digest } = model.key();
        let serving = self.routed_of(name).filter(|_| model.slot() == Slot::Taken)?;
        let message = format!(
            "{name}@{digest} is not loaded: the model's rollover is replace, so that one version of \
             it is loaded at a time, and that is {}",
            serving.key().digest
        );
        Some(Failure::new(Reason::VersionExcluded, message))
    }

    fn outage_of(&self, key: &ModelKey, now: Moment) -> Option<Answer> {
        self.outage(self.engine_of(key)?, now)
    }

    /// Returns true if nothing listens at the address of a version's engine.
    fn is_gone(&self, key: &ModelKey) -> bool {
        let condition = self.engine_of(key).and_then(|engine| self.engines.get(engine));
        let failure = condition.and_then(|condition| condition.failure.as_ref());
        failure.is_none_or(|failure| failure.reason == Reason::EngineUnavailable)
    }

    /// The time at which an answer changes without an event: the patience with an engine ends.
    pub fn patience_ends_at(&self) -> Option<Moment> {
        let down = self.engines.values().filter_map(|condition| condition.down_since);
        let ends = down.map(|since| since + self.policy.patience);
        ends.filter(|at| *at > self.ticked_at).min()
    }

    /// The first model with a preload that has not settled; looks at the models from `first` on,
    /// and then at all.
    pub fn first_unsettled(&self, first: Option<&ModelName>, now: Moment) -> Option<ModelName> {
        let names = self.names();
        let later = names.iter().skip_while(|name| first.is_some_and(|first| *name < first));
        later.chain(&names).find(|name| !self.has_settled(name, now)).cloned()
    }

    /// Whether every preload of `name` is up, has failed for good, or belongs to an engine that
    /// does not answer.
    pub fn has_settled(&self, name: &ModelName, now: Moment) -> bool {
        let settled = |answer| !matches!(answer, Answer::Waiting(_) | Answer::Retrying(..));
        // The versions of a model may run on different engines.
        let is_away = |digest: Option<Digest>| {
            let key = digest.map(|digest| ModelKey { name: name.clone(), digest });
            let engine = key.and_then(|key| self.engine_of(&key));
            let engine = engine.or_else(|| self.expected_engine(name));
            let condition = engine.and_then(|it| self.engines.get(it));
            condition.is_some_and(|condition| condition.reachable == Some(false))
        };
        let mut tags = self.tags_of(name).filter(|(_, tag)| tag.is_configured());
        tags.all(|(key, tag)| {
            is_away(tag.serving().or(tag.candidate()))
                || settled(self.answer_tag(key, now))
                || self.has_stand_in(key, now)
        }) && self
            .pinned_of(name)
            .all(|key| is_away(Some(key.digest)) || settled(self.answer_digest(key, now)))
    }
}

/// Requests wait while a failure is retried, unless only a person can remove its cause.
fn answer_trouble(trouble: &Trouble) -> Answer {
    let failure = trouble.failure.clone();
    match trouble.retry_at {
        Some(at) if !takes_a_person(failure.reason) => Answer::Retrying(failure, at),
        _ => Answer::Refused(failure),
    }
}

/// Whether a person has to act first: grant access, or sign the image.
fn takes_a_person(reason: Reason) -> bool {
    matches!(reason, Reason::RegistryDenied | Reason::SignatureMissing | Reason::SignatureInvalid)
}

/// The failure of requests for an engine that does not answer. An engine that hangs fails the look at
/// it with another reason, which is not that of a request.
fn unavailable(failure: Option<&Failure>) -> Failure {
    match failure {
        None => Failure::new(Reason::EngineUnavailable, "the engine does not answer"),
        Some(failure) if failure.reason == Reason::EngineUnavailable => failure.clone(),
        Some(Failure { message, .. }) => {
            let message = format!("the engine has not answered when it was looked at: {message}");
            Failure::new(Reason::EngineUnavailable, message)
        }
    }
}
