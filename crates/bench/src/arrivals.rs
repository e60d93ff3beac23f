//! Times at which requests are due, independent of earlier requests.

use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// Distribution of a load's requests over time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Fixed,
    /// Independent of each other, as the requests of many callers are: the intervals are
    /// drawn from an exponential distribution.
    Poisson,
}

/// The times at which one of several senders sends; without end.
#[derive(Debug)]
pub(crate) struct Schedule {
    next: Instant,
    /// Mean interval, in seconds.
    mean: f64,
    random: Option<StdRng>,
    begin: Instant,
    sent: u64,
    first: f64,
}

impl Schedule {
    /// The part of sender `index` of `senders` in a load of `rate` requests a second.
    pub(crate) fn new(
        arrivals: Arrivals,
        rate: f64,
        begin: Instant,
        (index, senders): (usize, usize),
    ) -> Self {
        let mean = senders as f64 / rate;
        // Senders take turns.
        let first = index as f64 / rate;
        let random = (arrivals == Arrivals::Poisson).then(|| StdRng::seed_from_u64(index as u64));
        let mut schedule = Self { next: begin, mean, random, begin, sent: 0, first };
        schedule.advance();
        schedule
    }

    /// The due time of the next request.
    pub(crate) fn due(&self) -> Instant {
        self.next
    }

    /// Advances to the following request.
    pub(crate) fn advance(&mut self) {
        self.next = match &mut self.random {
            // Computed from the beginning, so that rounding errors do not accumulate.
            None => self.begin + seconds(self.first + self.sent as f64 * self.mean),
            Some(random) => {
                let uniform: f64 = random.random();
                self.next + seconds(-(1.0 - uniform).ln() * self.mean)
            }
        };
        self.sent += 1;
    }
}

fn seconds(seconds: f64) -> Duration {
    // For rates near 0 the next request is due after the end of any run.
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1 << 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Due times within the first second, as offsets in seconds.
    fn moments(arrivals: Arrivals, rate: f64, share: (usize, usize)) -> Vec<f64> {
        let begin = Instant::now();
        let mut schedule = Schedule::new(arrivals, rate, begin, share);
        let mut moments = Vec::new();
        while schedule.due() < begin + Duration::from_secs(1) {
            moments.push((schedule.due() - begin).as_secs_f64());
            schedule.advance();
        }
        moments
    }

    #[test]
    fn senders_share_a_fixed_rate_in_turns() {
        let mut all = moments(Arrivals::Fixed, 1000.0, (0, 2));
        all.extend(moments(Arrivals::Fixed, 1000.0, (1, 2)));
        all.sort_by(f64::total_cmp);
        assert_eq!(all.len(), 1000);
        let even = all.iter().zip(0..).all(|(at, n)| (at - f64::from(n) / 1000.0).abs() < 1e-6);
        assert!(even, "{all:?}");
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_its_spread() {
        let moments = moments(Arrivals::Poisson, 10_000.0, (0, 1));
        assert!((9_600..10_400).contains(&moments.len()), "{}", moments.len());
        let gaps = moments.windows(2).map(|pair| pair[1] - pair[0]);
        // The share of intervals above the mean is 1/e.
        let long = gaps.filter(|gap| *gap > 1e-4).count() as f64 / moments.len() as f64;
        assert!((0.34..0.40).contains(&long), "{long}");
    }
}
