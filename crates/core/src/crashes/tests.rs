use proptest::prelude::*;

use super::*;
use crate::{Digest, Reason};

const MINUTE: Duration = Duration::from_secs(60);

fn key(number: u8) -> ModelKey {
    ModelKey {
        name: format!("m{number}").parse().expect("a valid name"),
        digest: Digest::of(&[number]),
    }
}

fn keys(numbers: &[u8]) -> BTreeSet<ModelKey> {
    numbers.iter().copied().map(key).collect()
}

/// Crashes a minute apart, each with the versions that were loading and those with calls.
fn after(crashes: &[(&[u8], &[u8])]) -> (Crashes, Vec<Option<ModelKey>>) {
    let mut state = Crashes::default();
    let each = crashes.iter().zip(1..).map(|((loading, calling), minute)| {
        state.crashed(MINUTE * minute, &keys(loading), &keys(calling)).convicted
    });
    let convicted = each.collect();
    (state, convicted)
}

/// The state in which these versions have passed their first run.
fn serving(numbers: &[u8]) -> Crashes {
    let mut state = Crashes::default();
    numbers.iter().for_each(|number| state.arrived(&key(*number)));
    state
}

#[test]
fn a_version_that_ends_the_engine_by_its_load_is_convicted_at_the_second_crash() {
    let (state, convicted) = after(&[(&[1, 2, 3], &[4, 5]), (&[2], &[1, 3, 4, 5])]);
    assert_eq!(convicted, [None, Some(key(2))]);
    assert!(!state.is_suspect(&key(1)), "the crashes are explained");
    let failure = state.failure(&key(2)).expect("convicted");
    assert_eq!(failure.reason, Reason::ModelQuarantined);
    assert!(failure.message.contains("2 times during its load"), "{failure}");
}

#[test]
fn after_a_crash_those_that_were_loading_are_loaded_last() {
    let (state, _) = after(&[(&[1, 2], &[3, 4])]);
    let grave: Vec<_> = (1..=5).filter(|it| state.is_grave(&key(*it))).collect();
    let suspect: Vec<_> = (1..=5).filter(|it| state.is_suspect(&key(*it))).collect();
    assert_eq!((grave, suspect), (vec![1, 2], vec![1, 2, 3, 4]));
    assert!(!state.are_apart(), "one crash may be anything");
}

#[test]
fn a_request_that_ends_the_engine_convicts_its_version_at_the_fourth_crash() {
    let calls: [(&[u8], &[u8]); 4] =
        [(&[], &[1, 2, 3, 9]), (&[], &[1, 2, 9]), (&[], &[9, 4]), (&[], &[9])];
    let (state, convicted) = after(&calls[..2]);
    assert_eq!(convicted, [None, None]);
    assert!(state.are_apart());
    let (state, _) = after(&calls[..3]);
    assert_eq!(state.sole(), Some(&key(9)));
    assert!(state.is_grave(&key(9)) && !state.are_apart());
    let (_, convicted) = after(&calls);
    assert_eq!(convicted, [None, None, None, Some(key(9))]);
}

#[test]
fn an_abandoned_call_is_suspected_unless_suspects_lost_calls_after_the_crashes_that_convict() {
    let calling = |state: &Crashes, lost: &[u8], abandoned: &[u8]| {
        CutCalls { lost: keys(lost), abandoned: keys(abandoned) }.calling(state)
    };
    let calls: [(&[u8], &[u8]); 4] = [(&[], &[1, 9]); 4];
    let (state, _) = after(&calls[..3]);
    assert_eq!(calling(&state, &[1], &[9]), keys(&[1, 9]));
    let (state, convicted) = after(&calls);
    assert_eq!(convicted, [None, None, None, None], "both may be the cause");
    assert_eq!(calling(&state, &[1], &[9]), keys(&[1]));
    assert_eq!(calling(&state, &[5], &[9]), keys(&[5, 9]));
    assert_eq!(calling(&state, &[], &[9]), keys(&[9]));
}

