//! Finds the rows of two outputs that have the same key.
//!
//! Both outputs are read side by side. A row waits in memory until the row with its key comes from
//! the other output, so outputs of one order need little memory. When more rows wait than the
//! memory holds, they are put into files by the hash of their keys, and each pair of files is joined
//! by itself, in the same way.

use std::collections::{HashMap, VecDeque};

use super::{
    layout::Row,
    spill::{PARTS, Parts, Spilled},
};
use crate::Error;

/// About the bytes that a row in memory takes besides its own.
const OVERHEAD: u64 = 200;
/// The most divisions into files, one of the files of the other: a division leaves a thirtieth.
const LEVELS: u32 = 6;

/// One of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

/// Takes what a join finds.
pub(crate) trait Sink {
    /// Two rows with one key: of the first output, and of the second one.
    fn pair(&mut self, a: &Row, b: &Row) -> Result<(), Error>;

    /// A row whose key the other output does not have, or not so many times.
    fn only(&mut self, side: Side, row: &Row);
}

/// The rows of an output.
pub(super) type Rows<'a> = &'a mut dyn Iterator<Item = Result<Row, Error>>;

/// Joins two outputs in `memory` bytes. Rows of one output with equal keys are paired in their
/// order while they are in memory.
///
/// # Errors
/// Rows or temporary files cannot be read or written, or the rows of one key do not fit in memory.
pub(super) fn join(rows: [Rows<'_>; 2], memory: u64, sink: &mut dyn Sink) -> Result<(), Error> {
    join_level(rows, memory, sink, 0)
}

fn join_level(
    rows: [Rows<'_>; 2],
    memory: u64,
    sink: &mut dyn Sink,
    level: u32,
) -> Result<(), Error> {
    let [a, b] = rows;
    let mut waiting = [Waiting::default(), Waiting::default()];
    let mut parts: Option<[Parts; 2]> = None;
    let (mut read, mut has_ended) = ([0_u64; 2], [false; 2]);
    while has_ended != [true; 2] {
        // The side that is behind, so that rows of one order meet.
        let is_b = has_ended[0] || (!has_ended[1] && read[1] < read[0]);
        let (side, own) = if is_b { (1, b.next()) } else { (0, a.next()) };
        let Some(row) = own.transpose()? else {
            has_ended[side] = true;
            continue;
        };
        read[side] += 1;
        match waiting[1 - side].take(&row.key) {
            Some(other) if is_b => sink.pair(&other, &row)?,
            Some(other) => sink.pair(&row, &other)?,
            None => waiting[side].put(row),
        }
        if waiting[0].bytes + waiting[1].bytes > memory {
            let parts = parts.get_or_insert_with(|| [Parts::new(level), Parts::new(level)]);
            spill(&mut waiting, parts, level)?;
        }
    }
    match parts {
        None => only(&waiting, sink),
        Some(mut parts) => {
            spill(&mut waiting, &mut parts, level)?;
            let [a, b] = parts.map(Parts::rows);
            each_part(a?, b?, memory, sink, level + 1)?;
        }
    }
    Ok(())
}

fn each_part(
    a: Vec<Spilled>,
    b: Vec<Spilled>,
    memory: u64,
    sink: &mut dyn Sink,
    level: u32,
) -> Result<(), Error> {
    for (mut a, mut b) in a.into_iter().zip(b) {
        join_level([&mut a, &mut b], memory, sink, level)?;
    }
    Ok(())
}

fn only(waiting: &[Waiting; 2], sink: &mut dyn Sink) {
    for (side, waiting) in [Side::A, Side::B].into_iter().zip(waiting) {
        waiting.each(|row| sink.only(side, row));
    }
}

fn spill(waiting: &mut [Waiting; 2], parts: &mut [Parts; 2], level: u32) -> Result<(), Error> {
    if level >= LEVELS {
        return Err(Error::failed(
            "the rows of one key, or of few keys, do not fit in the memory: name more columns as \
             keys, or give more memory",
        ));
    }
    waiting.iter_mut().zip(parts).try_for_each(|(waiting, parts)| waiting.spill(parts))
}

/// Rows of one output that wait for those of the other one, by key.
#[derive(Debug, Default)]
struct Waiting {
    rows: HashMap<Box<[u8]>, VecDeque<Box<[u8]>>>,
    bytes: u64,
}

impl Waiting {
    fn put(&mut self, Row { key, scores }: Row) {
        self.bytes += size(&key, &scores);
        self.rows.entry(key).or_insert_with(|| VecDeque::with_capacity(1)).push_back(scores);
    }

    /// Takes the first row with this key.
    fn take(&mut self, key: &[u8]) -> Option<Row> {
        let rows = self.rows.get_mut(key)?;
        let scores = rows.pop_front()?;
        if rows.is_empty() {
            self.rows.remove(key);
        }
        self.bytes -= size(key, &scores);
        Some(Row { key: key.into(), scores })
    }

    fn each(&self, mut each: impl FnMut(&Row)) {
        for (key, rows) in &self.rows {
            for scores in rows {
                each(&Row { key: key.clone(), scores: scores.clone() });
            }
        }
    }

    /// Moves all rows to files.
    fn spill(&mut self, parts: &mut Parts) -> Result<(), Error> {
        for (key, rows) in std::mem::take(&mut self.rows) {
            rows.iter().try_for_each(|scores| parts.put(&key, scores))?;
        }
        self.bytes = 0;
        Ok(())
    }
}

fn size(key: &[u8], scores: &[u8]) -> u64 {
    (key.len() + scores.len()) as u64 + OVERHEAD
}

// A division must make parts smaller.
const _: () = assert!(PARTS > 1);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Found {
        /// For each key the scores of both sides.
        pairs: BTreeMap<u32, Vec<(u8, u8)>>,
        only: [Vec<u32>; 2],
    }

    fn key(row: &Row) -> u32 {
        u32::from_le_bytes(row.key[..].try_into().expect("a key"))
    }

    impl Sink for Found {
        fn pair(&mut self, a: &Row, b: &Row) -> Result<(), Error> {
            assert_eq!(a.key, b.key);
            self.pairs.entry(key(a)).or_default().push((a.scores[0], b.scores[0]));
            Ok(())
        }

        fn only(&mut self, side: Side, row: &Row) {
            self.only[usize::from(side == Side::B)].push(key(row));
        }
    }

    fn joined(a: &[(u32, u8)], b: &[(u32, u8)], memory: u64) -> Result<Found, Error> {
        let rows = |rows: &[(u32, u8)]| {
            let row = |(key, score): &(u32, u8)| {
                Ok::<_, Error>(Row { key: key.to_le_bytes().into(), scores: [*score].into() })
            };
            rows.iter().map(row).collect::<Vec<_>>().into_iter()
        };
        let mut found = Found::default();
        join([&mut rows(a), &mut rows(b)], memory, &mut found)?;
        found.only.iter_mut().for_each(|keys| keys.sort_unstable());
        Ok(found)
    }

    #[test]
    fn rows_are_found_in_any_order_and_any_memory() {
        let a: Vec<_> = (0..3000).filter(|key| key % 10 != 3).map(|key| (key, 1)).collect();
        let mut b: Vec<_> = (0..3000).filter(|key| key % 7 != 5).map(|key| (key, 2)).collect();
        for is_shuffled in [false, true] {
            if is_shuffled {
                b.shuffle(&mut StdRng::seed_from_u64(1));
            }
            for memory in [1 << 30, 50_000, 3_000] {
                let found = joined(&a, &b, memory).expect("joined");
                let both = (0..3000).filter(|key| key % 10 != 3 && key % 7 != 5);
                assert!(found.pairs.keys().copied().eq(both), "{memory}");
                assert!(found.pairs.values().all(|pairs| *pairs == [(1, 2)]), "{memory}");
                let only_a = (0..3000).filter(|key| key % 10 != 3 && key % 7 == 5);
                assert!(found.only[0].iter().copied().eq(only_a), "{memory}");
                let only_b = (0..3000).filter(|key| key % 10 == 3 && key % 7 != 5);
                assert!(found.only[1].iter().copied().eq(only_b), "{memory}");
            }
        }
    }

    #[test]
    fn rows_with_one_key_are_paired_in_their_order() {
        let (a, b) = ([(1, 1), (1, 2), (2, 3)], [(2, 5), (1, 6), (1, 7), (1, 8)]);
        let found = joined(&a, &b, 1 << 20).expect("joined");
        assert_eq!(found.pairs[&1], [(1, 6), (2, 7)]);
        assert_eq!(found.pairs[&2], [(3, 5)]);
        assert_eq!(found.only, [vec![], vec![1]]);
    }

    #[test]
    fn rows_of_one_key_that_do_not_fit_are_an_error() {
        let a = vec![(1, 1); 100];
        let error = joined(&a, &[(2, 1)], 2_000).expect_err("they do not fit");
        assert!(error.to_string().contains("one key"), "{error}");
    }
}
