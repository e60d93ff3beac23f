//! Tests of the machine of a version: the whole transition table, and sequences of events.

use std::time::Duration;

use super::*;
use crate::{Digest, Policy, Reason, ServableName, Stage, Version, Versions};

struct Bench {
    machine: ModelMachine,
    now: Moment,
    policy: Policy,
    versions: Versions,
}

fn key() -> ModelKey {
    ModelKey { name: "churn".parse().expect("valid"), digest: Digest::of(b"churn") }
}

fn failure(reason: Reason) -> Failure {
    Failure::new(reason, "it failed")
}

fn transient() -> Fault {
    Fault::Failed(failure(Reason::RegistryUnavailable))
}

fn permanent() -> Fault {
    Fault::Failed(failure(Reason::ImageInvalid))
}

impl Bench {
    fn new() -> Self {
        let now = Moment::at(Duration::from_secs(1));
        Self {
            machine: ModelMachine::new(key(), Attempt::default(), now),
            now,
            policy: Policy::default(),
            versions: Versions::after(Version(0)),
        }
    }

    fn outcome(&mut self, event: Event) -> (Vec<Effect>, Outcome) {
        let mut context = Context {
            now: self.now,
            jitter: 1.0,
            policy: &self.policy,
            versions: &mut self.versions,
        };
        self.machine.handle(&mut context, event)
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let (effects, outcome) = self.outcome(event);
        assert_eq!(outcome, Outcome::Handled);
        effects
    }

    fn pass(&mut self, time: Duration) -> Vec<Effect> {
        self.now = self.now + time;
        self.handle(Event::Tick)
    }

    fn last(&self) -> Attempt {
        self.machine.last
    }

    fn id(&self) -> ServableId {
        ServableId { name: ServableName::of(&key().name), version: self.versions.last() }
    }

    /// Creates a machine that a request asked for and brings it to the state named.
    fn at(state: &str) -> Self {
        let mut bench = Self::new();
        if state == "new" {
            return bench;
        }
        bench.handle(Event::Ask);
        for (name, step) in STEPS {
            if *name == state {
                return bench;
            }
            let event = step(&bench);
            bench.handle(event);
        }
        match state {
            "serving" => {}
            "downloaded" => {
                bench = Self::at("preparing");
                bench.handle(Event::Unload { delete: false });
                let attempt = bench.last();
                bench.handle(Event::Prepared(attempt, Ok(EngineId::default())));
                bench.handle(Event::Wake);
            }
            "prepared" => {
                bench = Self::at("preparing");
                bench.handle(Event::Slot(Slot::Next));
                let attempt = bench.last();
                bench.handle(Event::Prepared(attempt, Ok(EngineId::default())));
            }
            "deleting" => {
                bench = Self::at("downloaded");
                bench.handle(Event::Unload { delete: true });
            }
            "draining" => drop(bench.handle(Event::Unload { delete: false })),
            "unloading" => {
                bench.handle(Event::Unload { delete: false });
                bench.handle(Event::Drained(1));
            }
            "leaving" => {
                let id = bench.id();
                bench.handle(Event::LoadFailed(id, failure(Reason::EngineFailed)));
            }
            other => panic!("no state {other}"),
        }
        bench
    }
}

