//! Tests of the engine's machine against a small simulated engine.

use std::{collections::BTreeMap, time::Duration};

use outrigger_core::{ModelName, Reason, Versions};

use super::*;

/// A machine with a clock and a counter of versions.
struct Bench {
    machine: ServingMachine,
    now: Moment,
    policy: Policy,
    versions: Versions,
}

fn name(text: &str) -> ServableName {
    ServableName::of(&text.parse::<ModelName>().expect("a valid name"))
}

fn id(text: &str, version: i64) -> ServableId {
    ServableId { name: name(text), version: Version(version) }
}

fn failure() -> Failure {
    Failure::new(Reason::EngineUnavailable, "down")
}

fn seen(version: i64, state: EngineState) -> Seen {
    Seen { version: Version(version), state, failure: None }
}

type Status = BTreeMap<ServableName, Vec<Seen>>;

fn status(entries: &[(&str, &[Seen])]) -> Status {
    entries.iter().map(|(text, seen)| (name(text), seen.to_vec())).collect()
}

impl Bench {
    fn new() -> Self {
        Self {
            machine: ServingMachine::new(Moment::default()),
            now: Moment::default(),
            policy: Policy::default(),
            versions: Versions::after(Version(0)),
        }
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let (effects, outcome) = self.outcome(event);
        assert_eq!(outcome, Outcome::Handled);
        effects
    }

    fn outcome(&mut self, event: Event) -> (Vec<Effect>, Outcome) {
        let context =
            Context { now: self.now, jitter: 1.0, policy: &self.policy, versions: &self.versions };
        self.machine.handle(&context, event)
    }

    fn pass(&mut self, time: Duration) -> Vec<Effect> {
        self.now = self.now + time;
        self.handle(Event::Tick)
    }

    /// Answers the outstanding probe, and starts one first if there is none.
    fn probed(&mut self, status: Status) -> Vec<Effect> {
        self.probe_ends(Ok(status))
    }

    fn probe_ends(&mut self, result: Result<Status, Failure>) -> Vec<Effect> {
        if self.machine.probe.is_none() {
            self.pass(self.policy.steady_probe);
        }
        let attempt = self.machine.probe.expect("a probe is out");
        self.handle(Event::Probed(attempt, result))
    }

    fn pushed(&mut self, outcome: PushOutcome) -> Vec<Effect> {
        let attempt = self.machine.last_push;
        self.handle(Event::Pushed(attempt, outcome))
    }

    /// Creates a machine whose engine has taken an empty configuration.
    fn started() -> Self {
        let mut bench = Self::new();
        let pushes = bench.probed(Status::new());
        assert_eq!(pushed_set(&pushes), Some(ServingSet::new()));
        let effects = bench.pushed(PushOutcome::Taken(None));
        assert!(effects.contains(&Effect::Settled));
        bench
    }

    /// Creates a machine whose engine knows `a` by placeholder 1 and has version 5 still to load.
    fn loading() -> Self {
        let mut bench = Self::started();
        let effects = bench.handle(Event::Add(id("a", 5)));
        let [Effect::PublishPlaceholder(attempt, placeholder)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(*placeholder, id("a", 1));
        let published = Event::PlaceholderPublished(*attempt, placeholder.clone(), Ok(()));
        let effects = bench.handle(published);
        assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1])])));
        bench.pushed(PushOutcome::Taken(None));
        let effects = bench.probed(status(&[("a", &[seen(1, EngineState::Available)])]));
        assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 5])])));
        bench
    }

    /// Creates a machine whose engine serves version 5 of `a`.
    fn serving() -> Self {
        let mut bench = Self::loading();
        bench.pushed(PushOutcome::Taken(None));
        let effects = bench.probed(up());
        assert_eq!(effects, [Effect::Up(id("a", 5))]);
        bench
    }
}

fn up() -> Status {
    status(&[("a", &[seen(5, EngineState::Available), seen(1, EngineState::Available)])])
}

fn set(entries: &[(&str, &[i64])]) -> ServingSet {
    let versions = |versions: &[i64]| versions.iter().map(|v| Version(*v)).collect();
    entries.iter().map(|(text, all)| (name(text), versions(all))).collect()
}

fn pushed_set(effects: &[Effect]) -> Option<ServingSet> {
    effects.iter().find_map(|effect| match effect {
        Effect::Push(_, set) => Some(set.clone()),
        _ => None,
    })
}

#[test]
fn a_version_is_added_only_to_a_name_whose_placeholder_is_seen() {
    Bench::serving();
}

