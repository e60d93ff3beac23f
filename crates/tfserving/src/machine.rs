//! The machine of one engine: the configuration it should have, has been sent,
//! and what it makes of it.
//!
//! TensorFlow Serving's reload waits, under a global lock and without a limit,
//! for every name it has not seen before, and answers at once for known names.
//! A reload that our side gave up on is still at work there, and one sent on top
//! of it only queues up. Hence:
//!
//! - A new name is first configured with nothing but a placeholder, a tiny model
//!   that is there already and loads in a millisecond. Versions are added only
//!   to names whose placeholder has been seen available. The placeholder stays
//!   as long as the name, and the name as long as the engine.
//! - One reload at a time. After one that was not answered there is no other
//!   until the engine shows that it is done with it, restarted, or the limit has
//!   passed.
//! - What is loaded, only the engine's status tells. An answer to a reload says
//!   nothing about it.
//!
//! An engine never forgets a name it has seen until it ends. So a name that was
//! seen and is unknown now means a restart. The restarted engine has forgotten
//! all versions as well, so the same ones may be loaded again: a restart that was
//! seen wrongly would then do no harm.

mod names;
mod policy;
mod probe;
mod reload;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use names::{Leaving, Name};
use outrigger_core::{
    Attempt, Failure, Moment, Outcome, ServableId, ServableName, Version, engine::Condition,
    invariants::EngineVersions,
};
pub use policy::Policy;
pub use probe::{EngineState, Seen};
use reload::Push;
pub use reload::PushOutcome;

/// The situation in which the engine's machine handles an event.
pub type Context<'a> = outrigger_core::Context<'a, Policy>;

/// What should be in the engine: versions by name, placeholders among them.
pub type ServingSet = BTreeMap<ServableName, BTreeSet<Version>>;

/// The machine of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServingMachine {
    names: BTreeMap<ServableName, Name>,
    /// Names that should be known to the engine though they have no version yet.
    expected: BTreeSet<ServableName>,
    leaving: BTreeMap<ServableId, Leaving>,
    push: Push,
    last_push: Attempt,
    push_failures: u32,
    /// What was sent last, unless it is known not to have been taken.
    sent: Option<Sent>,
    reachable: Option<bool>,
    down_since: Option<Moment>,
    restarts: u64,
    failure: Option<Failure>,
    probe: Option<Attempt>,
    last_probe: Attempt,
    probe_at: Moment,
    probed_at: Option<Moment>,
    last_placeholder: Attempt,
    /// The engine has taken a configuration of ours.
    settled: bool,
}

/// A configuration that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sent {
    set: ServingSet,
    push: Attempt,
    /// When the engine was done with it.
    taken_at: Option<Moment>,
}

/// What happens to an engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// These names will have versions soon.
    Expect(BTreeSet<ServableName>),
    /// This version's files are in place: load it.
    Add(ServableId),
    /// Unload this version. Nobody may be using it.
    Remove(ServableId),
    /// [`Effect::PublishPlaceholder`] ended.
    PlaceholderPublished(Attempt, ServableId, Result<(), Failure>),
    /// [`Effect::Push`] ended.
    Pushed(Attempt, PushOutcome),
    /// [`Effect::Probe`] ended: what the engine says of each name, nothing for
    /// a name it does not know.
    Probed(Attempt, Result<BTreeMap<ServableName, Vec<Seen>>, Failure>),
    /// A request failed in a way that hints at a restart.
    Suspect,
}

/// What an engine's machine wants done, or tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Put a placeholder where the engine finds it.
    PublishPlaceholder(Attempt, ServableId),
    /// Take a placeholder away from there again.
    Unpublish(ServableId),
    /// Replace the engine's configuration. The call should be held open for
    /// long: an answer that comes late is better than none.
    Push(Attempt, ServingSet),
    /// Ask the engine what it knows of these names; of any name, to see whether
    /// it answers, when there is none.
    Probe(Attempt, BTreeSet<ServableName>),
    /// The engine serves this version.
    Up(ServableId),
    /// The engine could not load, or has unloaded, this version.
    Failed(ServableId, Failure),
    /// The engine restarted and has to load this version again.
    Lost(ServableId),
    /// After [`Event::Remove`]: the engine has nothing to do with it any more.
    Gone(ServableId),
    /// The engine was found to have restarted.
    Restarted,
    /// The engine has taken the first configuration of ours: whatever lies in
    /// its directories beside that is used by nobody.
    Settled,
}

