//! The machine of one engine: the wanted configuration, the configuration sent last,
//! and the engine's progress with it.
//!
//! TensorFlow Serving's reload waits, under a global lock and without a limit, for every
//! name it has not seen before, and answers at once for known names. A reload that the
//! client gave up on continues in the engine, and another one only queues behind it.
//! Hence:
//!
//! - A new name is first configured with only a placeholder, a tiny model that is already
//!   on disk and loads in a millisecond. Versions are added only to names whose
//!   placeholder was reported available. The placeholder stays as long as the name, and
//!   the name as long as the engine.
//! - Only one reload runs at a time. After an unanswered reload the next one waits until
//!   the engine shows that it has finished, restarts, or the limit has passed.
//! - Only the engine's status shows which versions are loaded. The answer to a reload does
//!   not.
//!
//! An engine never forgets a name it has seen until it ends. So a name that was seen and is
//! unknown now means a restart. The restarted engine has forgotten all versions as well, so
//! the same versions may be loaded again, when they are added again: a version that ends the
//! engine must not be loaded together with all others. Versions of a reload that was under way
//! are the exception: the restarted engine may have received it. They stay configured, because
//! the engine does not reliably load a version again after it has unloaded it.

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

/// The context in which the engine's machine handles an event.
pub type Context<'a> = outrigger_core::Context<'a, Policy>;

/// A configuration of the engine: versions by name, including placeholders.
pub type ServingSet = BTreeMap<ServableName, BTreeSet<Version>>;

/// The machine of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServingMachine {
    names: BTreeMap<ServableName, Name>,
    /// Names that the engine should know although they have no version yet.
    expected: BTreeSet<ServableName>,
    leaving: BTreeMap<ServableId, Leaving>,
    push: Push,
    last_push: Attempt,
    push_failures: u32,
    /// The configuration sent last, unless the engine is known not to have taken it.
    sent: Option<Sent>,
    reachable: Option<bool>,
    /// The time of the last answer to a probe.
    answered_at: Option<Moment>,
    down_since: Option<Moment>,
    restarts: u64,
    failure: Option<Failure>,
    probe: Option<Attempt>,
    last_probe: Attempt,
    probe_at: Moment,
    probed_at: Option<Moment>,
    /// The last name that had its turn.
    probed_to: Option<ServableName>,
    /// A request failed in a way that suggests a restart, or the loss of a version.
    is_suspect: bool,
    last_placeholder: Attempt,
    /// The engine has taken a configuration of this process.
    settled: bool,
}

/// A configuration that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sent {
    set: ServingSet,
    push: Attempt,
    /// The time at which the engine had finished it.
    taken_at: Option<Moment>,
    /// True if the engine restarted while it was under way: either process may have received it.
    crossed: bool,
}

impl Sent {
    fn has(&self, id: &ServableId) -> bool {
        self.set.get(&id.name).is_some_and(|versions| versions.contains(&id.version))
    }

    /// True if the engine's process of now is not the one that answered the reload, as `status`
    /// shows.
    fn is_forgotten(&self, status: &BTreeMap<ServableName, Vec<Seen>>) -> bool {
        let forgotten = |name| status.get(name).is_some_and(Vec::is_empty);
        self.crossed && self.taken_at.is_some() && self.set.keys().any(forgotten)
    }
}

/// An event for the engine's machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// This name will have a version soon.
    Expect(ServableName),
    /// This name will have no version soon, unless one was added.
    Unexpect(ServableName),
    /// This version's files are in place: load it.
    Add(ServableId),
    /// Unload this version. No request may be using it.
    Remove(ServableId),
    /// [`Effect::PublishPlaceholder`] ended.
    PlaceholderPublished(Attempt, ServableId, Result<(), Failure>),
    /// [`Effect::Push`] ended.
    Pushed(Attempt, PushOutcome),
    /// [`Effect::Probe`] ended: the engine's report for each name, empty for a name that the engine
    /// does not know.
    Probed(Attempt, Result<BTreeMap<ServableName, Vec<Seen>>, Failure>),
    /// A request failed in a way that suggests a restart.
    Suspect,
}