type Step = (&'static str, fn(&Bench) -> Event);

/// The states on the way up, each with the event that ends it.
const STEPS: &[Step] = &[
    ("pulling", |bench| Event::Pulled(bench.last(), Ok(()))),
    ("preparing", |bench| Event::Prepared(bench.last(), Ok(EngineId::default()))),
    ("publishing", |bench| Event::Published(bench.last(), Ok(()))),
    ("loading", |bench| Event::Up(bench.id())),
    ("checking", |bench| Event::Checked(bench.last(), Ok(()))),
];

const STATES: &[&str] = &[
    "new",
    "pulling",
    "downloaded",
    "preparing",
    "prepared",
    "publishing",
    "deleting",
    "loading",
    "checking",
    "leaving",
    "unloading",
    "serving",
    "draining",
];

/// Every kind of event, with the attempt and servable that fit the state where some fit.
const EVENTS: &[Step] = &[
    ("tick", |_| Event::Tick),
    ("ask", |_| Event::Ask),
    ("wake", |_| Event::Wake),
    ("used", |bench| Event::Used(bench.now)),
    ("pin", |_| Event::Pin(true)),
    ("slot free", |_| Event::Slot(Slot::Free)),
    ("slot next", |_| Event::Slot(Slot::Next)),
    ("slot taken", |_| Event::Slot(Slot::Taken)),
    ("retry", |_| Event::Retry),
    ("unload", |_| Event::Unload { delete: false }),
    ("delete", |_| Event::Unload { delete: true }),
    ("revoked", |_| Event::Revoked(failure(Reason::SignatureInvalid))),
    ("evicted", |_| Event::Evicted),
    ("pulled", |bench| Event::Pulled(bench.last(), Ok(()))),
    ("pull failed", |bench| Event::Pulled(bench.last(), Err(transient()))),
    ("prepared", |bench| Event::Prepared(bench.last(), Ok(EngineId::default()))),
    ("cannot prepare", |bench| Event::Prepared(bench.last(), Err(permanent()))),
    ("no files", |bench| Event::Prepared(bench.last(), Err(Fault::FilesMissing))),
    ("published", |bench| Event::Published(bench.last(), Ok(()))),
    ("cannot publish", |bench| Event::Published(bench.last(), Err(transient()))),
    ("up", |bench| Event::Up(bench.id())),
    ("load failed", |bench| Event::LoadFailed(bench.id(), failure(Reason::EngineFailed))),
    ("lost", |bench| Event::Lost(bench.id())),
    ("gone", |bench| Event::Gone(bench.id())),
    ("checked", |bench| Event::Checked(bench.last(), Ok(()))),
    ("check failed", |bench| Event::Checked(bench.last(), Err(failure(Reason::GoldenMismatch)))),
    ("drained", |_| Event::Drained(1)),
    ("deleted", |bench| Event::Deleted(bench.last())),
    ("future attempt", |_| Event::Pulled(Attempt(99), Ok(()))),
];

fn short(state: &State) -> &'static str {
    match state {
        State::New => "new",
        State::Downloaded => "downloaded",
        State::Prepared => "prepared",
        State::Leaving { .. } => "leaving",
        other => other.activity(),
    }
}

fn table() -> String {
    let mut text = String::new();
    for state in STATES {
        for (name, event) in EVENTS {
            let mut bench = Bench::at(state);
            assert_eq!(short(&bench.machine.state), *state);
            let before = bench.machine.clone();
            let event = event(&bench);
            let (effects, outcome) = bench.outcome(event);
            let result = match outcome {
                Outcome::Handled if bench.machine.state == before.state => continue,
                Outcome::Handled => {
                    let effects: Vec<_> = effects.iter().map(named).collect();
                    format!("{} [{}]", short(&bench.machine.state), effects.join(" "))
                }
                Outcome::Stale => {
                    assert_eq!(bench.machine, before, "{state}, {name}");
                    continue;
                }
                Outcome::Unexpected => "UNEXPECTED".to_owned(),
            };
            text += &format!("{state}, {name} -> {result}\n");
        }
    }
    text
}

fn named(effect: &Effect) -> String {
    let text = format!("{effect:?}");
    text.split('(').next().unwrap_or_default().to_lowercase()
}

#[test]
fn the_table_of_transitions_is_as_written_here() {
    // Pairs missing from this file leave the state unchanged.
    let expected = include_str!("transitions.txt");
    let table = table();
    assert!(table == expected, "the table is now:\n{table}");
}

#[test]
fn a_transient_failure_is_tried_again_after_the_backoff() {
    let mut bench = Bench::at("pulling");
    let attempt = bench.last();
    bench.handle(Event::Pulled(attempt, Err(transient())));
    assert_eq!(bench.machine.activity(), "backoff");
    let wait = bench.policy.backoff.first;
    let retry_at = bench.now + wait;
    assert_eq!(bench.machine.wakes_at(&bench.policy, bench.now), Some(retry_at));
    assert_eq!(bench.pass(wait / 2), []);
    assert_eq!(bench.pass(wait / 2), [Effect::Pull(Attempt(attempt.0 + 1))]);
    let attempt = bench.last();
    bench.handle(Event::Pulled(attempt, Err(transient())));
    assert_eq!(bench.machine.trouble().map(|trouble| trouble.failures), Some(2));
    assert_eq!(bench.pass(wait), []);
    assert_eq!(bench.pass(wait).len(), 1);
}

#[test]
fn a_registrys_retry_after_is_respected() {
    let mut bench = Bench::at("pulling");
    let attempt = bench.last();
    let busy = failure(Reason::RegistryUnavailable).retry_after(Duration::from_secs(40));
    bench.handle(Event::Pulled(attempt, Err(Fault::Failed(busy))));
    assert_eq!(bench.pass(Duration::from_secs(39)), []);
    assert_eq!(bench.pass(Duration::from_secs(1)).len(), 1);
}

