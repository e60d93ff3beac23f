//! A limit by refusals and by round trips.

use crate::{Aimd, Limiter, Pipe, Sample};

/// The smaller one of two limits: [`Pipe`] keeps the host busy without a queue, and [`Aimd`] obeys
/// its refusals.
#[derive(Debug, Clone)]
pub struct Adaptive {
    pipe: Pipe,
    cap: Aimd,
}

impl Adaptive {
    /// A limit that begins at `first` and never exceeds `most`.
    pub fn new(first: usize, most: usize) -> Self {
        Self { pipe: Pipe::new(first, most), cap: Aimd::new(most, most) }
    }

    /// True if the host's refusals bound the limit, and not its round trips.
    pub fn is_refused(&self) -> bool {
        self.cap.limit() < self.pipe.limit()
    }

    /// True until the host's rate was measured.
    pub fn is_starting(&self) -> bool {
        self.pipe.is_starting()
    }
}

impl Limiter for Adaptive {
    fn limit(&self) -> usize {
        self.pipe.limit().min(self.cap.limit())
    }

    fn ended(&mut self, sample: &Sample) {
        if sample.failure.is_some_and(|class| class.is_overload()) {
            // The limit in force was too high, so the decrease begins there.
            self.cap.lower_to(self.pipe.limit());
        }
        self.cap.ended(sample);
        self.pipe.ended(sample);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outrigger_core::Moment;

    use super::*;
    use crate::Class;

    fn sample(millis: u64, in_flight: usize, failure: Option<Class>) -> Sample {
        let at = |millis| Moment::at(Duration::from_millis(millis));
        Sample { sent: at(millis), ended: at(millis + 1), rows: 1, in_flight, failure }
    }

    #[test]
    fn a_refusal_lowers_the_limit_in_force() {
        let mut limiter = Adaptive::new(10, 1000);
        assert!(limiter.is_starting() && !limiter.is_refused());
        limiter.ended(&sample(0, 10, Some(Class::Overloaded)));
        assert_eq!(limiter.limit(), 7, "and not 700");
        assert!(limiter.is_refused());
        limiter.ended(&sample(5, 7, Some(Class::Ambiguous)));
        assert_eq!(limiter.limit(), 7);
    }
}
