//! The machine of one floating tag of a model: which digest answers for it.

#[cfg(test)]
mod tests;

use crate::{
    Attempt, Context, Digest, Failure, Moment, Outcome, Policy, model::Trouble, model::is_permanent,
};

/// A floating tag that is, or was, followed.
///
/// Two digests matter: the one that serves, and the one the registry names. When
/// they differ the latter is the candidate: it is brought up beside the former
/// and takes over once it is available. A failing look-up or a failing candidate
/// changes nothing about what serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TagMachine {
    configured: bool,
    /// A tag that is followed has this one as its canary.
    accompanies: bool,
    /// What was tried as a canary and is not wanted any more.
    rejected: Option<Digest>,
    /// The registry has it no more, and has not had it since.
    removed: bool,
    /// When the registry names the first, the second answers: it was promoted in
    /// this process alone.
    promoted: Option<(Digest, Digest)>,
    /// When it was last asked for; `None`: not since an earlier process.
    asked_at: Option<Moment>,
    registry: Option<Digest>,
    serving: Option<Digest>,
    checked_at: Option<Moment>,
    trouble: Option<Trouble>,
    last: Attempt,
    lookup: Lookup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lookup {
    /// None is going on; the next one is due then, if the tag is followed.
    Due(Moment),
    /// Ends by `Resolved`.
    Running(Attempt),
}

/// What happens to a tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A request wants it.
    Ask,
    /// Requests used it, last at that time.
    Used(Moment),
    /// Look it up now, whatever was known.
    Retry,
    /// A tag that is followed has this one as its canary, or none has any more.
    Accompany(bool),
    /// That digest was tried as a canary: it is not to be kept up for that until
    /// the tag has moved.
    Reject(Digest),
    /// That digest takes over without a word from the registry, until the
    /// registry names another one than it does now.
    Promote(Digest),
    /// The registry says for certain that it has no such tag any more, which was a
    /// canary's. Nothing is its canary until it names something again; requests for
    /// it are answered as long as there are any.
    Removed,
    /// [`Effect::Resolve`] ended.
    Resolved(Attempt, Result<Digest, Failure>),
    /// A version of the model has become available.
    Available(Digest),
}

/// What a tag wants done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask the registry which digest it is.
    Resolve(Attempt),
    /// The registry names this digest for the first time since it named
    /// another: whatever it failed of before may be gone, and who took it down
    /// did not know that it would be meant again.
    Moved(Digest),
    /// From now on, this digest answers.
    Switched(Digest),
}

impl TagMachine {
    /// A tag nothing is known of, whose attempts come after `last`. A configured
    /// one is followed for ever.
    pub fn new(configured: bool, last: Attempt, now: Moment) -> Self {
        Self {
            configured,
            accompanies: false,
            rejected: None,
            removed: false,
            promoted: None,
            asked_at: Some(now),
            registry: None,
            serving: None,
            checked_at: None,
            trouble: None,
            last,
            lookup: Lookup::Due(now),
        }
    }

    /// The canary of another tag, which nobody has asked for.
    pub fn accompanying(last: Attempt, now: Moment) -> Self {
        Self { accompanies: true, asked_at: None, ..Self::new(false, last, now) }
    }

    /// A tag that was `serving` when the journal was written, and is in use or
    /// was not asked for since.
    pub fn adopted(
        configured: bool,
        serving: Digest,
        asked_at: Option<Moment>,
        now: Moment,
    ) -> Self {
        let new = Self::new(configured, Attempt::default(), now);
        Self { serving: Some(serving), asked_at, ..new }
    }

    /// The same, with what canaries have made of it: [`Event::Reject`],
    /// [`Event::Promote`].
    pub fn tried(self, rejected: Option<Digest>, promoted: Option<(Digest, Digest)>) -> Self {
        Self { rejected, promoted, ..self }
    }