#[test]
fn restarts_without_calls_or_loads_are_no_crashes() {
    let (state, convicted) = after(&[(&[], &[]), (&[], &[]), (&[], &[]), (&[], &[])]);
    assert_eq!(convicted, vec![None; 4]);
    assert_eq!(state, Crashes::default());
}

#[test]
fn restarts_by_an_operator_under_load_convict_nothing() {
    let (_, convicted) = after(&[(&[], &[1]), (&[], &[1]), (&[], &[1])]);
    assert_eq!(convicted, vec![None; 3]);
    let (_, convicted) = after(&[(&[], &[1, 2]), (&[1], &[]), (&[2], &[1])]);
    assert_eq!(convicted, vec![None; 3], "during the reload as well");
}

#[test]
fn crashes_far_apart_have_nothing_to_do_with_each_other() {
    let mut state = Crashes::default();
    for n in 1..10 {
        let verdict = state.crashed(QUIET * n, &keys(&[1]), &keys(&[2]));
        assert_eq!(verdict, Verdict::default());
    }
    assert!(state.expire(QUIET * 10));
    assert!(!state.is_suspect(&key(1)) && !state.is_suspect(&key(2)));
}

#[test]
fn versions_that_have_loaded_well_are_suspected_last() {
    let mut state = serving(&[1]);
    state.crashed(MINUTE, &keys(&[1, 2]), &keys(&[]));
    assert!(!state.is_suspect(&key(1)) && state.is_grave(&key(2)));
    assert_eq!(state.crashed(MINUTE * 2, &keys(&[2]), &keys(&[])).convicted, Some(key(2)));
    let convicted = (3..=6).map(|minute| {
        let verdict = state.crashed(MINUTE * minute, &keys(&[1]), &keys(&[]));
        assert_eq!(state.is_grave(&key(1)), (4..6).contains(&minute), "minute {minute}");
        verdict.convicted
    });
    assert_eq!(convicted.collect::<Vec<_>>(), [None, None, None, Some(key(1))]);
}

#[test]
fn a_version_that_comes_up_is_cleared_of_the_crashes_at_its_load() {
    let mut state = serving(&[1]);
    for minute in 1..20 {
        let verdict = state.crashed(MINUTE * minute, &keys(&[1]), &keys(&[2]));
        assert_eq!(verdict.convicted.filter(|it| *it == key(1)), None);
        assert!(state.is_suspect(&key(1)));
        state.arrived(&key(1));
        assert!(!state.is_suspect(&key(1)));
    }
}

#[test]
fn each_of_two_versions_that_end_the_engine_at_their_load_stays_convicted() {
    let mut state = serving(&[8, 9]);
    let crashes: [&[u8]; 4] = [&[1, 2], &[1], &[2], &[2]];
    let convicted = (1..).zip(crashes).map(|(minute, loading)| {
        let verdict = state.crashed(MINUTE * minute, &keys(loading), &keys(&[8, 9]));
        assert_eq!(verdict.released, keys(&[]));
        verdict.convicted
    });
    let convicted: Vec<_> = convicted.collect();
    assert_eq!(convicted, [None, Some(key(1)), None, Some(key(2))]);
    assert_eq!(state.convicted().keys().cloned().collect::<BTreeSet<_>>(), keys(&[1, 2]));
}

#[test]
fn a_series_without_a_common_version_is_unexplained_and_its_convictions_are_released() {
    let (mut state, convicted) = after(&[(&[1], &[]), (&[1], &[])]);
    assert_eq!(convicted, [None, Some(key(1))]);
    [2, 3, 4].iter().for_each(|number| state.arrived(&key(*number)));
    let calls = |state: &mut Crashes, minute: u32, number: u8| {
        state.crashed(MINUTE * minute, &keys(&[]), &keys(&[number]))
    };
    for (minute, number) in [(3, 2), (4, 3), (5, 4)] {
        assert_eq!(calls(&mut state, minute, number), Verdict::default());
        assert!(!state.are_unexplained(), "restarts by hand may be among them");
    }
    let verdict = state.crashed(MINUTE * 6, &keys(&[]), &keys(&[]));
    assert_eq!((verdict.released, verdict.is_unexplained), (keys(&[1]), true));
    assert!(state.convicted().is_empty());
    assert!(!state.is_suspect(&key(4)), "all suspicion is cleared");
}

