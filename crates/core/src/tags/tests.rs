//! Tests of the digest that answers for a tag, under all answers of the registry.

use std::time::Duration;

use super::*;
use crate::{Reason, Version, Versions};

struct Bench {
    machine: TagMachine,
    now: Moment,
    policy: Policy,
    versions: Versions,
}

fn digest(content: &str) -> Digest {
    Digest::of(content.as_bytes())
}

impl Bench {
    fn new(configured: bool) -> Self {
        let now = Moment::at(Duration::from_secs(1));
        let mut bench = Self {
            machine: TagMachine::new(configured, Attempt::default(), now),
            now,
            policy: Policy::default(),
            versions: Versions::after(Version(0)),
        };
        assert_eq!(bench.handle(Event::Ask), [Effect::Resolve(Attempt(1))]);
        bench
    }

    /// Creates a tag that serves `a`.
    fn serving(configured: bool) -> Self {
        let mut bench = Self::new(configured);
        assert_eq!(bench.resolved(Ok(digest("a"))), [Effect::Moved(digest("a"))]);
        assert_eq!(bench.handle(Event::Available(digest("a"))), [Effect::Switched(digest("a"))]);
        bench
    }

    fn outcome(&mut self, event: Event) -> (Vec<Effect>, Outcome) {
        let mut context = Context {
            now: self.now,
            jitter: 0.5,
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

    fn resolved(&mut self, result: Result<Digest, Failure>) -> Vec<Effect> {
        let attempt = self.machine.last;
        self.handle(Event::Resolved(attempt, result))
    }

    /// Runs the next poll, with that result.
    fn polled(&mut self, result: Result<Digest, Failure>) -> Vec<Effect> {
        self.now = self.now + self.policy.poll_interval * 2;
        let effects = self.handle(Event::Tick);
        assert!(matches!(effects[..], [Effect::Resolve(_)]), "{effects:?}");
        self.resolved(result)
    }

    fn pins(&self) -> Vec<Digest> {
        self.machine.pins(&self.policy, self.now).collect()
    }
}

fn failure(reason: Reason) -> Failure {
    Failure::new(reason, "it failed")
}

#[test]
fn a_moved_tag_is_answered_by_the_old_version_until_the_new_one_is_up() {
    let mut bench = Bench::serving(true);
    assert_eq!(bench.polled(Ok(digest("b"))), [Effect::Moved(digest("b"))]);
    assert_eq!(bench.machine.serving(), Some(digest("a")));
    assert_eq!(bench.pins(), [digest("a"), digest("b")]);
    assert_eq!(bench.handle(Event::Available(digest("b"))), [Effect::Switched(digest("b"))]);
    assert_eq!(bench.pins(), [digest("b")]);
}

#[test]
fn a_tag_that_moves_again_drops_the_candidate_in_between() {
    let mut bench = Bench::serving(true);
    bench.polled(Ok(digest("b")));
    bench.polled(Ok(digest("c")));
    assert_eq!(bench.pins(), [digest("a"), digest("c")]);
    assert_eq!(bench.handle(Event::Available(digest("b"))), []);
    assert_eq!(bench.machine.serving(), Some(digest("a")));
}

#[test]
fn a_tag_that_moves_back_keeps_the_serving_version() {
    let mut bench = Bench::serving(true);
    bench.polled(Ok(digest("b")));
    bench.polled(Ok(digest("a")));
    assert_eq!(bench.pins(), [digest("a")]);
}

#[test]
fn a_registry_that_is_down_or_lost_the_tag_changes_nothing() {
    let mut bench = Bench::serving(true);
    for reason in [Reason::RegistryUnavailable, Reason::TagNotFound, Reason::RegistryDenied] {
        bench.polled(Err(failure(reason)));
        assert_eq!(bench.pins(), [digest("a")], "{reason}");
        assert_eq!(bench.machine.trouble().map(|it| it.failure.reason), Some(reason));
    }
    bench.polled(Ok(digest("a")));
    assert_eq!(bench.machine.trouble(), None);
}

#[test]
fn a_first_lookup_that_fails_is_tried_again_soon() {
    let mut bench = Bench::new(true);
    bench.resolved(Err(failure(Reason::RegistryUnavailable)));
    bench.now = bench.now + bench.policy.backoff.first;
    assert!(matches!(bench.handle(Event::Tick)[..], [Effect::Resolve(_)]));
}

#[test]
fn a_tag_that_was_only_asked_for_is_followed_for_a_while() {
    let mut bench = Bench::serving(false);
    bench.now = bench.now + bench.policy.idle_ttl;
    assert_eq!(bench.handle(Event::Tick), []);
    assert_eq!(bench.pins(), []);
    assert_eq!(bench.machine.serving(), Some(digest("a")));
    // A new request wants the last serving digest at once, and has the tag looked up.
    assert!(matches!(bench.handle(Event::Ask)[..], [Effect::Resolve(_)]));
    assert_eq!(bench.pins(), [digest("a")]);
}

#[test]
fn a_missing_tag_is_forgotten_once_it_is_reported() {
    let mut bench = Bench::new(false);
    bench.resolved(Err(failure(Reason::TagNotFound)));
    let forgettable = |bench: &mut Bench| {
        let context = Context {
            now: bench.now,
            jitter: 0.5,
            policy: &bench.policy,
            versions: &mut bench.versions,
        };
        bench.machine.is_forgettable(&context)
    };
    assert!(!forgettable(&mut bench));
    bench.now = bench.now + bench.policy.forget_after;
    assert!(forgettable(&mut bench));
}

#[test]
fn polls_are_spread() {
    let mut bench = Bench::serving(true);
    let due = |bench: &Bench| bench.machine.wakes_at(&bench.policy, bench.now).expect("polled");
    assert_eq!(due(&bench), bench.now + bench.policy.poll_interval);
    bench.now = due(&bench);
    bench.handle(Event::Tick);
    let attempt = bench.machine.last;
    let mut context = Context {
        now: bench.now,
        jitter: 1.0,
        policy: &bench.policy,
        versions: &mut bench.versions,
    };
    bench.machine.handle(&mut context, Event::Resolved(attempt, Ok(digest("a"))));
    assert_eq!(due(&bench), bench.now + bench.policy.poll_interval.mul_f64(1.1));
}

#[test]
fn late_lookups_change_nothing() {
    let mut bench = Bench::serving(true);
    let before = bench.machine.clone();
    let late = bench.outcome(Event::Resolved(Attempt(1), Ok(digest("z"))));
    assert_eq!(late, (vec![], Outcome::Stale));
    let never = bench.outcome(Event::Resolved(Attempt(9), Ok(digest("z"))));
    assert_eq!(never, (vec![], Outcome::Unexpected));
    assert_eq!(bench.machine, before);
}

#[test]
fn versions_served_before_a_restart_serve_before_the_registry_answers() {
    let now = Moment::at(Duration::from_secs(1));
    let machine = TagMachine::adopted(digest("a"), Some(now), now);
    assert_eq!(machine.serving(), Some(digest("a")));
    assert_eq!(machine.pins(&Policy::default(), now).collect::<Vec<_>>(), [digest("a")]);
}
