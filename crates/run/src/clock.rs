//! Converts between the runtime's clock, moments, and times of day.

use std::time::SystemTime;

use outrigger_core::Moment;
use tokio::time::Instant;

/// The start of all moments. While tokio's time is paused, moments do not advance.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    wall: SystemTime,
}

impl Clock {
    /// Starts a clock whose moments count from now.
    pub fn start() -> Self {
        // A moment of zero means "never" where moments are stored as numbers, so the first one is
        // later.
        let start = Instant::now() - std::time::Duration::from_millis(1);
        Self { start, wall: SystemTime::now() }
    }

    /// The current moment.
    pub fn now(&self) -> Moment {
        Moment::at(self.start.elapsed())
    }

    /// Converts `moment` to the runtime's instant.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + moment.elapsed()
    }

    /// Converts `moment` to the time of day, for people.
    pub fn wall(&self, moment: Moment) -> SystemTime {
        self.wall + moment.elapsed()
    }
}