    /// Handles an event. The effects are to be carried out in their order.
    pub fn handle(&mut self, c: &mut Context<'_>, event: Event) -> (Vec<Effect>, Outcome) {
        let mut effects = Vec::new();
        match event {
            Event::Tick => {}
            Event::Ask => self.asked_at = self.asked_at.max(Some(c.now)),
            Event::Used(at) => self.asked_at = self.asked_at.max(Some(at)),
            Event::Retry => {
                self.asked_at = Some(c.now);
                self.trouble = None;
                if let Lookup::Due(_) = self.lookup {
                    self.lookup = Lookup::Due(c.now);
                }
            }
            Event::Accompany(accompanies) => self.accompanies = accompanies,
            Event::Reject(digest) => self.rejected = Some(digest),
            Event::Promote(digest) => {
                let named = self.registry.or(self.serving);
                self.promoted = named.map(|named| (named, digest));
            }
            Event::Removed => {
                (self.registry, self.rejected, self.removed) = (None, None, true);
            }
            Event::Resolved(attempt, result) => {
                if self.lookup != Lookup::Running(attempt) {
                    return (effects, Outcome::late(attempt, self.last));
                }
                self.resolved(c, result, &mut effects);
            }
            Event::Available(digest) => self.available(digest, &mut effects),
        }
        self.settle(c, &mut effects);
        (effects, Outcome::Handled)
    }

    fn resolved(
        &mut self,
        c: &Context<'_>,
        result: Result<Digest, Failure>,
        out: &mut Vec<Effect>,
    ) {
        match result {
            Ok(digest) => {
                self.trouble = None;
                self.removed = false;
                self.checked_at = Some(c.now);
                self.lookup = Lookup::Due(c.now + spread(c.policy.poll_interval, c.jitter));
                if self.registry.replace(digest) != Some(digest) {
                    self.rejected = self.rejected.filter(|rejected| *rejected == digest);
                    self.promoted = self.promoted.filter(|(named, _)| *named == digest);
                    out.push(Effect::Moved(digest));
                }
            }
            Err(failure) => {
                let failures = self.trouble.as_ref().map_or(0, |trouble| trouble.failures) + 1;
                let at = c.now + self.next_try(c, &failure, failures);
                self.lookup = Lookup::Due(at);
                // Of a tag that is not there, a caller should hear at once.
                let retry_at = (!is_permanent(failure.reason)).then_some(at);
                self.trouble = Some(Trouble { failure, at: c.now, failures, retry_at });
            }
        }
    }

    /// A tag that serves is in no hurry; one that does not is.
    fn next_try(&self, c: &Context<'_>, failure: &Failure, failures: u32) -> std::time::Duration {
        let backoff = c.policy.backoff.delay(failures, c.jitter, failure.retry_after);
        if self.serving.is_some() || is_permanent(failure.reason) {
            backoff.max(spread(c.policy.poll_interval, c.jitter))
        } else {
            backoff
        }
    }

    fn available(&mut self, digest: Digest, effects: &mut Vec<Effect>) {
        if self.candidate() == Some(digest) {
            self.serving = Some(digest);
            effects.push(Effect::Switched(digest));
        }
    }

    fn settle(&mut self, c: &Context<'_>, effects: &mut Vec<Effect>) {
        if self.removed && !self.is_wanted(c.policy, c.now) {
            self.serving = None;
        }
        let Lookup::Due(at) = self.lookup else { return };
        if at <= c.now && self.is_followed(c.policy, c.now) {
            let attempt = self.last.begin();
            self.lookup = Lookup::Running(attempt);
            effects.push(Effect::Resolve(attempt));
        }
    }

    /// Whether moves of the tag are looked for: it is wanted for itself, or as the
    /// canary of one that is.
    pub fn is_followed(&self, policy: &Policy, now: Moment) -> bool {
        self.accompanies || self.is_wanted(policy, now)
    }

    /// Whether it is configured, or was asked for not long ago.
    pub fn is_wanted(&self, policy: &Policy, now: Moment) -> bool {
        let fresh = |at| now.since(at) < policy.idle_ttl;
        self.configured || self.asked_at.is_some_and(fresh)
    }

