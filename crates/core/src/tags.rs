//! The machine of one floating tag of a model: it decides which digest answers for the tag.

#[cfg(test)]
mod tests;

use crate::{
    Attempt, Context, Digest, Failure, Moment, Outcome, Policy, model::Trouble, model::is_permanent,
};

/// A floating tag that is, or was, followed.
///
/// Two digests matter: the one that serves, and the one the registry names. If they differ, the
/// latter is the candidate: it is loaded beside the former and takes over once it is available. A
/// failing look-up or a failing candidate does not affect the digest that serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TagMachine {
    configured: bool,
    /// This tag is the canary tag of a followed tag.
    accompanies: bool,
    /// The digest that was rejected as a canary.
    rejected: Option<Digest>,
    /// The registry reported that the tag was removed, and has not named a digest for it since.
    removed: bool,
    /// A promotion in this process alone: while the registry names the first digest, the second
    /// answers.
    promoted: Option<(Digest, Digest)>,
    /// The last time at which a request asked for it; `None` if there was none in this process.
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
    /// No look-up is under way; the next one is due at this time, if the tag is followed.
    Due(Moment),
    /// A look-up is under way. Ends with `Resolved`.
    Running(Attempt),
}

/// An event for a tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A request needs the tag.
    Ask,
    /// Requests used it, last at that time.
    Used(Moment),
    /// Look the tag up now, whatever is known.
    Retry,
    /// True: the configuration names the tag, which is then always followed. False: it no longer
    /// does.
    Configure(bool),
    /// The tag belongs to another image now. With `forget`, versions of the old image stop
    /// answering at once.
    ImageChanged {
        /// Whether to forget the digests of the old image.
        forget: bool,
    },
    /// The source reports a change, so the tag may name another digest: look it up now, if it is
    /// followed.
    LookUp,
    /// The source does not have the tag any more: its digest stops answering for it, whatever requests
    /// asked before.
    Withdrawn,
    /// True: this tag is the canary tag of a followed tag. False: it is none any more.
    Accompany(bool),
    /// That digest is rejected as a canary: the tag does not keep it up until the registry moves
    /// the tag.
    Reject(Digest),
    /// That digest takes over although the registry does not name it, until the registry names a
    /// digest other than now.
    Promote(Digest),
    /// The registry reports for certain that this canary tag does not exist any more. The tag has
    /// no canary until it names a digest again; requests for it are answered as long as there are
    /// any.
    Removed,
    /// [`Effect::Resolve`] ended.
    Resolved(Attempt, Result<Digest, Failure>),
    /// A version of the model has become available.
    Available(Digest),
    /// That version is available, and answers while the tag's own cannot be served.
    StandIn(Digest),
}

/// An effect for the shell to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask the registry for the digest of the tag.
    Resolve(Attempt),
    /// The registry names this digest for the first time since it named another. The causes of its
    /// earlier failures may be gone, and an operator who unloaded it could not know that the tag
    /// would return to it.
    Moved(Digest),
    /// From now on, this digest answers.
    Switched(Digest),
}

impl TagMachine {
    /// Creates a tag without known state, whose attempts come after `last`. A configured tag is
    /// followed for ever.
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

    /// Creates the canary tag of another tag; no request has asked for it.
    pub fn accompanying(last: Attempt, now: Moment) -> Self {
        Self { accompanies: true, asked_at: None, ..Self::new(false, last, now) }
    }

    /// Creates a tag that answered with `serving` when the journal was written. `asked_at` is
    /// `None` if the tag was not in use at that time.
    pub fn adopted(serving: Digest, asked_at: Option<Moment>, now: Moment) -> Self {
        let new = Self::new(false, Attempt::default(), now);
        Self { serving: Some(serving), asked_at, ..new }
    }

