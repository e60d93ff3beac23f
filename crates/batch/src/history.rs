//! The throughput of a job over time, in a bounded number of points.
//!
//! Each worker stores the history of its run beside its progress, and leaves it there when it ends.
//! That of the job is the sum of all. Nothing depends on it.

use serde::{Deserialize, Serialize};

use crate::{Error, commit, store::Store};

/// The directory of the histories in the output.
const HISTORIES: &str = "history";
/// The most points. When they do not suffice, each two become one.
const MOST_POINTS: usize = 240;
/// The most runs whose histories are kept. The oldest ones are removed first.
const MOST_RUNS: usize = 64;
/// The latest time, in seconds since 1970, and the longest step that an object may have: those of
/// thousands of years.
const LATEST: u64 = 1 << 37;

/// The rows that were done in each step of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The first second, since 1970.
    pub from: u64,
    /// The last second, since 1970.
    pub to: u64,
    /// The seconds of a step, a power of two. Steps begin at its multiples; 0 without rows.
    pub step_seconds: u64,
    /// The rows of each step.
    pub rows: Vec<u64>,
}

/// The history of one run of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The name of the worker.
    pub worker: String,
    /// The first second, since 1970.
    pub from: u64,
    /// The last second, since 1970.
    pub to: u64,
    /// The rows that it has done.
    pub rows: u64,
}

/// A history as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    worker: String,
    history: History,
}

impl History {
    /// Adds the rows that were done in the second `at`, since 1970.
    pub(crate) fn add(&mut self, at: u64, rows: u64) {
        let at = at.min(LATEST);
        if self.rows.is_empty() {
            *self = Self { from: at, to: at, step_seconds: 1, rows: vec![0] };
        }
        let (from, to) = (self.from.min(at), self.to.max(at));
        while points(from, to, self.step_seconds) > MOST_POINTS as u64 {
            self.halve();
        }
        let step = self.step_seconds;
        let before = (self.from / step).saturating_sub(from / step) as usize;
        self.rows.splice(0..0, std::iter::repeat_n(0, before));
        self.rows.resize(points(from, to, step) as usize, 0);
        (self.from, self.to) = (from, to);
        let index = (at / step).saturating_sub(from / step) as usize;
        if let Some(point) = self.rows.get_mut(index) {
            *point = point.saturating_add(rows);
        }
    }

    /// Makes one point of each two.
    fn halve(&mut self) {
        let (step, first) = (self.step_seconds, self.from / self.step_seconds);
        let (wide, start) = (2 * step, self.from / (2 * step));
        let mut rows = vec![0_u64; points(self.from, self.to, wide) as usize];
        for (index, count) in self.rows.iter().enumerate() {
            let place = ((first + index as u64) / 2).saturating_sub(start) as usize;
            if let Some(point) = rows.get_mut(place) {
                *point = point.saturating_add(*count);
            }
        }
        (self.step_seconds, self.rows) = (wide, rows);
    }

    /// Adds the rows of another history.
    fn merge(&mut self, other: &Self) {
        let step = other.step_seconds.max(1);
        let starts = (other.from / step..).map(|number| number * step);
        for (start, rows) in starts.zip(&other.rows) {
            self.add(start.max(other.from), *rows);
        }
        // The last step may have begun long before the last second.
        if !other.rows.is_empty() {
            self.add(other.to, 0);
        }
    }

    /// The rows a second of each step, with its first second since 1970. The first and the last step
    /// may be shorter than the others.
    pub fn rates(&self) -> Vec<(u64, f64)> {
        let step = self.step_seconds.max(1);
        let rate = |(index, rows): (usize, &u64)| {
            let start = (self.from / step + index as u64) * step;
            let from = start.max(self.from);
            let seconds = (start + step).min(self.to + 1).saturating_sub(from).max(1);
            (from, *rows as f64 / seconds as f64)
        };
        self.rows.iter().enumerate().map(rate).collect()
    }

    /// The rows of all steps.
    pub fn total(&self) -> u64 {
        self.rows.iter().fold(0, |sum, rows| sum.saturating_add(*rows))
    }

    /// True if it may be used: an object can have any content.
    fn is_valid(&self) -> bool {
        let Self { from, to, step_seconds: step, rows } = self;
        let is_sane = from <= to && *to <= LATEST && step.is_power_of_two() && *step <= LATEST;
        is_sane && rows.len() <= MOST_POINTS && rows.len() as u64 == points(*from, *to, *step)
    }

    /// Stores the history of a worker's run.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn store(&self, worker: &str, store: &Store) -> Result<(), Error> {
        let name = format!("{HISTORIES}/{worker}.json");
        let stored = Stored { worker: worker.to_owned(), history: self.clone() };
        let json = commit::json(&stored)?;
        store.replace_loosely(&name, &json).map_err(|error| Error::store(&name, &error))
    }
}

/// The steps from one second to another.
fn points(from: u64, to: u64, step: u64) -> u64 {
    (to / step).saturating_sub(from / step) + 1
}

/// The history of a job, and the runs that it consists of, in the order of their first seconds.
///
/// # Errors
/// The store failed. A history that cannot be used is left out.
pub(crate) fn read(store: &Store) -> Result<(History, Vec<Run>), Error> {
    let (mut whole, mut runs) = (History::default(), Vec::new());
    for (_, Stored { worker, history }) in stored(store)? {
        whole.merge(&history);
        let rows = history.total();
        runs.push(Run { worker, from: history.from, to: history.to, rows });
    }
    runs.sort_by_key(|run| run.from);
    Ok((whole, runs))
}

