//! The figures of the dispatcher, in virtual time.

use std::time::Duration;

use outrigger_dispatch::HostId;

use super::{Job, Plan, at};

/// The result of the limiter on one host whose slots are halved in the middle third.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimiterFigures {
    /// The calls, in proportion to the possible ones.
    pub(crate) throughput: f64,
    /// The calls that were refused, in proportion to all.
    pub(crate) refused: f64,
    /// The median round trip, in proportion to the service time.
    pub(crate) round_trip: f64,
    /// The mean limits in the three thirds.
    pub(crate) limits: [f64; 3],
}

/// A host with 8 slots of 100 ms, within 10 %; 4 in the middle third of 750 s.
pub(crate) fn limiter(queue: Option<usize>, seed: u64) -> LimiterFigures {
    let slots = vec![(at(0), 8), (at(250_000), 4), (at(500_000), 8)];
    let plan = Plan { slots, queue, ..Plan::steady() };
    let mut job = Job::new(vec![plan], vec![8; 60_000]);
    job.until = Some(at(750_000));
    let report = job.run(seed);
    let done = report.round_trips.len() as f64;
    let mean = |from, to| {
        let limits = report.limits.iter().filter(|(now, _)| (from..to).contains(now));
        let limits: Vec<_> = limits.map(|(_, limit)| *limit as f64).collect();
        limits.iter().sum::<f64>() / limits.len() as f64
    };
    let limits =
        [mean(at(0), at(250_000)), mean(at(250_000), at(500_000)), mean(at(500_000), at(750_000))];
    LimiterFigures {
        throughput: done / (250.0 * (80.0 + 40.0 + 80.0)),
        refused: report.refused as f64 / report.calls.len() as f64,
        round_trip: report.median_round_trip() / 100.0,
        limits,
    }
}

/// The time of a job on 4 hosts, one of which is 10 times slower, in proportion to the ideal split.
pub(crate) fn balance(seed: u64) -> f64 {
    let slow = Plan { service: (Duration::from_secs(1), Duration::ZERO), ..Plan::steady() };
    let hosts = vec![Plan::steady(), slow, Plan::steady(), Plan::steady()];
    let batches = 15_000;
    let report = Job::new(hosts, vec![16; batches]).run(seed);
    report.end.elapsed().as_secs_f64() / (batches as f64 / (3.0 * 80.0 + 8.0))
}

/// The result of a host that answers a third of its calls wrongly within a millisecond.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiarFigures {
    /// Its calls, in proportion to the mean of the two good hosts.
    pub(crate) share: f64,
    /// The time of the job, in proportion to that of the two good hosts alone.
    pub(crate) time: f64,
    /// Dead rows.
    pub(crate) dead: usize,
}

/// Three hosts, one of which answers a third of its calls wrongly within a millisecond.
pub(crate) fn liar(rows: u32, seed: u64) -> LiarFigures {
    let liar = Plan { lies: 1.0 / 3.0, ..Plan::steady() };
    let batches = vec![rows; 10_000];
    let alone = Job::new(vec![Plan::steady(), Plan::steady()], batches.clone()).run(seed);
    let report = Job::new(vec![Plan::steady(), Plan::steady(), liar], batches).run(seed);
    let attempts = |host| report.attempts[&HostId(host)] as f64;
    LiarFigures {
        share: attempts(2) / ((attempts(0) + attempts(1)) / 2.0),
        time: report.end.elapsed().as_secs_f64() / alone.end.elapsed().as_secs_f64(),
        dead: report.dead.len(),
    }
}