    /// Adds the results of canaries: [`Event::Reject`], [`Event::Promote`].
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
            Event::Configure(configured) => self.configured = configured,
            Event::ImageChanged { forget } => self.image_changed(c.now, forget),
            // The result of a look-up under way may be older than the change.
            Event::LookUp => self.lookup = Lookup::Due(c.now),
            Event::Withdrawn => {
                self.asked_at = None;
                self.image_changed(c.now, true);
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
            Event::StandIn(digest) => self.switch(digest, &mut effects),
        }
        self.settle(c, &mut effects);
        (effects, Outcome::Handled)
    }

    fn image_changed(&mut self, now: Moment, forget: bool) {
        self.trouble = None;
        // A look-up under way asks for the old image: its result is stale.
        self.lookup = Lookup::Due(now);
        if forget {
            (self.registry, self.serving) = (None, None);
            (self.rejected, self.promoted) = (None, None);
        }
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
                // A caller learns at once that a tag does not exist.
                let retry_at = (!is_permanent(failure.reason)).then_some(at);
                self.trouble = Some(Trouble { failure, at: c.now, failures, retry_at });
            }
        }
    }

    /// A failed look-up is repeated soon only if the tag has no serving digest.
    fn next_try(&self, c: &Context<'_>, failure: &Failure, failures: u32) -> std::time::Duration {
        let backoff = c.policy.backoff.delay(failures, c.jitter, failure.retry_after);
        if is_permanent(failure.reason) && self.is_unproven() {
            // The tag is forgotten by then; a request after that looks it up again.
            return forget_after(c.policy);
        }
        if self.serving.is_some() || is_permanent(failure.reason) {
            backoff.max(spread(c.policy.poll_interval, c.jitter))
        } else {
            backoff
        }
    }

    fn available(&mut self, digest: Digest, effects: &mut Vec<Effect>) {
        if self.candidate() == Some(digest) {
            self.switch(digest, effects);
        }
    }

    fn switch(&mut self, digest: Digest, effects: &mut Vec<Effect>) {
        self.serving = Some(digest);
        effects.push(Effect::Switched(digest));
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

    /// Whether the registry is polled for moves of the tag: requests or the configuration want it,
    /// or it is the canary tag of a followed tag.
    pub fn is_followed(&self, policy: &Policy, now: Moment) -> bool {
        self.accompanies || self.is_wanted(policy, now)
    }

    /// Whether the tag is configured, or was recently asked for.
    pub fn is_wanted(&self, policy: &Policy, now: Moment) -> bool {
        let fresh = |at| now.since(at) < policy.idle_ttl;
        self.configured || self.asked_at.is_some_and(fresh)
    }

    /// Whether the tag is followed as the canary tag of another tag.
    pub fn is_accompanying(&self) -> bool {
        self.accompanies
    }

    /// The digest that was rejected as a canary.
    pub fn rejected(&self) -> Option<Digest> {
        self.rejected
    }

    /// The digest that the tag names as the canary of another tag; `None` if it names none, or is
    /// not a canary tag.
    pub fn canary(&self) -> Option<Digest> {
        self.registry.or(self.serving).filter(|_| self.accompanies && !self.removed)
    }

    /// The digest that answers in a later process before the registry is asked. A removed tag has
    /// none: it is served only as long as requests ask for it in this process.
    pub fn last_known_good(&self) -> Option<Digest> {
        self.serving.filter(|_| !self.removed || self.configured)
    }

    /// The digest that the registry named, and the digest promoted in its place.
    pub fn promoted(&self) -> Option<(Digest, Digest)> {
        self.promoted
    }

    /// The digest that answers.
    pub fn serving(&self) -> Option<Digest> {
        self.serving
    }

    /// The digest in the registry's last answer.
    pub fn registry(&self) -> Option<Digest> {
        self.registry
    }

    /// The digest that should take over.
    pub fn candidate(&self) -> Option<Digest> {
        self.target().filter(|digest| self.serving != Some(*digest))
    }

    /// True if the tag answers with the digest that it should answer with, as the last look-up found
    /// it, and no look-up is under way.
    pub fn is_current(&self) -> bool {
        matches!(self.lookup, Lookup::Due(_))
            && self.trouble.is_none()
            && self.target().is_some_and(|target| self.serving == Some(target))
    }

    /// The digest that should answer: the one promoted in place of the registry's, or else the
    /// registry's.
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

    /// The time of the last successful look-up.
    pub fn checked_at(&self) -> Option<Moment> {
        self.checked_at
    }

    /// The failure of the last look-up.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The machine's last attempt at a look-up.
    pub fn last(&self) -> Attempt {
        self.last
    }

    /// The last time at which a request asked for it.
    pub fn asked_at(&self) -> Option<Moment> {
        self.asked_at
    }

    /// Whether only requests named it, and it has never worked.
    pub fn is_unproven(&self) -> bool {
        self.serving.is_none() && !self.configured && !self.accompanies
    }

    /// Whether it is followed for ever.
    pub fn is_configured(&self) -> bool {
        self.configured
    }

    /// The next time at which a tick changes something, given that the last tick was at `after`.
    pub fn wakes_at(&self, policy: &Policy, after: Moment) -> Option<Moment> {
        let idle_at = self.asked_at.map(|at| at + policy.idle_ttl);
        let due_at = match self.lookup {
            Lookup::Due(at) if self.configured || self.accompanies => Some(at),
            Lookup::Due(at) if Some(at) < idle_at => Some(at),
            _ => None,
        };
        let idle_at = idle_at.filter(|_| !self.configured);
        let forgotten_at = self.trouble.as_ref().map(|trouble| trouble.at + forget_after(policy));
        let times = [due_at, idle_at, forgotten_at, self.unused_at(policy)];
        times.into_iter().flatten().filter(|at| *at > after).min()
    }

    /// The time from which a tag with a digest counts as unused, if it is neither configured nor
    /// another tag's canary tag.
    fn unused_at(&self, policy: &Policy) -> Option<Moment> {
        let is_free = !self.configured && !self.accompanies;
        self.serving.or(self.registry).filter(|_| is_free)?;
        Some(self.asked_at.unwrap_or_default() + policy.idle_ttl + policy.retain)
    }

    /// Whether the machine can be dropped without loss of state. The tag must be neither configured
    /// nor another tag's canary tag; besides, either no request asked for it during the time for
    /// which files are kept, or the tag does not exist and the callers have received that answer.
    pub fn is_forgettable(&self, c: &Context<'_>) -> bool {
        let is_reported = |trouble: &Trouble| {
            trouble.retry_at.is_none() && c.now.since(trouble.at) >= forget_after(c.policy)
        };
        let unused = match self.serving.or(self.registry) {
            Some(_) => self.unused_at(c.policy).is_some_and(|at| at <= c.now),
            None => {
                !self.is_followed(c.policy, c.now) || self.trouble.as_ref().is_some_and(is_reported)
            }
        };
        !self.configured && !self.accompanies && unused
    }
}

/// The time for which the answer is remembered that a tag does not exist: a tag that begins to exist
/// must be found like the move of a tag, within the interval of look-ups.
fn forget_after(policy: &Policy) -> std::time::Duration {
    policy.forget_after.min(policy.poll_interval)
}

/// A wait between 90% and 110% of `interval`, so that pods do not poll in step.
fn spread(interval: std::time::Duration, jitter: f64) -> std::time::Duration {
    interval.mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0))
}