#[test]
fn changes_during_a_reload_are_sent_together_after_it() {
    let mut bench = Bench::loading();
    assert_eq!(pushed_set(&bench.handle(Event::Add(id("a", 6)))), None);
    assert_eq!(pushed_set(&bench.handle(Event::Add(id("a", 7)))), None);
    let effects = bench.pushed(PushOutcome::Taken(None));
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 5, 6, 7])])));
}

#[test]
fn a_reload_without_an_answer_is_not_repeated_until_the_engine_is_done() {
    let mut bench = Bench::loading();
    bench.pushed(PushOutcome::TimedOut);
    assert!(bench.machine.condition().reloading);
    assert_eq!(pushed_set(&bench.handle(Event::Add(id("a", 6)))), None);
    let behind = status(&[("a", &[seen(1, EngineState::Available)])]);
    for _ in 0..100 {
        assert_eq!(pushed_set(&bench.probed(behind.clone())), None);
    }
    let loading = [seen(5, EngineState::Loading), seen(1, EngineState::Available)];
    let effects = bench.probed(status(&[("a", &loading)]));
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 5, 6])])));
}

#[test]
fn a_reload_without_an_answer_is_repeated_after_the_limit() {
    let mut bench = Bench::loading();
    bench.pushed(PushOutcome::TimedOut);
    bench.probed(status(&[("a", &[seen(1, EngineState::Available)])]));
    let limit = bench.policy.reload_limit;
    assert_eq!(pushed_set(&bench.pass(limit)), Some(set(&[("a", &[1, 5])])));
}

#[test]
fn a_lost_connection_holds_reloads_back_until_the_engine_answers() {
    let mut bench = Bench::loading();
    bench.pushed(PushOutcome::Lost(failure()));
    assert_eq!(bench.machine.reachable, Some(false));
    assert_eq!(pushed_set(&bench.pass(Duration::from_secs(3600))), None);
    let effects = bench.probed(status(&[("a", &[seen(1, EngineState::Available)])]));
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 5])])));
}

#[test]
fn a_refused_configuration_is_sent_again_after_a_while() {
    let mut bench = Bench::loading();
    bench.pushed(PushOutcome::Refused(failure()));
    assert!(bench.machine.failure.as_ref().is_some());
    let wait = bench.policy.backoff.first;
    assert_eq!(pushed_set(&bench.pass(wait / 2)), None);
    assert_eq!(pushed_set(&bench.pass(wait)), Some(set(&[("a", &[1, 5])])));
}

#[test]
fn a_failed_load_is_reported_once() {
    let mut bench = Bench::loading();
    bench.pushed(PushOutcome::Taken(None));
    let ended = Seen { failure: Some(failure()), ..seen(5, EngineState::End) };
    let entry = [ended, seen(1, EngineState::Available)];
    let effects = bench.probed(status(&[("a", &entry)]));
    assert_eq!(effects, [Effect::Failed(id("a", 5), failure())]);
    let effects = bench.probed(status(&[("a", &entry)]));
    assert_eq!(effects, []);
}

#[test]
fn a_removed_version_is_gone_when_it_has_ended_and_the_name_stays() {
    let mut bench = Bench::serving();
    let effects = bench.handle(Event::Remove(id("a", 5)));
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1])])));
    // The end counts only after the reload was answered.
    let ended = status(&[("a", &[seen(5, EngineState::End), seen(1, EngineState::Available)])]);
    assert_eq!(bench.probed(ended.clone()), []);
    bench.pushed(PushOutcome::Taken(None));
    let unloading = [seen(5, EngineState::Unloading), seen(1, EngineState::Available)];
    assert_eq!(bench.probed(status(&[("a", &unloading)])), []);
    assert_eq!(bench.probed(ended), [Effect::Gone(id("a", 5))]);
    assert_eq!(bench.machine.target(), set(&[("a", &[1])]));
}

#[test]
fn a_removed_version_the_engine_never_mentioned_is_gone_after_the_grace() {
    let mut bench = Bench::loading();
    bench.pushed(PushOutcome::Taken(None));
    bench.handle(Event::Remove(id("a", 5)));
    bench.pushed(PushOutcome::Taken(None));
    let absent = status(&[("a", &[seen(1, EngineState::Available)])]);
    assert_eq!(bench.probed(absent.clone()), []);
    bench.now = bench.now + bench.policy.absent_grace;
    assert!(bench.probed(absent).contains(&Effect::Gone(id("a", 5))));
}

