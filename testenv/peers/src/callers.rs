//! Callers on threads of one process, which score with one library at the same time.

use std::{
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{Result, fm::Batches};

/// The number of callers.
const CALLERS: u64 = 8;

/// The most rows of a call.
const ROWS: usize = 100;

/// Different calls.
const CALLS: usize = 256;

/// Callers, and the calls that they make.
pub(crate) struct Callers<'a> {
    library: &'a dyn Batches,
}

/// Numbers that are the same in every run (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    /// A number of at least 0 and below 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl<'a> Callers<'a> {
    /// Prepares calls of 1 to 100 rows.
    pub(crate) fn new(library: &'a mut dyn Batches) -> Result<Self> {
        let (mut random, rows) = (Random(26), library.rows());
        let batches: Vec<Range<usize>> = (0..CALLS)
            .map(|_| {
                let count = 1 + (random.next() * ROWS as f64) as usize;
                let start = (random.next() * (rows - count) as f64) as usize;
                start..start + count
            })
            .collect();
        library.prepare(&batches)?;
        // The first call may set the library up, which must not happen on several threads at once.
        library.score(0)?;
        Ok(Self { library })
    }

    /// Answers `capacity SECONDS` with the calls a second in a closed loop, and `latency RATE
    /// SECONDS` with the 99th percentile of seconds from when a call is due until it ends, in an
    /// open loop with so many calls a second.
    pub(crate) fn answer(&self, question: &str) -> Result<Value> {
        match question.split(' ').collect::<Vec<_>>().as_slice() {
            ["capacity", time] => self.capacity(seconds(time)?),
            ["latency", rate, time] => self.latency(rate.parse()?, seconds(time)?),
            _ => Err(format!("not understood: {question}").into()),
        }
    }

    fn capacity(&self, time: Duration) -> Result<Value> {
        let start = Instant::now();
        let ended = self.each(|caller| {
            let mut calls = 0;
            while start.elapsed() < time {
                self.call(caller, calls)?;
                calls += 1;
            }
            Ok(calls)
        })?;
        Ok((ended.iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()).into())
    }

    fn latency(&self, rate: f64, time: Duration) -> Result<Value> {
        let start = Instant::now();
        let ended = self.each(|caller| {
            let (mut random, mut due) = (Random(caller + 1), Duration::ZERO);
            let mut latencies = Vec::new();
            loop {
                // The gaps of a Poisson process.
                let gap = -(1.0 - random.next()).ln() * CALLERS as f64 / rate;
                due += Duration::from_secs_f64(gap);
                if due >= time {
                    return Ok(latencies);
                }
                thread::sleep(due.saturating_sub(start.elapsed()));
                self.call(caller, latencies.len())?;
                latencies.push((start.elapsed() - due).as_secs_f64());
            }
        })?;
        let mut latencies: Vec<_> = ended.into_iter().flatten().collect();
        latencies.sort_by(f64::total_cmp);
        let at = latencies.len() * 99 / 100;
        Ok((*latencies.get(at).ok_or("no calls")?).into())
    }

    /// Makes a call. Callers begin at different ones.
    fn call(&self, caller: u64, number: usize) -> Result<()> {
        self.library.score((caller as usize * CALLS / CALLERS as usize + number) % CALLS)
    }

    /// The results of all callers, each on a thread of its own.
    fn each<T: Send>(&self, run: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
        let run = &run;
        thread::scope(|scope| {
            let start =
                |caller| scope.spawn(move || run(caller).map_err(|error| error.to_string()));
            let callers: Vec<_> = (0..CALLERS).map(start).collect();
            let ended = callers.into_iter().map(|caller| {
                let result = caller.join().map_err(|_| "a caller panicked".to_owned());
                Ok(result.flatten()?)
            });
            ended.collect()
        })
    }
}

fn seconds(text: &str) -> Result<Duration> {
    Ok(Duration::from_secs_f64(text.parse()?))
}