#[test]
fn a_permanent_failure_stays_until_a_retry_is_requested() {
    let mut bench = Bench::at("preparing");
    let attempt = bench.last();
    bench.handle(Event::Prepared(attempt, Err(permanent())));
    assert_eq!(bench.machine.activity(), "failed");
    assert_eq!(bench.pass(Duration::from_secs(600)), []);
    assert_eq!(bench.handle(Event::Ask), []);
    assert!(matches!(bench.handle(Event::Retry)[..], [Effect::Prepare(_)]));
}

#[test]
fn a_revoked_version_leaves_once_drained_despite_demand_and_is_retried() {
    let mut bench = Bench::at("serving");
    bench.handle(Event::Pin(true));
    let effects = bench.handle(Event::Revoked(failure(Reason::SignatureInvalid)));
    assert_eq!(effects, [Effect::Withdraw(1)]);
    bench.handle(Event::Ask);
    bench.handle(Event::Wake);
    assert_eq!(bench.machine.routed(), None);
    assert_eq!(bench.handle(Event::Drained(1)), [Effect::Remove(bench.id())]);
    let id = bench.id();
    bench.handle(Event::Gone(id));
    let trouble = bench.machine.trouble().map(|trouble| trouble.failure.reason);
    assert_eq!(trouble, Some(Reason::SignatureInvalid));
    let wait = bench.policy.backoff.first;
    assert!(matches!(bench.pass(wait)[..], [Effect::Prepare(_)]));
}

#[test]
fn success_forgets_the_failures_before_it() {
    let mut bench = Bench::at("pulling");
    let attempt = bench.last();
    bench.handle(Event::Pulled(attempt, Err(transient())));
    bench.pass(bench.policy.backoff.first);
    let attempt = bench.last();
    bench.handle(Event::Pulled(attempt, Ok(())));
    assert_eq!(bench.machine.trouble(), None);
}

#[test]
fn every_load_gets_a_version_of_its_own() {
    let mut bench = Bench::at("loading");
    let first = bench.id();
    bench.handle(Event::LoadFailed(first.clone(), failure(Reason::EngineFailed)));
    bench.handle(Event::Gone(first.clone()));
    bench.pass(Duration::from_secs(60));
    let attempt = bench.last();
    let effects = bench.handle(Event::Prepared(attempt, Ok(EngineId::default())));
    assert!(matches!(&effects[..], [Effect::Publish(_, id)] if *id > first), "{effects:?}");
}

#[test]
fn an_idle_version_is_withdrawn_drained_unloaded_and_at_last_deleted() {
    let mut bench = Bench::at("serving");
    let id = bench.id();
    bench.pass(bench.policy.idle_ttl / 2);
    bench.handle(Event::Used(bench.now));
    assert_eq!(bench.pass(bench.policy.idle_ttl - Duration::from_secs(1)), []);
    assert_eq!(bench.pass(Duration::from_secs(1)), [Effect::Withdraw(1)]);
    assert_eq!(bench.machine.routed(), None);
    assert_eq!(bench.handle(Event::Drained(1)), [Effect::Remove(id.clone())]);
    assert_eq!(bench.handle(Event::Gone(id.clone())), [Effect::Unpublish(id)]);
    let idle = bench.policy.idle_ttl + Duration::from_secs(1);
    assert_eq!(bench.pass(bench.policy.retain - idle), []);
    assert!(matches!(bench.pass(idle)[..], [Effect::Delete(_)]));
}

#[test]
fn a_pinned_version_is_never_idle() {
    let mut bench = Bench::at("serving");
    bench.handle(Event::Pin(true));
    assert_eq!(bench.pass(bench.policy.retain * 2), []);
    assert_eq!(bench.handle(Event::Pin(false)), [Effect::Withdraw(1)]);
}

#[test]
fn demand_while_draining_brings_it_back_without_unloading() {
    let mut bench = Bench::at("draining");
    let id = bench.id();
    assert_eq!(bench.handle(Event::Ask), [Effect::Route(id.clone(), 2)]);
    // A completed drain of the old route does not affect the new route.
    assert_eq!(bench.outcome(Event::Drained(1)), (vec![], Outcome::Stale));
    bench.handle(Event::Unload { delete: false });
    assert_eq!(bench.handle(Event::Drained(2)), [Effect::Remove(id)]);
}

