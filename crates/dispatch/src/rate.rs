//! The rate of rows: its measurement, and its cap.

use outrigger_core::Moment;

/// The time constant of a measured rate, in seconds.
const SPAN: f64 = 10.0;
/// The seconds of the cap that may have been saved.
const SAVED: f64 = 0.1;

/// Rows a second, with a weight that halves about every 7 seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    rate: f64,
    since: Moment,
    at: Moment,
}

impl Rate {
    pub(crate) fn new(now: Moment) -> Self {
        Self { rate: 0.0, since: now, at: now }
    }

    pub(crate) fn record(&mut self, rows: u32, now: Moment) {
        self.rate = self.decayed(now) + f64::from(rows) / SPAN;
        self.at = now;
    }

    fn decayed(&self, now: Moment) -> f64 {
        self.rate * (-now.since(self.at).as_secs_f64() / SPAN).exp()
    }

    /// The rate in rows a second. At the start the mean since then.
    pub(crate) fn per_second(&self, now: Moment) -> f64 {
        let seen = 1.0 - (-now.since(self.since).as_secs_f64() / SPAN).exp();
        if seen > 0.0 { self.decayed(now) / seen } else { 0.0 }
    }
}

/// A cap of an amount a second, such as rows. A call may exceed it; the next one waits for longer.
#[derive(Debug, Clone, Copy)]
pub struct RateCap {
    /// The amount that may be sent; below zero after a call that exceeds it.
    amount: f64,
    at: Moment,
}

impl RateCap {
    /// A cap of which nothing was taken.
    pub fn new(now: Moment) -> Self {
        Self { amount: 0.0, at: now }
    }

    fn saved(&self, per_second: f64, now: Moment) -> f64 {
        (self.amount + now.since(self.at).as_secs_f64() * per_second).min(SAVED * per_second)
    }

    /// The time at which the next call may be sent, if it is not now.
    pub fn wait(&self, per_second: Option<f64>, now: Moment) -> Option<Moment> {
        let per_second = per_second?.max(f64::MIN_POSITIVE);
        let saved = self.saved(per_second, now);
        let missing = -saved / per_second;
        // A nanosecond more than the quotient: a wait that ends by rounding too early begins again.
        let wait = std::time::Duration::try_from_secs_f64(missing.max(0.0));
        let wait = wait.unwrap_or(std::time::Duration::MAX);
        (saved < 0.0).then(|| now + wait.saturating_add(std::time::Duration::from_nanos(1)))
    }

    /// Takes an amount. A negative one is given back.
    pub fn take(&mut self, amount: f64, per_second: Option<f64>, now: Moment) {
        if let Some(per_second) = per_second {
            self.amount = self.saved(per_second, now) - amount;
        }
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut rate = Rate::new(at(0));
        assert_eq!(rate.per_second(at(0)), 0.0);
        (1..=10).for_each(|step| rate.record(50, at(100 * step)));
        let first = rate.per_second(at(1000));
        assert!((450.0..=550.0).contains(&first), "{first}");
        (1..=600).for_each(|step| rate.record(10, at(1000 + 100 * step)));
        let last = rate.per_second(at(61_000));
        assert!((95.0..=105.0).contains(&last), "{last}");
    }

    #[test]
    fn a_cap_holds_on_average() {
        let (mut cap, cap_is) = (RateCap::new(at(0)), Some(100.0));
        let (mut now, mut sent) = (at(0), 0);
        while now < at(10_000) {
            match cap.wait(cap_is, now) {
                Some(until) => now = until,
                None => {
                    cap.take(30.0, cap_is, now);
                    sent += 30;
                }
            }
        }
        assert!((1000..=1040).contains(&sent), "{sent}");
        assert_eq!(cap.wait(None, now), None);
    }
}