#[test]
fn an_unexplained_series_needs_twice_as_many_crashes_until_it_is_over() {
    let mut state = serving(&[2, 3]);
    (1..=4).for_each(|minute| {
        state.crashed(MINUTE * minute, &keys(&[]), &keys(&[2 + u8::from(minute % 2 == 0)]));
    });
    assert!(state.are_unexplained());
    let at_load = |state: &mut Crashes, from: Duration| {
        let mut crashes = (1..10)
            .map(|number| state.crashed(from + MINUTE * number, &keys(&[1]), &keys(&[])).convicted);
        crashes.position(|convicted| convicted == Some(key(1))).map(|before| before + 1)
    };
    assert_eq!(at_load(&mut state, MINUTE * 4), Some(4));
    state.pardon(&key(1));
    let later = QUIET * 4;
    assert!(state.expire(later) && !state.are_unexplained());
    assert_eq!(at_load(&mut state, later), Some(2));
}

#[test]
fn crashes_that_go_on_after_two_convictions_for_calls_release_both() {
    let mut state = serving(&[1, 2, 3]);
    let calls = [1, 1, 1, 1, 2, 2, 2, 2];
    for (minute, number) in (1..).zip(calls) {
        state.crashed(MINUTE * minute, &keys(&[]), &keys(&[number]));
    }
    assert_eq!(state.convicted().keys().cloned().collect::<BTreeSet<_>>(), keys(&[1, 2]));
    let verdict = state.crashed(MINUTE * 9, &keys(&[]), &keys(&[3]));
    assert_eq!((verdict.released, verdict.is_unexplained), (keys(&[1, 2]), true));
}

#[test]
fn crashes_release_no_version_that_was_convicted_in_an_earlier_series() {
    let (mut state, _) = after(&[(&[1], &[8]), (&[1], &[8])]);
    for crash in 0..4 {
        let at = QUIET * 2 + MINUTE * crash;
        let verdict = state.crashed(at, &keys(&[]), &keys(&[if crash % 2 == 0 { 8 } else { 9 }]));
        assert_eq!(verdict.released, keys(&[]));
    }
    assert!(state.are_unexplained() && state.convicted().contains_key(&key(1)));
}

#[test]
fn versions_that_are_not_known_any_more_are_forgotten_unless_they_are_suspected() {
    let mut state = serving(&[1, 2, 3]);
    state.crashed(MINUTE, &keys(&[]), &keys(&[2]));
    state.retain(|it| *it == key(1));
    assert_eq!(state.passed, keys(&[1, 2]));
    assert!(state.forget(&key(1)) && !state.forget(&key(1)));
}

#[test]
fn a_version_that_was_loading_by_chance_is_released() {
    let (mut state, convicted) = after(&[(&[1], &[8, 9]), (&[1], &[8, 9])]);
    assert_eq!(convicted, [None, Some(key(1))]);
    let verdict = state.crashed(MINUTE * 3, &keys(&[]), &keys(&[8, 9]));
    assert_eq!(verdict.released, keys(&[1]));
    assert!(state.are_apart());
    let verdict = state.crashed(MINUTE * 4, &keys(&[]), &keys(&[9]));
    assert_eq!(verdict.convicted, Some(key(9)));
    assert_eq!(state.convicted().len(), 1);
}

#[test]
fn a_pardoned_version_starts_anew() {
    let (mut state, _) = after(&[(&[1], &[]), (&[1], &[])]);
    state.pardon(&key(1));
    assert_eq!(state.failure(&key(1)), None);
    let again = |state: &mut Crashes, minute| {
        state.crashed(MINUTE * minute, &keys(&[1]), &keys(&[])).convicted
    };
    assert_eq!(again(&mut state, 3), None);
    assert_eq!(again(&mut state, 4), Some(key(1)));
}

