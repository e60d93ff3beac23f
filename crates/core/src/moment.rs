//! Time as a value.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A point on a monotonic clock: the time since the process started. The machines receive the time
/// as a value and never read a clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `elapsed` after the start.
    pub const fn at(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Time since the start.
    pub const fn elapsed(self) -> Duration {
        self.0
    }

    /// Time from `earlier` until this moment; zero if it is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, delay: Duration) -> Self {
        Self(self.0.saturating_sub(delay))
    }
}
