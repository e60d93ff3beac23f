//! Sorts pairs of numbers, in temporary files if they do not fit in memory.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufWriter, Write as _},
    ops::Range,
    os::unix::fs::FileExt as _,
};

/// Two numbers, neither of which is NaN.
pub(super) type Pair = (f64, f64);

/// The bytes of a pair.
const PAIR: u64 = 16;
/// The pairs that are read from a file at a time, and the least that are sorted in memory.
const READ: usize = 4096;
/// The least runs that are merged at a time.
const LEAST_RUNS: usize = 2;

/// Pairs that are to be sorted by their first number.
#[derive(Debug)]
pub(super) struct Sorter {
    /// The most pairs in memory.
    most: usize,
    pairs: Vec<Pair>,
    runs: Option<Runs>,
}

/// Runs of sorted pairs in a file, one after the other.
#[derive(Debug)]
struct Runs {
    file: BufWriter<File>,
    runs: Vec<Range<u64>>,
}

/// Sorted pairs.
#[derive(Debug)]
pub(super) enum Sorted {
    Memory(Vec<Pair>),
    File(File, u64),
}

impl Sorter {
    /// A sorter in `memory` bytes, or a little more.
    pub(super) fn new(memory: u64) -> Self {
        let most = usize::try_from(memory / PAIR).unwrap_or(usize::MAX).max(READ);
        Self { most, pairs: Vec::new(), runs: None }
    }

    /// The same for other pairs.
    pub(super) fn another(&self) -> Self {
        Self { most: self.most, pairs: Vec::new(), runs: None }
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// A temporary file cannot be written.
    pub(super) fn push(&mut self, (first, second): Pair) -> io::Result<()> {
        if self.pairs.len() >= self.most {
            self.write()?;
        }
        if self.pairs.len() == self.pairs.capacity() {
            // Twice as many, but not more than there may be.
            let room = self.most - self.pairs.len();
            self.pairs.reserve_exact(self.pairs.len().max(READ).min(room));
        }
        // Negative zero is zero.
        self.pairs.push((first + 0.0, second + 0.0));
        Ok(())
    }

    /// Writes the pairs in memory as a run.
    fn write(&mut self) -> io::Result<()> {
        sort(&mut self.pairs);
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(Runs::new()?),
        };
        runs.write(self.pairs.drain(..).map(Ok))
    }

    /// The pairs in order.
    ///
    /// # Errors
    /// A temporary file cannot be written or read.
    pub(super) fn sorted(mut self) -> io::Result<Sorted> {
        if self.runs.is_none() {
            sort(&mut self.pairs);
            return Ok(Sorted::Memory(self.pairs));
        }
        self.write()?;
        self.pairs = Vec::new();
        let mut runs = match self.runs.take() {
            Some(runs) => runs,
            None => Runs::new()?,
        };
        let at_once = (self.most / READ).max(LEAST_RUNS);
        while runs.runs.len() > 1 {
            runs = runs.merged(at_once)?;
        }
        let count = runs.runs.first().map_or(0, |run| run.end);
        let file = runs.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Sorted::File(file, count))
    }
}

fn sort(pairs: &mut [Pair]) {
    pairs.sort_unstable_by(|left, right| left.0.total_cmp(&right.0));
}

impl Runs {
    fn new() -> io::Result<Self> {
        Ok(Self { file: BufWriter::new(tempfile::tempfile()?), runs: Vec::new() })
    }

    fn write(&mut self, pairs: impl Iterator<Item = io::Result<Pair>>) -> io::Result<()> {
        let start = self.runs.last().map_or(0, |run| run.end);
        let mut end = start;
        for pair in pairs {
            let (first, second) = pair?;
            self.file.write_all(&first.to_le_bytes())?;
            self.file.write_all(&second.to_le_bytes())?;
            end += 1;
        }
        self.runs.push(start..end);
        Ok(())
    }

    /// Fewer runs: each is the merger of at most `at_once` of these.
    fn merged(mut self, at_once: usize) -> io::Result<Self> {
        self.file.flush()?;
        let mut merged = Self::new()?;
        for runs in self.runs.chunks(at_once) {
            let file = self.file.get_ref();
            let pairs = runs.iter().map(|run| FilePairs::new(file, run.clone()));
            merged.write(Merged::new(pairs.collect())?)?;
        }
        Ok(merged)
    }
}

impl Sorted {
    /// The number of pairs.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Memory(pairs) => pairs.len() as u64,
            Self::File(_, count) => *count,
        }
    }

    /// All pairs, from the first one.
    pub(super) fn pairs(&self) -> Box<dyn Iterator<Item = io::Result<Pair>> + '_> {
        match self {
            Self::Memory(pairs) => Box::new(pairs.iter().map(|pair| Ok(*pair))),
            Self::File(file, count) => Box::new(FilePairs::new(file, 0..*count)),
        }
    }
}

