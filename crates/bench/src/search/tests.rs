use std::convert::Infallible;

use super::*;

const CAPACITY: f64 = 1000.0;
const FIRST: [f64; 6] = [300.0, 900.0, 1000.0, 1100.0, 1500.0, 4000.0];

/// The rate found from `first` on, and the number of trials; `holds` gets the number of
/// the trial and its rate.
fn search(first: f64, holds: impl Fn(usize, f64) -> bool) -> (Option<f64>, usize) {
    let mut steps = 0;
    let found = highest::<Infallible>(first, |rate| {
        steps += 1;
        Ok(holds(steps, rate))
    });
    (found.unwrap(), steps)
}

fn assert_found(found: Option<f64>) {
    let found = found.unwrap();
    assert!((CAPACITY / PRECISION / 1.000_01..=CAPACITY).contains(&found), "{found}");
}

#[test]
fn a_capacity_is_found_from_above_and_from_below() {
    for first in FIRST {
        let (found, steps) = search(first, |_, rate| rate <= CAPACITY);
        assert_found(found);
        assert!(steps <= 13, "{steps} from {first}");
    }
}

#[test]
fn one_disturbed_trial_changes_nothing() {
    for first in FIRST {
        for disturbed in 1..=13 {
            let (found, steps) = search(first, |n, rate| n != disturbed && rate <= CAPACITY);
            assert_found(found);
            assert!(steps <= 20, "{steps} from {first}, {disturbed} disturbed");
        }
    }
}

#[test]
fn without_a_rate_that_holds_there_is_none() {
    assert_eq!(search(100.0, |_, _| false).0, None);
}

#[test]
fn an_error_ends_the_search() {
    assert_eq!(highest(100.0, |_| Err("gone")), Err("gone"));
    assert_eq!(lasting(100.0, |_| Err("gone")), Err("gone"));
}

#[test]
fn a_rate_that_does_not_last_is_lowered_until_it_does() {
    // The rate is lowered by 3, 6, 13 and 27 percent: growing steps, and few of them.
    let expected = [
        (1000.0, 1000.0),
        (1001.0, 971.8),
        (1050.0, 960.9),
        (1100.0, 894.4),
        (1250.0, 802.3),
        (1500.0, 962.8),
    ];
    for (found, expected) in expected {
        let mut tried = Vec::new();
        let lasts = lasting::<Infallible>(found, |rate| {
            tried.push(rate);
            Ok(rate <= CAPACITY)
        });
        let lasts = lasts.unwrap().expect("a rate");
        assert!((lasts - expected).abs() < 0.1, "{found} became {lasts}");
        // The result is the last rate that was tried, because its measurement is
        // reported.
        assert_eq!(tried.last(), Some(&lasts));
        assert!(tried.len() <= 1 + LOWERED, "{tried:?}");
    }
}

#[test]
fn a_rate_that_is_much_too_high_does_not_last() {
    assert_eq!(lasting::<Infallible>(1600.0, |rate| Ok(rate <= CAPACITY)), Ok(None));
}