impl ServingMachine {
    /// An engine of which nothing is known.
    pub fn new(now: Moment) -> Self {
        Self {
            names: BTreeMap::new(),
            expected: BTreeSet::new(),
            leaving: BTreeMap::new(),
            push: Push::Idle,
            last_push: Attempt::default(),
            push_failures: 0,
            sent: None,
            reachable: None,
            down_since: None,
            restarts: 0,
            failure: None,
            probe: None,
            last_probe: Attempt::default(),
            probe_at: now,
            probed_at: None,
            last_placeholder: Attempt::default(),
            settled: false,
        }
    }

    /// Takes over what an earlier process had configured: `placeholder` and its
    /// files are in place. To be called before any event.
    pub fn adopt(&mut self, placeholder: ServableId) {
        self.names.insert(placeholder.name, Name::inherited(placeholder.version));
    }

    /// Takes over a version of an adopted name. To be called before any event.
    pub fn adopt_version(&mut self, id: ServableId) {
        if let Some(name) = self.names.get_mut(&id.name) {
            name.versions.insert(id.version, names::Told::Nothing);
        }
    }

    /// Handles an event. The effects are to be carried out in their order.
    pub fn handle(&mut self, c: &Context<'_>, event: Event) -> (Vec<Effect>, Outcome) {
        let mut effects = Vec::new();
        let outcome = self.note(c, event, &mut effects);
        if outcome == Outcome::Handled {
            self.settle_names(c, &mut effects);
            self.settle_push(c, &mut effects);
            self.settle_probe(c, &mut effects);
        }
        debug_assert_eq!(self.kept_promises(&effects), Ok(()));
        (effects, outcome)
    }

    /// A version that is gone must not be in the configuration: its files may go.
    fn kept_promises(&self, effects: &[Effect]) -> Result<(), ServableId> {
        let gone = effects.iter().filter_map(|effect| match effect {
            Effect::Gone(id) => Some(id),
            _ => None,
        });
        let mentioned = self.mentioned();
        gone.into_iter().find(|id| mentioned.contains(id)).map_or(Ok(()), |id| Err(id.clone()))
    }

    fn note(&mut self, c: &Context<'_>, event: Event, effects: &mut Vec<Effect>) -> Outcome {
        match event {
            Event::Tick => {}
            Event::Expect(names) => self.expected = names,
            Event::Add(id) => return self.add(c, id),
            Event::Remove(id) => return self.remove(id),
            Event::PlaceholderPublished(attempt, id, result) => {
                return self.placeholder_published(c, attempt, id, result, effects);
            }
            Event::Pushed(attempt, outcome) => return self.pushed(c, attempt, outcome, effects),
            Event::Probed(attempt, result) => return self.probed(c, attempt, result, effects),
            Event::Suspect => self.suspect(c),
        }
        Outcome::Handled
    }

    /// The configuration that the engine should have as of now.
    pub fn target(&self) -> ServingSet {
        let configured = |(servable, name): (&ServableName, &Name)| {
            name.configured().map(|versions| (servable.clone(), versions))
        };
        self.names.iter().filter_map(configured).collect()
    }

    /// How the engine does.
    pub fn condition(&self) -> Condition {
        Condition {
            reachable: self.reachable,
            down_since: self.down_since,
            failure: self.failure.clone(),
            restarts: self.restarts,
            reloading: matches!(self.push, Push::Running(_) | Push::Unanswered(_)),
        }
    }

    /// When time alone will next change something, `after` the last tick.
    pub fn wakes_at(&self, policy: &Policy, after: Moment) -> Option<Moment> {
        let probe_at = self.probe.is_none().then_some(self.probe_at);
        let push_at = self.push_wakes_at(policy);
        let names_at = self.names_wake_at();
        probe_at.into_iter().chain(push_at).chain(names_at).filter(|at| *at > after).min()
    }

    /// Whether something is expected to change soon.
    fn is_busy(&self) -> bool {
        let target = self.target();
        self.reachable != Some(true)
            || self.push != Push::Idle
            || self.sent.as_ref().is_none_or(|sent| sent.set != target)
            || !self.leaving.is_empty()
            || self.names.values().any(Name::is_pending)
    }
}

impl EngineVersions for ServingMachine {
    /// Placeholders count.
    fn wants(&self, id: &ServableId) -> bool {
        self.names.get(&id.name).is_some_and(|name| name.has(id.version))
    }

    fn mentioned(&self) -> BTreeSet<ServableId> {
        let id = |name: &ServableName, version: &Version| ServableId {
            name: name.clone(),
            version: *version,
        };
        let mut all: BTreeSet<_> = self.leaving.keys().cloned().collect();
        for (servable, name) in &self.names {
            let versions = name.versions.keys().copied().chain(name.placeholder());
            all.extend(versions.map(|version| id(servable, &version)));
        }
        for (servable, versions) in self.sent.iter().flat_map(|sent| &sent.set) {
            all.extend(versions.iter().map(|version| id(servable, version)));
        }
        all
    }
}
