//! Progress on standard error: a line that changes on a terminal, lines now and then
//! elsewhere.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use outrigger_bench::Progress;

const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Where progress is told.
pub(super) enum Teller {
    Nobody,
    Terminal(ProgressBar),
    Log(Rhythm),
}

impl Teller {
    pub(super) fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Nobody;
        }
        let style = ProgressStyle::with_template("{msg}").expect("a valid template");
        let bar = ProgressBar::no_length().with_style(style);
        // It knows whether standard error is a terminal.
        if bar.is_hidden() { Self::Log(Rhythm::new(Instant::now())) } else { Self::Terminal(bar) }
    }

    pub(super) fn tell(&mut self, progress: &Progress) {
        match self {
            Self::Terminal(bar) => bar.set_message(progress.to_string()),
            Self::Log(rhythm) => {
                if rhythm.is_due(Instant::now()) {
                    // Nobody has to read it.
                    let _ = writeln!(io::stderr(), "{progress}");
                }
            }
            Self::Nobody => {}
        }
    }

    /// Leaves the terminal as it was.
    pub(super) fn finish(self) {
        if let Self::Terminal(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// When the next line is due.
pub(super) struct Rhythm {
    next: Instant,
}

impl Rhythm {
    fn new(start: Instant) -> Self {
        Self { next: start + BETWEEN_LINES }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next <= now;
        while self.next <= now {
            self.next += BETWEEN_LINES;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_every_ten_seconds_and_none_is_made_up_for() {
        let start = Instant::now();
        let mut rhythm = Rhythm::new(start);
        // The clock runs a little ahead of the seconds, and for a while nothing is told.
        let lag = Duration::from_micros(300);
        let told = (0..=21).chain(45..=51).map(Duration::from_secs);
        let due: Vec<_> = told
            .filter(|second| rhythm.is_due(start + *second + lag))
            .map(|s| s.as_secs())
            .collect();
        assert_eq!(due, [10, 20, 45, 50]);
    }
}