/// An effect of the engine's machine: work to carry out, or a report about a version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Publish a placeholder.
    PublishPlaceholder(Attempt, ServableId),
    /// Remove a placeholder from the place where the engine finds it.
    Unpublish(ServableId),
    /// Replace the engine's configuration. The call should get a long deadline: a late answer is
    /// better than none.
    Push(Attempt, ServingSet),
    /// Ask the engine for the status of these names. If there are none, ask for any name, to see
    /// whether the engine answers.
    Probe(Attempt, BTreeSet<ServableName>),
    /// The engine serves this version.
    Up(ServableId),
    /// The engine could not load, or has unloaded, this version.
    Failed(ServableId, Failure),
    /// The engine restarted and has forgotten this version, which may be added again.
    Lost(ServableId),
    /// After [`Event::Remove`]: the engine does not use the version any more.
    Gone(ServableId),
    /// The engine has restarted.
    Restarted,
    /// The engine has taken the first configuration of this process: nothing uses the other files
    /// in its directories.
    Settled,
}

impl ServingMachine {
    /// Creates the machine of an engine without known state.
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
            answered_at: None,
            down_since: None,
            restarts: 0,
            failure: None,
            probe: None,
            last_probe: Attempt::default(),
            probe_at: now,
            probed_at: None,
            probed_to: None,
            is_suspect: false,
            last_placeholder: Attempt::default(),
            settled: false,
        }
    }

    /// Takes over a name that an earlier process had configured: `placeholder` and its files are in
    /// place. Must be called before any event.
    pub fn adopt(&mut self, placeholder: ServableId) {
        self.names.insert(placeholder.name, Name::inherited(placeholder.version));
    }

    /// Takes over a version of an adopted name. Must be called before any event.
    pub fn adopt_version(&mut self, id: ServableId) {
        if let Some(name) = self.names.get_mut(&id.name) {
            name.versions.insert(id.version, names::Reported::Nothing);
        }
    }

    /// Handles an event. The effects are to be carried out in their order.
    pub fn handle(&mut self, c: &Context<'_>, event: Event) -> (Vec<Effect>, Outcome) {
        let mut effects = Vec::new();
        let outcome = self.apply(c, event, &mut effects);
        if outcome == Outcome::Handled {
            self.settle_names(c, &mut effects);
            self.settle_push(c, &mut effects);
            self.settle_probe(c, &mut effects);
        }
        debug_assert_eq!(self.check_gone(&effects), Ok(()));
        (effects, outcome)
    }

    /// Checks that no version reported as gone is in the configuration: its files may be deleted.
    fn check_gone(&self, effects: &[Effect]) -> Result<(), ServableId> {
        let gone = effects.iter().filter_map(|effect| match effect {
            Effect::Gone(id) => Some(id),
            _ => None,
        });
        let mentioned = self.mentioned();
        gone.into_iter().find(|id| mentioned.contains(id)).map_or(Ok(()), |id| Err(id.clone()))
    }

    fn apply(&mut self, c: &Context<'_>, event: Event, effects: &mut Vec<Effect>) -> Outcome {
        match event {
            Event::Tick => {}
            Event::Expect(name) => drop(self.expected.insert(name)),
            Event::Unexpect(name) => drop(self.expected.remove(&name)),
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

    /// The configuration that the engine should have now.
    pub fn target(&self) -> ServingSet {
        let configured = |(servable, name): (&ServableName, &Name)| {
            name.configured().map(|versions| (servable.clone(), versions))
        };
        self.names.iter().filter_map(configured).collect()
    }

    /// The engine's condition.
    pub fn condition(&self) -> Condition {
        Condition {
            reachable: self.reachable,
            down_since: self.down_since,
            failure: self.failure.clone(),
            restarts: self.restarts,
            reloading: matches!(self.push, Push::Running(_) | Push::Unanswered(_)),
        }
    }

    /// The next time at which a tick changes something, given that the last tick was at `after`.
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
    /// Placeholders are included.
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
