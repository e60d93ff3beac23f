//! Random jobs.

use crate::simulation::random;

/// The variable with the number of seeds.
const SEEDS: &str = "OUTRIGGER_DISPATCH_SEEDS";

#[test]
fn check_42_no_job_comes_to_a_standstill_and_each_row_is_settled_once() {
    let seeds = std::env::var(SEEDS).ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(150);
    for seed in 0..seeds {
        random::check(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_calls() {
    for seed in [1, 7] {
        let calls = || random::job(seed).run(seed).calls;
        assert_eq!(calls(), calls());
    }
}
