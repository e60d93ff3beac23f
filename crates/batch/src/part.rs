//! The part of a job's hosts and chunks that one of several workers prefers.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use outrigger_core::Moment;

/// The fewest hosts of a worker, if the job has as many: a failure is judged by what a second host
/// does.
const LEAST_HOSTS: usize = 2;
/// The time for which the hosts of a part are away, or back, before the worker changes its hosts.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker among those of one job: its number, from 0, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    index: u32,
    count: NonZeroU32,
}

impl Default for Part {
    /// The only worker.
    fn default() -> Self {
        Self { index: 0, count: NonZeroU32::MIN }
    }
}

impl FromStr for Part {
    type Err = String;

    /// Reads `INDEX/COUNT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is not INDEX/COUNT with an index from 0, such as 0/4");
        let (index, count) = text.split_once('/').ok_or_else(refused)?;
        let index: u32 = index.parse().map_err(|_| refused())?;
        let count: NonZeroU32 = count.parse().map_err(|_| refused())?;
        if index >= count.get() {
            return Err(refused());
        }
        Ok(Self { index, count })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl Part {
    /// This worker's of the hosts `all`: each has one worker, or two if there are too few for two
    /// hosts for each. All of them if there are fewer than workers.
    pub(crate) fn of<T: Clone>(self, all: &[T]) -> Vec<T> {
        let (index, count) = (self.index as usize, self.count.get() as usize);
        if all.len() < count {
            return all.to_vec();
        }
        let mut own: Vec<_> = all.iter().skip(index).step_by(count).cloned().collect();
        if own.len() < LEAST_HOSTS.min(all.len()) {
            own.extend(all.get((index + 1) % all.len()).cloned());
        }
        own
    }

    /// The place among `len` things at which this worker begins.
    pub(crate) fn start(self, len: usize) -> usize {
        let start = len as u128 * u128::from(self.index) / u128::from(self.count.get());
        usize::try_from(start).unwrap_or_default()
    }
}

/// Decides if a worker uses the hosts of its part or all: rows that wait for a part whose hosts are
/// away would hold up the job.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    is_all: bool,
    /// The time since which the other choice has been the better one.
    other_since: Option<Moment>,
}

impl Reach {
    /// True if all hosts are used.
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Takes into account if a host of the part serves. Returns true if the choice has changed.
    pub(crate) fn review(&mut self, part_serves: bool, now: Moment) -> bool {
        if self.is_all != part_serves {
            self.other_since = None;
            return false;
        }
        let since = *self.other_since.get_or_insert(now);
        let is_over = now.since(since) >= PATIENCE;
        if is_over {
            self.is_all = !self.is_all;
            self.other_since = None;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn part(index: u32, count: u32) -> Part {
        format!("{index}/{count}").parse().expect("a part")
    }

    #[test]
    fn a_part_is_an_index_below_a_count() {
        assert_eq!("0/1".parse(), Ok(Part::default()));
        assert_eq!(part(3, 4).to_string(), "3/4");
        for wrong in ["", "1", "/", "4/4", "0/0", "-1/2", "0/4294967296", "a/b", "0/1/2"] {
            let refused = wrong.parse::<Part>().expect_err(wrong);
            assert!(refused.contains("INDEX/COUNT"), "{refused}");
        }
    }

    #[test]
    fn hosts_are_divided_among_workers() {
        let of = |index, count, hosts: u32| part(index, count).of(&(0..hosts).collect::<Vec<_>>());
        assert_eq!(of(0, 1, 3), [0, 1, 2]);
        assert_eq!([of(0, 2, 5), of(1, 2, 5)], [vec![0, 2, 4], vec![1, 3]]);
        // Too few for two each: the next one too.
        assert_eq!([of(0, 3, 3), of(1, 3, 3), of(2, 3, 3)], [[0, 1], [1, 2], [2, 0]]);
        assert_eq!([of(0, 3, 4), of(1, 3, 4), of(2, 3, 4)], [[0, 3], [1, 2], [2, 3]]);
        // Fewer than workers.
        assert_eq!(of(4, 5, 2), [0, 1]);
        assert_eq!([of(0, 2, 1), of(1, 2, 1), of(0, 1, 1)], [[0], [0], [0]]);
        assert!(of(1, 2, 0).is_empty());
    }

    #[test]
    fn every_host_has_one_worker_or_two() {
        for count in 1..8 {
            for hosts in count..30 {
                let mut workers = BTreeMap::new();
                for index in 0..count {
                    let own = part(index, count).of(&(0..hosts).collect::<Vec<_>>());
                    assert!(own.len() >= LEAST_HOSTS.min(hosts as usize), "{count} on {hosts}");
                    own.iter().for_each(|host| *workers.entry(*host).or_insert(0) += 1);
                }
                assert_eq!(workers.len(), hosts as usize);
                let most = if hosts >= 2 * count { 1 } else { 2 };
                assert!(workers.values().all(|of| *of <= most), "{count} on {hosts}: {workers:?}");
            }
        }
    }

    #[test]
    fn workers_begin_at_even_distances() {
        assert_eq!([0, 1, 2].map(|index| part(index, 3).start(10)), [0, 3, 6]);
        assert_eq!(part(2, 3).start(0), 0);
        assert_eq!(part(4, 5).start(2), 1);
        assert!(part(u32::MAX - 1, u32::MAX).start(usize::MAX) < usize::MAX);
    }

    #[test]
    fn all_hosts_are_used_while_those_of_the_part_are_away() {
        let mut reach = Reach::default();
        let at = |second| Moment::at(Duration::from_secs(second));
        assert!(!reach.review(false, at(0)) && !reach.review(false, at(59)));
        // One is back for a moment.
        assert!(!reach.review(true, at(60)) && !reach.review(false, at(61)));
        assert!(!reach.review(false, at(120)) && !reach.is_all());
        assert!(reach.review(false, at(121)) && reach.is_all());
        assert!(!reach.review(false, at(1000)));
        // Back for long.
        assert!(!reach.review(true, at(1001)) && !reach.review(true, at(1060)));
        assert!(reach.review(true, at(1061)) && !reach.is_all());
    }
}