/// The pairs of a part of a file.
struct FilePairs<'a> {
    file: &'a File,
    rest: Range<u64>,
    read: Vec<u8>,
    next: usize,
}

impl<'a> FilePairs<'a> {
    fn new(file: &'a File, pairs: Range<u64>) -> Self {
        Self { file, rest: pairs, read: Vec::new(), next: 0 }
    }

    fn read(&mut self) -> io::Result<()> {
        let count = (self.rest.end - self.rest.start).min(READ as u64);
        self.read.resize(usize::try_from(count * PAIR).map_err(io::Error::other)?, 0);
        self.file.read_exact_at(&mut self.read, self.rest.start * PAIR)?;
        self.rest.start += count;
        self.next = 0;
        Ok(())
    }
}

impl Iterator for FilePairs<'_> {
    type Item = io::Result<Pair>;

    fn next(&mut self) -> Option<io::Result<Pair>> {
        if self.next >= self.read.len() {
            if self.rest.is_empty() {
                return None;
            }
            if let Err(error) = self.read() {
                return Some(Err(error));
            }
        }
        let numbers = self.read[self.next..].as_chunks().0;
        let pair = [numbers.first()?, numbers.get(1)?].map(|number| f64::from_le_bytes(*number));
        self.next += PAIR as usize;
        Some(Ok((pair[0], pair[1])))
    }
}

/// The pairs of several runs in order.
struct Merged<'a> {
    runs: Vec<FilePairs<'a>>,
    /// The first pair of each run that has one: the place of its first number in the order of
    /// numbers, the run, and its bits.
    next: BinaryHeap<Reverse<(u64, usize, u64)>>,
}

impl<'a> Merged<'a> {
    fn new(runs: Vec<FilePairs<'a>>) -> io::Result<Self> {
        let mut merged = Self { next: BinaryHeap::with_capacity(runs.len()), runs };
        for run in 0..merged.runs.len() {
            merged.advance(run)?;
        }
        Ok(merged)
    }

    fn advance(&mut self, run: usize) -> io::Result<()> {
        let pair = self.runs.get_mut(run).and_then(Iterator::next).transpose()?;
        let entry = |(first, second): Pair| Reverse((place(first), run, second.to_bits()));
        self.next.extend(pair.map(entry));
        Ok(())
    }
}

impl Iterator for Merged<'_> {
    type Item = io::Result<Pair>;

    fn next(&mut self) -> Option<io::Result<Pair>> {
        let Reverse((first, run, second)) = self.next.pop()?;
        Some(self.advance(run).map(|()| (number(first), f64::from_bits(second))))
    }
}

/// The sign bit of a number.
const SIGN: u64 = 1 << 63;

/// An integer whose order is that of numbers.
fn place(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The number with this place.
fn number(place: u64) -> f64 {
    f64::from_bits(if place & SIGN == 0 { !place } else { place & !SIGN })
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    fn sorted(memory: u64, pairs: &[Pair]) -> Sorted {
        let mut sorter = Sorter::new(memory);
        pairs.iter().for_each(|pair| sorter.push(*pair).expect("taken"));
        sorter.sorted().expect("sorted")
    }

    #[test]
    fn places_have_the_order_of_numbers() {
        let numbers = [f64::NEG_INFINITY, -2.5, -1e-300, 0.0, 1e-300, 3.0, f64::INFINITY];
        assert!(numbers.is_sorted_by_key(|it| place(*it)));
        assert!(numbers.iter().all(|it| number(place(*it)) == *it));
    }

    #[test]
    fn pairs_that_do_not_fit_in_memory_are_sorted_in_files() {
        let mut random = StdRng::seed_from_u64(7);
        // More runs than are merged at a time.
        let pairs: Vec<Pair> = (0..READ * 5 + 17)
            .map(|at| (f64::from(random.random_range(-50..50_i32)) / 4.0, at as f64))
            .collect();
        let found = sorted(0, &pairs);
        assert!(matches!(found, Sorted::File(..)));
        let in_memory = sorted(1 << 30, &pairs);
        assert!(matches!(in_memory, Sorted::Memory(_)));
        assert_eq!(found.count(), pairs.len() as u64);
        let all = |sorted: &Sorted| {
            let mut pairs = sorted.pairs().collect::<io::Result<Vec<_>>>().expect("read");
            assert!(pairs.is_sorted_by(|left, right| left.0 <= right.0));
            // Pairs with one first number have any order.
            pairs.sort_by(|left, right| left.partial_cmp(right).expect("numbers"));
            pairs
        };
        assert_eq!(all(&found), all(&in_memory));
    }
}
