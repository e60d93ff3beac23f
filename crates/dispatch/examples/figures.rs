//! Prints the figures of the dispatcher in virtual time: `cargo run --example figures [SEEDS]`.
//! SEEDS is the number of random jobs.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use simulation::{figures, random};

fn main() {
    let seeds = std::env::args().nth(1).map_or(0, |seeds| seeds.parse().expect("a number"));
    for queue in [Some(16), None] {
        println!("limiter, queue {queue:?}: {:.3?}", figures::limiter(queue, 1));
    }
    println!("balance, time in proportion to the ideal: {:.3}", figures::balance(1));
    for rows in [16, 1] {
        println!("liar, {rows} rows a call: {:.3?}", figures::liar(rows, 1));
    }
    let innocent: usize = (0..seeds).map(random::check).sum();
    println!("random jobs: {seeds} without a standstill, {innocent} dead rows without a fault");
}