#[test]
fn the_state_outlives_the_process_and_a_load_cut_off_counts_as_a_crash() {
    let (mut state, _) = after(&[(&[1], &[2])]);
    state.load(&key(1));
    let text = serde_json::to_string(&state).expect("JSON");
    let read = |text: &str| serde_json::from_str::<Crashes>(text).expect("JSON");
    let mut next = read(&text);
    assert_eq!(next, state);
    assert_eq!(next.resume(MINUTE * 2).convicted, Some(key(1)));
    assert_eq!(read(&serde_json::to_string(&next).expect("JSON")), next);
    let mut in_order = read(&text);
    in_order.stop();
    assert_eq!(in_order.resume(MINUTE * 2), Verdict::default());
    assert_eq!(in_order.resume(MINUTE * 3), Verdict::default(), "the engine went on");
}

/// The way in which the killer ends the engine.
#[derive(Debug, Clone, Copy)]
enum Kills {
    AtLoad,
    AtItsCalls,
}

/// The versions, one of which is the killer.
const KILLER: u8 = 0;
const VERSIONS: u8 = 10;

/// One crash by the killer, with chance versions that were loading or had calls beside it.
fn crash(
    state: &mut Crashes,
    kills: Kills,
    first: bool,
    minute: u32,
    (loading, calling): (BTreeSet<u8>, BTreeSet<u8>),
) -> Verdict {
    let chance = |numbers: BTreeSet<u8>| {
        let numbers = numbers.into_iter().filter(|number| *number != KILLER);
        numbers.map(key).filter(|it| !state.convicted().contains_key(it)).collect::<BTreeSet<_>>()
    };
    // Suspects are loaded by themselves, and after the first crash when all others have served for
    // a while.
    let mut loading: BTreeSet<_> = chance(loading).into_iter().filter(|_| first).collect();
    let mut calling: BTreeSet<_> = chance(calling).difference(&loading).cloned().collect();
    match kills {
        Kills::AtLoad => drop(loading.insert(key(KILLER))),
        Kills::AtItsCalls => {
            if state.are_apart() {
                calling.retain(|it| !state.common().contains(it));
            }
            calling.insert(key(KILLER));
        }
    }
    state.crashed(MINUTE * minute, &loading, &calling)
}

proptest! {
    #[test]
    fn the_killer_is_convicted_in_time_and_nothing_else_is(
        at_load: bool,
        chances in proptest::collection::vec(
            (
                proptest::collection::btree_set(0..VERSIONS, 0..10),
                proptest::collection::btree_set(0..VERSIONS, 0..10),
            ),
            4,
        ),
    ) {
        let mut state = Crashes::default();
        let (kills, most) =
            if at_load { (Kills::AtLoad, 2) } else { (Kills::AtItsCalls, 4) };
        let mut crashes = 0;
        for (minute, chance) in (1..).zip(chances) {
            crashes += 1;
            let verdict = crash(&mut state, kills, minute == 1, minute, chance);
            prop_assert_eq!(&verdict.released, &BTreeSet::new());
            if let Some(convicted) = verdict.convicted {
                prop_assert_eq!(convicted, key(KILLER));
                break;
            }
        }
        prop_assert!(state.convicted().contains_key(&key(KILLER)));
        prop_assert!(crashes <= most, "{} crashes", crashes);
        prop_assert!((0..VERSIONS).all(|it| !state.is_suspect(&key(it))), "all others are cleared");
    }

    /// Restarts that no model causes, with any loads and calls: a version that loads twice by itself
    /// at a restart, or is alone with its calls at four, is the only kind that can be convicted.
    #[test]
    fn two_restarts_convict_no_version_that_was_not_loading_at_both(
        restarts in proptest::collection::vec(
            (
                proptest::collection::btree_set(0..VERSIONS, 0..4),
                proptest::collection::btree_set(0..VERSIONS, 0..10),
            ),
            2,
        ),
    ) {
        let mut state = Crashes::default();
        let all = |numbers: &BTreeSet<u8>| numbers.iter().copied().map(key).collect::<BTreeSet<_>>();
        for (minute, (loading, calling)) in (1..).zip(&restarts) {
            let verdict = state.crashed(MINUTE * minute, &all(loading), &all(calling));
            if let Some(convicted) = verdict.convicted {
                prop_assert!(restarts.iter().all(|(loading, _)| all(loading).contains(&convicted)));
            }
        }
    }
}
