//! The rows that other workers have committed, for the progress of the whole job.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

/// The time that a rate is of. It is longer if commits are rarer.
const WINDOW: Duration = Duration::from_secs(600);

/// The commits of other workers since this one began.
#[derive(Debug)]
pub(super) struct Others {
    /// The rows of each chunk.
    sizes: Box<[u64]>,
    /// The rows that were committed when this worker began.
    before: u64,
    /// The chunks that are committed, as they were read last.
    committed: BTreeSet<u64>,
    /// The rows of those that others have committed.
    rows: u64,
    /// The start, and the times at which these rows had changed, each with the rows.
    changes: VecDeque<(Instant, u64)>,
}

impl Others {
    /// No commits so far but those of `before` rows. `sizes` are the rows of all chunks.
    pub(super) fn new(sizes: impl Iterator<Item = u64>, before: u64, now: Instant) -> Self {
        Self {
            sizes: sizes.collect(),
            before,
            committed: BTreeSet::new(),
            rows: 0,
            changes: VecDeque::from([(now, 0)]),
        }
    }

    fn size(&self, chunk: u64) -> u64 {
        usize::try_from(chunk).ok().and_then(|chunk| self.sizes.get(chunk)).copied().unwrap_or(0)
    }

    /// Takes the chunks that are committed now, of which this worker has committed `own`.
    pub(super) fn refresh(&mut self, committed: BTreeSet<u64>, own: &BTreeSet<u64>, now: Instant) {
        let rows: u64 = committed.difference(own).map(|chunk| self.size(*chunk)).sum();
        let rows = rows.saturating_sub(self.before);
        (self.committed, self.rows) = (committed, rows);
        if self.changes.back().is_none_or(|(_, last)| *last != rows) {
            self.changes.push_back((now, rows));
        }
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= WINDOW;
        while self.changes.get(1).is_some_and(|(at, _)| is_old(at)) {
            self.changes.pop_front();
        }
    }

    /// The rows that others have committed since this worker began. They have committed the chunks
    /// `lost` too, which may not have been read.
    pub(super) fn rows<'a>(&self, lost: impl Iterator<Item = &'a u64>) -> u64 {
        let unread = lost.filter(|chunk| !self.committed.contains(chunk));
        self.rows + unread.map(|chunk| self.size(*chunk)).sum::<u64>()
    }

    /// The rows of these chunks.
    pub(super) fn rows_of<'a>(&self, chunks: impl Iterator<Item = &'a u64>) -> u64 {
        chunks.map(|chunk| self.size(*chunk)).sum()
    }

    /// The rows a second that others have committed lately.
    pub(super) fn per_second(&self, now: Instant) -> f64 {
        let Some((from, rows)) = self.changes.front() else { return 0.0 };
        let seconds = now.saturating_duration_since(*from).as_secs_f64();
        let committed = self.rows.saturating_sub(*rows);
        if committed == 0 || seconds <= 0.0 { 0.0 } else { committed as f64 / seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_others_count_once() {
        let now = Instant::now();
        // The first chunk was committed before this worker began.
        let mut others = Others::new([10, 10, 10, 4].into_iter(), 10, now);
        assert_eq!((others.rows([].iter()), others.per_second(now)), (0, 0.0));
        let own = BTreeSet::from([1]);
        others.refresh(BTreeSet::from([0, 1]), &own, now);
        assert_eq!(others.rows([].iter()), 0);
        // The commit of another worker was in the way before it was read.
        assert_eq!((others.rows([2].iter()), others.rows_of([2].iter())), (10, 10));
        others.refresh(BTreeSet::from([0, 1, 2, 3]), &own, now);
        assert_eq!((others.rows([2].iter()), others.rows([].iter())), (14, 14));
    }

    #[test]
    fn the_rate_is_that_of_the_last_minutes_or_of_rare_commits() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut others = Others::new(std::iter::repeat_n(100, 1000), 0, begin);
        let mut refresh = |chunks, seconds| {
            others.refresh((0..chunks).collect(), &BTreeSet::new(), at(seconds));
            (others.per_second(at(seconds)), others.changes.len())
        };
        assert_eq!(refresh(0, 10).0, 0.0);
        assert_eq!(refresh(1, 20).0, 5.0);
        // Ten times as fast from then on: the start is no longer part of the rate.
        for step in 1..100 {
            refresh(1 + 5 * step, 20 + 10 * step);
        }
        let (rate, changes) = refresh(501, 1020);
        assert!((rate - 50.0).abs() < 1e-9 && changes <= 62, "{rate} of {changes}");
        // An hour without a commit.
        let (slow, _) = refresh(502, 4600);
        assert!(slow > 0.0 && slow < 10.0, "{slow}");
    }
}
