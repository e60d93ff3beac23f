//! The recent request rate.

use std::time::Duration;

use outrigger_core::Moment;

use super::Window;

/// Requests of about the last hour. A longer window would include the peak or the night
/// before, which do not predict the coming traffic.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    requests: Window<u64>,
    began: Moment,
}

impl Pace {
    /// No requests, counted from `began` on.
    pub(crate) fn new(began: Moment) -> Self {
        Self { requests: Window::new(Duration::from_secs(5 * 60), 12), began }
    }

    /// Counts a request.
    pub(crate) fn count(&mut self, now: Moment) {
        *self.requests.at(now) += 1;
    }

    /// Requests a second; 0 while no time has passed.
    pub(crate) fn per_second(&self, now: Moment) -> f64 {
        let time = now.since(self.requests.since(now).max(self.began)).as_secs_f64();
        if time > 0.0 { self.requests.total(now) as f64 / time } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    fn counted(from: u64, to: u64, each: usize, pace: &mut Pace) {
        (from..to).for_each(|second| (0..each).for_each(|_| pace.count(at(second))));
    }

    #[test]
    fn a_steady_rate_is_measured_from_the_beginning() {
        let mut pace = Pace::new(at(1000));
        assert_eq!(pace.per_second(at(1000)), 0.0);
        for (from, to) in [(1000, 1010), (1010, 20_000)] {
            counted(from, to, 3, &mut pace);
            assert_eq!(pace.per_second(at(to)), 3.0);
        }
    }

    #[test]
    fn requests_older_than_an_hour_are_dropped() {
        let mut pace = Pace::new(at(0));
        counted(0, 600, 100, &mut pace);
        counted(600, 4800, 1, &mut pace);
        assert_eq!(pace.per_second(at(4800)), 1.0);
        assert_eq!(pace.per_second(at(10_000)), 0.0);
    }
}