/// Removes the oldest histories, so that there is room for one more.
///
/// # Errors
/// The store failed.
pub(crate) fn make_room(store: &Store) -> Result<(), Error> {
    let names = names(store)?;
    if names.len() < MOST_RUNS {
        return Ok(());
    }
    let mut known = stored(store)?;
    known.sort_by_key(|(_, stored)| stored.history.to);
    let kept: Vec<_> = known.iter().rev().take(MOST_RUNS - 1).map(|(name, _)| name).collect();
    for name in names.iter().filter(|name| !kept.contains(name)) {
        store.remove(name).map_err(|error| Error::store(name, &error))?;
    }
    Ok(())
}

fn names(store: &Store) -> Result<Vec<String>, Error> {
    let names = store.list(HISTORIES).map_err(|error| Error::store(HISTORIES, &error))?;
    Ok(names.iter().map(|name| format!("{HISTORIES}/{name}")).collect())
}

/// The stored histories that can be used, with the names of their objects.
fn stored(store: &Store) -> Result<Vec<(String, Stored)>, Error> {
    let mut found = Vec::new();
    // Two workers that begin at the same time may have made room for one.
    for name in names(store)?.into_iter().take(2 * MOST_RUNS) {
        let content = store.read(&name).map_err(|error| Error::store(&name, &error))?;
        let stored = content.and_then(|json| serde_json::from_slice::<Stored>(&json).ok());
        found.extend(stored.filter(|it| it.history.is_valid()).map(|it| (name, it)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: impl IntoIterator<Item = (u64, u64)>) -> History {
        let mut history = History::default();
        seconds.into_iter().for_each(|(at, rows)| history.add(at, rows));
        assert!(history.is_valid(), "{history:?}");
        history
    }

    #[test]
    fn points_are_bounded_and_no_row_is_lost() {
        let mut history = History::default();
        for at in 0..100_000 {
            history.add(1_000_000 + at, 3);
            assert!(history.is_valid(), "at {at}: {} points", history.rows.len());
            assert_eq!(history.total(), 3 * (at + 1));
        }
        assert!(history.rows.len() > MOST_POINTS / 2, "{}", history.rows.len());
        for (at, rate) in history.rates() {
            assert!((rate - 3.0).abs() < 1e-9, "{at}: {rate}");
        }
    }

    #[test]
    fn a_time_without_rows_has_a_rate_of_zero() {
        let history = of([(10, 4), (11, 6), (13, 2)]);
        assert_eq!(history.rates(), [(10, 4.0), (11, 6.0), (12, 0.0), (13, 2.0)]);
        assert_eq!(History::default().rates(), []);
    }

    #[test]
    fn the_first_and_the_last_step_may_be_shorter() {
        let history = of([(0, 0), (2 * MOST_POINTS as u64 - 1, 0), (1, 10), (0, 10)]);
        assert_eq!(history.step_seconds, 2);
        assert_eq!(history.rates()[0], (0, 10.0));
        let later = of([(1, 6), (2 * MOST_POINTS as u64, 8)]);
        let rates = later.rates();
        assert_eq!((rates[0], rates.last()), ((1, 2.0), Some(&(2 * MOST_POINTS as u64, 8.0))));
    }

    #[test]
    fn a_clock_that_goes_back_keeps_all_rows() {
        let history = of([(100, 1), (40, 2), (101, 4)]);
        assert_eq!((history.from, history.to, history.total()), (40, 101, 7));
        let far = of([(LATEST, 1), (0, 2), (u64::MAX, 4)]);
        assert_eq!((far.from, far.to, far.total()), (0, LATEST, 7));
    }

    #[test]
    fn the_history_of_a_job_is_that_of_all_its_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        assert_eq!(read(&store), Ok((History::default(), Vec::new())));
        let first = of((0..1000).map(|at| (at, 2)));
        first.store("a", &store).expect("stored");
        let second = of([(998, 5), (2000, 7)]);
        second.store("b", &store).expect("stored");
        store.replace("history/c.json", b"{").expect("stored");
        let step = r#"{"from": 0, "to": 9, "step_seconds": 0, "rows": [1]}"#;
        let zero = format!(r#"{{"worker": "d", "history": {step}}}"#);
        store.replace("history/d.json", zero.as_bytes()).expect("stored");
        let (whole, runs) = read(&store).expect("read");
        assert!(whole.is_valid());
        assert_eq!((whole.from, whole.to, whole.total()), (0, 2000, 2012));
        let run = |worker: &str, from, to, rows| Run { worker: worker.to_owned(), from, to, rows };
        assert_eq!(runs, [run("a", 0, 999, 2000), run("b", 998, 2000, 12)]);
    }

    #[test]
    fn the_oldest_runs_make_room() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        for run in 0..MOST_RUNS as u64 + 3 {
            of([(run, 1)]).store(&format!("{:03}", 999 - run), &store).expect("stored");
        }
        make_room(&store).expect("room");
        let (whole, runs) = read(&store).expect("read");
        assert_eq!((runs.len(), runs[0].from), (MOST_RUNS - 1, 4));
        assert_eq!(whole.total(), MOST_RUNS as u64 - 1);
        make_room(&store).expect("room");
        assert_eq!(read(&store).expect("read").1.len(), MOST_RUNS - 1);
    }
}
