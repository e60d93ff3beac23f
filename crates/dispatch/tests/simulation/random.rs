//! Random jobs: hosts that throttle, lie, fail fast, die, come back and hang; rows at fault; a caller
//! without memory for some answers; changes while the job runs.

use std::{ops::Range, time::Duration};

use outrigger_core::Moment;
use outrigger_dispatch::{BatchId, Limits, Reason, Settings};
use outrigger_resilience::{Backoff, Class, EjectionSettings};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use super::{Change, Faults, Job, Plan, at};

/// The time within which hosts fail and come back, in milliseconds.
const TROUBLE: u64 = 20_000;

/// Runs the random job of a seed and checks the fate of all rows. Returns the dead rows without a
/// fault: each of them was in calls during which two hosts ended, or hung.
pub(crate) fn check(seed: u64) -> usize {
    let job = job(seed);
    let report = job.run(seed);
    assert_eq!(report.stop, None, "seed {seed}");
    let Faults { poison, killers, refused } = &job.faults;
    let faults = poison.len() + killers.len() + refused.len();
    let mut innocent = 0;
    for dead in &report.dead {
        if !job.faults.is_at_fault(&(dead.batch, dead.row)) {
            innocent += 1;
            let was_ended = matches!(dead.reason, Reason::HostLost | Reason::Timeout);
            assert!(was_ended, "seed {seed}: {dead:?}");
        }
    }
    assert_eq!(report.dead.len() - innocent, faults, "seed {seed}");
    innocent
}

/// The random job of a seed.
pub(crate) fn job(seed: u64) -> Job {
    let mut rng = StdRng::seed_from_u64(!seed);
    let hosts: Vec<_> = (0..rng.random_range(1..=5)).map(|_| plan(&mut rng)).collect();
    let batches = (0..rng.random_range(5..=60)).map(|_| rng.random_range(1..=64)).collect();
    let mut job = Job::new(hosts, batches);
    job.timeout = Duration::from_secs(1);
    job.settings = settings(&mut rng);
    job.faults = faults(&job.batches, &mut rng);
    if job.hosts.len() > 2 && rng.random_bool(0.3) {
        // Two hosts that answer wrongly at the same time are evidence against a good row.
        job.hosts.iter_mut().for_each(|host| host.broken.clear());
        job.hosts[0].lies = 0.33;
    }
    if rng.random_bool(0.3) {
        let outage = time(&mut rng);
        for (index, host) in job.hosts.iter_mut().enumerate() {
            host.away.push(outage.clone());
            job.changes.push((outage.start, Change::Die(index)));
        }
    }
    changes(&mut job, &mut rng);
    memory(&mut job, &mut rng);
    passing(&mut job, &mut rng);
    job
}

/// Failures that may pass: of hosts behind proxies, of hosts that process only a part of their calls,
/// and of a row that is never processed.
fn passing(job: &mut Job, rng: &mut StdRng) {
    for host in &mut job.hosts {
        host.has_proxy = rng.random_bool(0.5);
        host.flaps = if rng.random_bool(0.1) { 0.3 } else { 0.0 };
    }
    if rng.random_bool(0.2) {
        let batch = rng.random_range(0..job.batches.len());
        let row = (BatchId(batch as u64), rng.random_range(0..job.batches[batch]));
        job.faults.poison.remove(&row);
        job.faults.killers.remove(&row);
        let class = *[Class::Unavailable, Class::Ambiguous].choose(rng).expect("a class");
        job.faults.refused.insert(row, class);
    }
}

fn settings(rng: &mut StdRng) -> Settings {
    let pause = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(5) };
    Settings {
        first_in_flight: rng.random_range(1..=8),
        breaker: EjectionSettings { pause, ..EjectionSettings::default() },
        patience: Duration::from_secs(3600),
        hedge: rng.random_range(1.0..4.0),
        ..Settings::default()
    }
}