    /// Whether it is followed as the canary of another tag.
    pub fn is_accompanying(&self) -> bool {
        self.accompanies
    }

    /// What was tried as a canary and is not wanted any more.
    pub fn rejected(&self) -> Option<Digest> {
        self.rejected
    }

    /// What it names as the canary of another tag; `None`: nothing, or it is no
    /// canary's.
    pub fn canary(&self) -> Option<Digest> {
        self.registry.or(self.serving).filter(|_| self.accompanies && !self.removed)
    }

    /// What answers for it in a later process, before the registry is asked. One that
    /// was removed is only served as long as it is asked for here.
    pub fn last_known_good(&self) -> Option<Digest> {
        self.serving.filter(|_| !self.removed || self.configured)
    }

    /// What the registry named, and what was promoted in its place.
    pub fn promoted(&self) -> Option<(Digest, Digest)> {
        self.promoted
    }

    /// The digest that answers.
    pub fn serving(&self) -> Option<Digest> {
        self.serving
    }

    /// What the registry said last.
    pub fn registry(&self) -> Option<Digest> {
        self.registry
    }

    /// The digest that should take over.
    pub fn candidate(&self) -> Option<Digest> {
        self.target().filter(|digest| self.serving != Some(*digest))
    }

    /// What should answer: what the registry names, or was promoted in its place.
    fn target(&self) -> Option<Digest> {
        match (self.registry, self.promoted) {
            (Some(registry), Some((named, promoted))) if registry == named => Some(promoted),
            (registry, _) => registry,
        }
    }

    /// The versions that must be kept up for this tag.
    pub fn pins(&self, policy: &Policy, now: Moment) -> impl Iterator<Item = Digest> + use<> {
        let (followed, wanted) = (self.is_followed(policy, now), self.is_wanted(policy, now));
        let rejected = self.rejected.filter(|_| !wanted);
        let digests = self.serving.into_iter().chain(self.candidate());
        digests.filter(move |digest| followed && rejected != Some(*digest))
    }

    /// When the registry was last asked with success.
    pub fn checked_at(&self) -> Option<Moment> {
        self.checked_at
    }

    /// Why the last look-up failed.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Its last attempt at a look-up.
    pub fn last(&self) -> Attempt {
        self.last
    }

    /// Whether it is followed for ever.
    pub fn is_configured(&self) -> bool {
        self.configured
    }

    /// When time alone will next change something, `after` the last tick.
    pub fn wakes_at(&self, policy: &Policy, after: Moment) -> Option<Moment> {
        let idle_at = self.asked_at.map(|at| at + policy.idle_ttl);
        let due_at = match self.lookup {
            Lookup::Due(at) if self.configured || self.accompanies => Some(at),
            Lookup::Due(at) if Some(at) < idle_at => Some(at),
            _ => None,
        };
        let idle_at = idle_at.filter(|_| !self.configured);
        let forgotten_at = self.trouble.as_ref().map(|trouble| trouble.at + policy.forget_after);
        due_at.into_iter().chain(idle_at).chain(forgotten_at).filter(|at| *at > after).min()
    }

    /// Whether nothing is lost when it is forgotten: it is not configured, and
    /// nor another's canary, and either was not asked for in all the time that files
    /// are kept, or there is no such tag and whoever asked has been told.
    pub fn is_forgettable(&self, c: &Context<'_>) -> bool {
        let told = |trouble: &Trouble| {
            trouble.retry_at.is_none() && c.now.since(trouble.at) >= c.policy.forget_after
        };
        let unused = match self.serving.or(self.registry) {
            Some(_) => {
                let asked_at = self.asked_at.unwrap_or_default();
                c.now.since(asked_at) >= c.policy.idle_ttl + c.policy.retain
            }
            None => !self.is_followed(c.policy, c.now) || self.trouble.as_ref().is_some_and(told),
        };
        !self.configured && !self.accompanies && unused
    }
}

/// Between 90% and 110% of `interval`, so that pods do not ask in step.
fn spread(interval: std::time::Duration, jitter: f64) -> std::time::Duration {
    interval.mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0))
}
