//! From the runtime's clock to moments, and to times for people.

use std::time::SystemTime;

use outrigger_core::Moment;
use tokio::time::Instant;

/// Where moments start. With tokio's time paused, moments stand still too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    wall: SystemTime,
}

impl Clock {
    pub(crate) fn start() -> Self {
        // A moment of zero means "never" where it is kept as a number.
        let start = Instant::now() - std::time::Duration::from_millis(1);
        Self { start, wall: SystemTime::now() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::at(self.start.elapsed())
    }

    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        self.start + moment.elapsed()
    }

    pub(crate) fn wall(&self, moment: Moment) -> SystemTime {
        self.wall + moment.elapsed()
    }
}
