//! The limiter, the balance of hosts and the fast liar, against their targets.

use crate::simulation::figures::{balance, liar, limiter};

#[test]
fn the_limiter_follows_a_host_whose_slots_are_halved() {
    for queue in [Some(16), None] {
        let figures = limiter(queue, 1);
        assert!(figures.throughput >= 0.97, "{queue:?} {figures:?}");
        assert!(figures.refused <= 0.01, "{queue:?} {figures:?}");
        assert!(figures.round_trip <= 2.0, "{queue:?} {figures:?}");
    }
}

#[test]
fn check_41_a_slow_host_does_not_hold_up_the_job() {
    let time = balance(1);
    assert!(time <= 1.1, "{time}");
}

#[test]
fn a_host_that_fails_fast_gets_no_more_calls_than_a_good_one() {
    for rows in [16, 1] {
        let figures = liar(rows, 1);
        assert!(figures.share <= 1.2, "{rows} {figures:?}");
        assert!(figures.time <= 1.1, "{rows} {figures:?}");
        assert_eq!(figures.dead, 0, "{rows} {figures:?}");
    }
}