#[test]
fn after_a_restart_versions_are_loaded_again_when_they_are_added_placeholders_first() {
    let mut bench = Bench::serving();
    let effects = bench.probed(status(&[("a", &[])]));
    assert_eq!(effects[..2], [Effect::Restarted, Effect::Lost(id("a", 5))]);
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1])])));
    assert_eq!(bench.machine.restarts, 1);
    bench.pushed(PushOutcome::Taken(None));
    let placeholder = status(&[("a", &[seen(1, EngineState::Available)])]);
    let effects = bench.probed(placeholder.clone());
    assert_eq!(pushed_set(&effects), None, "the version was not added again");
    let effects = bench.handle(Event::Add(id("a", 5)));
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 5])])));
    bench.pushed(PushOutcome::Taken(None));
    assert_eq!(bench.probed(up()), [Effect::Up(id("a", 5))]);
}

#[test]
fn a_version_that_was_lost_may_be_removed_instead_of_being_added_again() {
    let mut bench = Bench::serving();
    bench.probed(status(&[("a", &[])]));
    bench.pushed(PushOutcome::Taken(None));
    let placeholder = status(&[("a", &[seen(1, EngineState::Available)])]);
    bench.probed(placeholder.clone());
    bench.handle(Event::Remove(id("a", 5)));
    bench.probed(placeholder.clone());
    bench.now = bench.now + bench.policy.absent_grace;
    assert!(bench.probed(placeholder).contains(&Effect::Gone(id("a", 5))));
}

#[test]
fn an_engine_that_does_not_answer_has_not_restarted() {
    let mut bench = Bench::serving();
    let since = bench.now;
    bench.probe_ends(Err(failure()));
    assert!(bench.machine.down_since >= Some(since));
    assert_eq!(bench.probed(up()), []);
    assert_eq!((bench.machine.restarts, bench.machine.down_since), (0, None));
}

#[test]
fn an_engine_that_hangs_has_been_away_since_its_last_answer() {
    let mut bench = Bench::serving();
    bench.probed(up());
    let answered = bench.now;
    bench.now = bench.now + Duration::from_secs(3);
    bench.probe_ends(Err(Failure::new(Reason::Deadline, "no answer")));
    assert_eq!(bench.machine.down_since, Some(answered));
}

#[test]
fn names_without_versions_stay_until_the_engine_ends() {
    let mut bench = Bench::serving();
    bench.handle(Event::Remove(id("a", 5)));
    bench.pushed(PushOutcome::Taken(None));
    let ended = [seen(5, EngineState::End), seen(1, EngineState::Available)];
    bench.probed(status(&[("a", &ended)]));
    assert_eq!(bench.machine.target(), set(&[("a", &[1])]));
    let effects = bench.probed(status(&[("a", &[])]));
    assert_eq!(pushed_set(&effects), Some(ServingSet::new()));
    bench.pushed(PushOutcome::Taken(None));
    bench.probed(status(&[("a", &[])]));
    bench.now = bench.now + bench.policy.absent_grace;
    let effects = bench.probed(status(&[("a", &[])]));
    assert!(effects.contains(&Effect::Unpublish(id("a", 1))), "{effects:?}");
}

#[test]
fn versions_of_an_earlier_process_are_adopted_without_a_reload() {
    let mut bench = Bench::new();
    bench.machine.adopt(id("a", 1));
    bench.machine.adopt_version(id("a", 5));
    let effects = bench.probed(up());
    assert_eq!(effects[0], Effect::Up(id("a", 5)));
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 5])])));
}

#[test]
fn a_name_the_engine_ignores_is_sent_once_more() {
    let mut bench = Bench::loading();
    bench.pushed(PushOutcome::Taken(None));
    let ignored = status(&[("a", &[seen(1, EngineState::Available)])]);
    assert_eq!(pushed_set(&bench.probed(ignored.clone())), None);
    let stuck = bench.policy.stuck_after;
    assert_eq!(pushed_set(&bench.pass(stuck)), Some(set(&[("a", &[1, 5])])));
}

#[test]
fn a_placeholder_that_failed_to_load_is_replaced() {
    let mut bench = Bench::started();
    bench.handle(Event::Expect(name("a")));
    let attempt = bench.machine.last_placeholder;
    bench.handle(Event::PlaceholderPublished(attempt, id("a", 1), Ok(())));
    bench.pushed(PushOutcome::Taken(Some(failure())));
    bench.probed(status(&[("a", &[seen(1, EngineState::End)])]));
    let effects = bench.pass(Duration::from_secs(60));
    let replaced = |effect: &Effect| matches!(effect, Effect::PublishPlaceholder(_, new) if *new == id("a", 2));
    assert!(effects.iter().any(replaced), "{effects:?}");
}

