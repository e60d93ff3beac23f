//! Progress on standard error: an updated line on a terminal, periodic lines elsewhere.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use outrigger_bench::Progress;

const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// The output of progress.
pub(super) enum Reporter {
    Quiet,
    Terminal(ProgressBar),
    Log(Rhythm),
}

impl Reporter {
    pub(super) fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        let style = ProgressStyle::with_template("{msg}").expect("a valid template");
        let bar = ProgressBar::no_length().with_style(style);
        // The bar is hidden if standard error is not a terminal.
        if bar.is_hidden() { Self::Log(Rhythm::new(Instant::now())) } else { Self::Terminal(bar) }
    }

    pub(super) fn report(&mut self, progress: &Progress) {
        match self {
            Self::Terminal(bar) => bar.set_message(progress.to_string()),
            Self::Log(rhythm) => {
                if rhythm.is_due(Instant::now()) {
                    // A closed standard error is not an error of the run.
                    let _ = writeln!(io::stderr(), "{progress}");
                }
            }
            Self::Quiet => {}
        }
    }

    /// Clears the line on the terminal.
    pub(super) fn finish(self) {
        if let Self::Terminal(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Schedules the lines of a log.
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
    fn lines_come_every_ten_seconds_and_missed_ones_are_skipped() {
        let start = Instant::now();
        let mut rhythm = Rhythm::new(start);
        // The clock is slightly later than full seconds, and there is a gap without
        // calls.
        let lag = Duration::from_micros(300);
        let seconds = (0..=21).chain(45..=51).map(Duration::from_secs);
        let due: Vec<_> = seconds
            .filter(|second| rhythm.is_due(start + *second + lag))
            .map(|s| s.as_secs())
            .collect();
        assert_eq!(due, [10, 20, 45, 50]);
    }
}
