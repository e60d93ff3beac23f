//! Prints the figures of the dispatcher in virtual time: `cargo run --example figures [SEEDS]`.
//! SEEDS is the number of random jobs. Lines for programs are `bench NAME VALUE UNIT`; a name may
//! come twice, for two kinds of hosts.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::panic::catch_unwind;

use simulation::{
    figures::{self, LiarFigures, LimiterFigures},
    random,
};

fn main() {
    let seeds = std::env::args().nth(1).map_or(0, |seeds| seeds.parse().expect("a number"));
    for queue in [Some(16), None] {
        let LimiterFigures { throughput, refused, round_trip, limits } = figures::limiter(queue, 1);
        println!("# limiter, queue {queue:?}, mean limits in the three thirds {limits:.1?}");
        bench("limiter-simulated-throughput", throughput, "x");
        bench("limiter-simulated-refused", 100.0 * refused, "%");
        bench("limiter-simulated-round-trip", round_trip, "x");
    }
    bench("balance-simulated", figures::balance(1), "x");
    for rows in [16, 1] {
        let LiarFigures { share, time, dead } = figures::liar(rows, 1);
        println!("# liar, {rows} rows a call, {dead} dead rows");
        bench("liar-simulated-share", share, "x");
        bench("liar-simulated-time", time, "x");
    }
    if seeds > 0 {
        random_jobs(seeds);
    }
}

/// A job panics if it comes to a standstill, or settles a row twice.
fn random_jobs(seeds: u64) {
    let jobs: Vec<_> = (0..seeds).map(|seed| catch_unwind(|| random::check(seed))).collect();
    let innocent: usize = jobs.iter().flatten().sum();
    println!("# {seeds} random jobs, {innocent} dead rows without a fault");
    bench("deadlock", jobs.iter().filter(|job| job.is_err()).count() as f64, "jobs");
}

fn bench(name: &str, value: f64, unit: &str) {
    println!("bench batch-{name} {value:.3} {unit}");
}
