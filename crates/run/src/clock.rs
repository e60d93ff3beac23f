//! From the runtime's clock to moments, and to times for people.

use std::time::SystemTime;

use outrigger_core::Moment;
use tokio::time::Instant;

/// Where moments start. With tokio's time paused, moments stand still too.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    wall: SystemTime,
}

impl Clock {
    /// A clock whose moments start now.
    pub fn start() -> Self {
        // A moment of zero means "never" where it is kept as a number.
        let start = Instant::now() - std::time::Duration::from_millis(1);
        Self { start, wall: SystemTime::now() }
    }

    /// The present.
    pub fn now(&self) -> Moment {
        Moment::at(self.start.elapsed())
    }

    /// The runtime's instant of `moment`.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + moment.elapsed()
    }

    /// The time of day of `moment`, for people.
    pub fn wall(&self, moment: Moment) -> SystemTime {
        self.wall + moment.elapsed()
    }
}