#[test]
fn late_and_repeated_completions_change_nothing() {
    let mut bench = Bench::serving();
    let before = bench.machine.clone();
    let (push, probe) = (bench.machine.last_push, bench.machine.last_probe);
    for event in [
        Event::Pushed(push, PushOutcome::TimedOut),
        Event::Probed(probe, Err(failure())),
        Event::PlaceholderPublished(Attempt(1), id("a", 1), Ok(())),
        Event::Add(id("a", 5)),
    ] {
        assert_eq!(bench.outcome(event), (vec![], Outcome::Stale));
        assert_eq!(bench.machine, before);
    }
    let never = bench.outcome(Event::Pushed(Attempt(99), PushOutcome::TimedOut));
    assert_eq!(never, (vec![], Outcome::Unexpected));
    assert_eq!(bench.outcome(Event::Remove(id("b", 1))), (vec![], Outcome::Unexpected));
}

#[test]
fn suspicion_asks_at_once_but_not_more_often_than_the_busy_interval() {
    let mut bench = Bench::serving();
    bench.now = bench.now + bench.policy.busy_probe;
    assert!(matches!(bench.handle(Event::Suspect)[..], [Effect::Probe(..)]));
    bench.probe_ends(Ok(up()));
    assert_eq!(bench.handle(Event::Suspect), []);
}

/// A machine whose engine restarted while version 6 was on its way to it.
fn crossed() -> Bench {
    let mut bench = Bench::serving();
    bench.handle(Event::Add(id("a", 6)));
    assert!(bench.machine.condition().reloading);
    let effects = bench.probed(status(&[("a", &[])]));
    assert_eq!(effects[..2], [Effect::Restarted, Effect::Lost(id("a", 5))]);
    assert_eq!(pushed_set(&effects), None);
    bench.handle(Event::Add(id("a", 6)));
    bench
}

/// The status of an engine with the placeholder and versions 5 and 6 of `a`.
fn both(state: EngineState) -> Status {
    status(&[("a", &[seen(6, state), seen(5, state), seen(1, EngineState::Available)])])
}

#[test]
fn versions_that_a_restarted_engine_got_are_not_unloaded() {
    let mut bench = crossed();
    assert_eq!(pushed_set(&bench.pushed(PushOutcome::Taken(None))), None);
    let effects = bench.probed(both(EngineState::Available));
    assert_eq!(effects, [Effect::Up(id("a", 6))], "version 5 was not added again");
    assert_eq!(pushed_set(&bench.handle(Event::Add(id("a", 5)))), None);
    assert_eq!(bench.probed(both(EngineState::Available)), [Effect::Up(id("a", 5))]);
    assert_eq!(bench.machine.restarts, 1);
}

#[test]
fn a_version_that_a_restarted_engine_got_and_that_is_not_wanted_leaves_it() {
    let mut bench = crossed();
    bench.pushed(PushOutcome::Taken(None));
    bench.probed(both(EngineState::Available));
    let effects = bench.handle(Event::Remove(id("a", 5)));
    assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 6])])));
}

#[test]
fn a_status_from_before_the_answer_says_nothing_about_the_restarted_engine() {
    let mut bench = crossed();
    bench.pass(bench.policy.steady_probe);
    let attempt = bench.machine.probe.expect("a probe is out");
    bench.pushed(PushOutcome::Taken(None));
    let late = bench.outcome(Event::Probed(attempt, Ok(status(&[("a", &[])]))));
    assert_eq!(late, (vec![], Outcome::Stale));
    assert_eq!(bench.probed(both(EngineState::Available)), [Effect::Up(id("a", 6))]);
}

#[test]
fn a_reload_that_only_the_ended_process_took_is_sent_again_placeholders_first() {
    for end in [PushOutcome::Taken(None), PushOutcome::Lost(failure())] {
        let mut bench = crossed();
        assert_eq!(pushed_set(&bench.pushed(end)), None);
        let effects = bench.probed(status(&[("a", &[])]));
        assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1])])));
        bench.pushed(PushOutcome::Taken(None));
        let effects = bench.probed(status(&[("a", &[seen(1, EngineState::Available)])]));
        assert_eq!(pushed_set(&effects), Some(set(&[("a", &[1, 6])])), "5 was not added again");
        assert_eq!(bench.machine.restarts, 1);
    }
}