/// A time of trouble.
fn time(rng: &mut StdRng) -> Range<Moment> {
    let from = rng.random_range(0..TROUBLE);
    at(from)..at(from + rng.random_range(1..TROUBLE / 4))
}

fn times(rng: &mut StdRng) -> Vec<Range<Moment>> {
    (0..rng.random_range(0..=2)).map(|_| time(rng)).collect()
}

fn plan(rng: &mut StdRng) -> Plan {
    let mut plan = Plan {
        slots: vec![(Moment::default(), rng.random_range(1..=8))],
        queue: rng.random_bool(0.5).then(|| rng.random_range(0..=8)),
        service: (
            Duration::from_millis(rng.random_range(1..=100)),
            Duration::from_micros(rng.random_range(0..=1000)),
        ),
        jitter: rng.random_range(0.0..0.9),
        retry_after: rng.random_bool(0.3).then(|| Duration::from_millis(300)),
        most_rows: rng.random_bool(0.2).then(|| rng.random_range(1..=64)),
        restart: Duration::from_millis(rng.random_range(1..=3000)),
        ..Plan::steady()
    };
    match rng.random_range(0..6) {
        0 => plan.away = times(rng),
        1 => plan.hangs = times(rng),
        2 => plan.broken = times(rng),
        3 => plan.slots.push((at(rng.random_range(0..TROUBLE)), 1)),
        _ => {}
    }
    plan
}

fn faults(batches: &[u32], rng: &mut StdRng) -> Faults {
    let rate = *[0.0, 0.0, 0.002, 0.02, 0.3].choose(rng).expect("a rate");
    let mut faults = Faults::default();
    for (batch, rows) in batches.iter().enumerate() {
        let rows = (0..*rows).filter(|_| rng.random_bool(rate));
        let rows: Vec<_> = rows.map(|row| (BatchId(batch as u64), row)).collect();
        faults.poison.extend(rows);
    }
    if rng.random_bool(0.3) {
        let batch = rng.random_range(0..batches.len());
        let row = (BatchId(batch as u64), rng.random_range(0..batches[batch]));
        faults.poison.remove(&row);
        faults.killers.insert(row);
    }
    faults
}

fn changes(job: &mut Job, rng: &mut StdRng) {
    let all: Vec<_> = (0..job.hosts.len() as u32).collect();
    if rng.random_bool(0.3) {
        let time = time(rng);
        let some: Vec<_> = all.iter().copied().filter(|_| rng.random_bool(0.5)).collect();
        // Without two others, the word of a host that lies is all the evidence that there is.
        let is_enough =
            job.hosts[0].lies == 0.0 || some.iter().filter(|host| **host != 0).count() > 1;
        job.changes.push((time.start, Change::Hosts(if is_enough { some } else { all.clone() })));
        job.changes.push((time.end, Change::Hosts(all)));
    }
    if rng.random_bool(0.2) {
        let time = time(rng);
        job.changes.push((time.start, Change::Pause));
        job.changes.push((time.end, Change::Resume));
    }
    if rng.random_bool(0.2) {
        let rows_per_second = rng.random_bool(0.5).then(|| rng.random_range(100.0..10_000.0));
        let limits = Limits { max_in_flight: rng.random_range(1..=16), rows_per_second };
        job.changes.push((at(rng.random_range(0..TROUBLE)), Change::Limits(limits)));
    }
}

/// The caller's memory: answers that are too large for it, and times at which it has none for
/// further batches.
fn memory(job: &mut Job, rng: &mut StdRng) {
    if rng.random_bool(0.3) {
        job.oversized = rng.random_range(0.0..0.5);
    }
    if rng.random_bool(0.3) {
        let time = time(rng);
        let last = BatchId(rng.random_range(0..job.batches.len() as u64));
        job.changes.push((time.start, Change::Hold(Some(last))));
        job.changes.push((time.end, Change::Hold(None)));
    }
}