#[test]
fn after_an_engine_restart_old_leases_are_waited_for_before_an_unload() {
    let mut bench = Bench::at("serving");
    let id = bench.id();
    let added = Effect::Add(id.clone());
    assert_eq!(bench.handle(Event::Lost(id.clone())), [Effect::Withdraw(1), added]);
    assert_eq!(bench.handle(Event::Unload { delete: false }), []);
    assert_eq!(bench.handle(Event::Drained(1)), [Effect::Remove(id)]);
}

#[test]
fn demand_while_unloading_loads_it_again_afterwards() {
    let mut bench = Bench::at("unloading");
    let id = bench.id();
    assert_eq!(bench.handle(Event::Ask), []);
    let effects = bench.handle(Event::Gone(id.clone()));
    assert!(matches!(&effects[..], [Effect::Unpublish(_), Effect::Prepare(_)]), "{effects:?}");
}

#[test]
fn a_version_without_the_slot_is_published_into_no_engine() {
    let mut bench = Bench::at("publishing");
    bench.handle(Event::Slot(Slot::Taken));
    let attempt = bench.last();
    let effects = bench.handle(Event::Published(attempt, Ok(())));
    assert!(matches!(effects[..], [Effect::Unpublish(_)]), "{effects:?}");
    assert_eq!(bench.machine.activity(), read::TAKEN);
    assert!(matches!(bench.handle(Event::Slot(Slot::Next))[..], [Effect::Prepare(_)]));
    let attempt = bench.last();
    assert_eq!(bench.handle(Event::Prepared(attempt, Ok(EngineId::default()))), []);
    assert!(matches!(bench.handle(Event::Slot(Slot::Free))[..], [Effect::Publish(..)]));
}

#[test]
fn a_version_that_lost_the_slot_is_not_added_again_after_an_engine_restart() {
    let mut bench = Bench::at("serving");
    let id = bench.id();
    assert_eq!(bench.handle(Event::Slot(Slot::Taken)), [Effect::Withdraw(1)]);
    assert_eq!(bench.handle(Event::Lost(id.clone())), []);
    assert_eq!(bench.handle(Event::Drained(1)), [Effect::Remove(id)]);
}

#[test]
fn a_failure_in_place_of_another_version_is_tried_again_much_later() {
    for (slot, is_soon) in [(Slot::Free, true), (Slot::Replacing, false)] {
        let mut bench = Bench::at("checking");
        bench.handle(Event::Slot(slot));
        let attempt = bench.last();
        bench.handle(Event::Checked(attempt, Err(failure(Reason::EngineUnavailable))));
        let retry_at = bench.machine.trouble().and_then(|trouble| trouble.retry_at);
        let wait = retry_at.expect("it is transient").since(bench.now);
        let Policy { backoff, replace_backoff, .. } = &bench.policy;
        let first = if is_soon { backoff.first } else { replace_backoff.first };
        assert_eq!(wait, first, "{slot:?}");
    }
}

#[test]
fn files_that_vanished_are_pulled_again() {
    let mut bench = Bench::at("preparing");
    let attempt = bench.last();
    let effects = bench.handle(Event::Prepared(attempt, Err(Fault::FilesMissing)));
    assert!(matches!(effects[..], [Effect::Pull(_)]), "{effects:?}");
}

#[test]
fn an_adopted_version_passes_the_gate_before_it_is_routed() {
    let id = ServableId { name: ServableName::of(&key().name), version: Version(7) };
    let mut bench = Bench::new();
    bench.machine = ModelMachine::adopted(key(), id.clone(), bench.now);
    let effects = bench.handle(Event::Up(id));
    assert!(matches!(effects[..], [Effect::Check(..)]), "{effects:?}");
}

#[test]
fn history_lists_the_latest_transitions_with_their_causes() {
    let bench = Bench::at("serving");
    let causes: Vec<_> = bench.machine.history().map(|it| (it.from, it.to, &*it.cause)).collect();
    assert_eq!(
        causes,
        [
            (Stage::New, Stage::Downloaded, "pulled"),
            (Stage::Downloaded, Stage::Loaded, "published"),
            (Stage::Loaded, Stage::Available, "passed the gate"),
        ]
    );
    let mut bench = bench;
    let id = bench.id();
    for _ in 0..100 {
        bench.handle(Event::Lost(id.clone()));
        bench.handle(Event::Up(id.clone()));
        let attempt = bench.last();
        bench.handle(Event::Checked(attempt, Ok(())));
    }
    assert_eq!(bench.machine.history().count(), HISTORY);
}
