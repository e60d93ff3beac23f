//! Spearman's rank correlation of more values than fit in memory.

use std::io;

use outrigger_core::rank::{Sums, mean_rank};

use super::sort::{Sorted, Sorter};

/// The rank correlation of pairs, as [`outrigger_core::rank::correlation`] defines it. They are
/// sorted by their first numbers, whose ranks replace them, and then by their second ones.
///
/// # Errors
/// A temporary file cannot be written or read.
pub(super) fn correlation(pairs: Sorter) -> io::Result<Option<f64>> {
    let mut second = pairs.another();
    let by_first = pairs.sorted()?;
    let mut sums = Sums::new(by_first.count());
    ranked(&by_first, |rank, other| {
        sums.add_first(rank);
        second.push((other, rank))
    })?;
    drop(by_first);
    ranked(&second.sorted()?, |rank, first| {
        sums.add(first, rank);
        Ok(())
    })?;
    Ok(sums.correlation())
}

/// Calls `each` with the rank of each first number, and the second one. Equal numbers are counted
/// before they are passed on, so the pairs are read twice.
fn ranked(pairs: &Sorted, mut each: impl FnMut(f64, f64) -> io::Result<()>) -> io::Result<()> {
    let (mut ahead, mut behind) = (pairs.pairs(), pairs.pairs());
    let mut next = ahead.next().transpose()?;
    let mut before = 0;
    while let Some((number, _)) = next {
        let mut count = 0;
        while next.is_some_and(|(other, _)| other == number) {
            count += 1;
            next = ahead.next().transpose()?;
        }
        let rank = mean_rank(before, count);
        for _ in 0..count {
            if let Some((_, other)) = behind.next().transpose()? {
                each(rank, other)?;
            }
        }
        before += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use outrigger_core::rank;
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    fn found(memory: u64, pairs: &[(f64, f64)]) -> Option<f64> {
        let mut sorter = Sorter::new(memory);
        pairs.iter().for_each(|pair| sorter.push(*pair).expect("taken"));
        correlation(sorter).expect("sorted")
    }

    #[test]
    fn it_is_the_same_in_files_and_in_memory() {
        let mut random = StdRng::seed_from_u64(3);
        let pairs: Vec<_> = (0..30_000)
            .map(|_| {
                let first = f64::from(random.random_range(-100..100_i32));
                (first, first * first + f64::from(random.random_range(0..2000_i32)))
            })
            .collect();
        let expected = rank::correlation(&pairs).expect("defined");
        for memory in [0, 1 << 30] {
            let found = found(memory, &pairs).expect("defined");
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }

    #[test]
    fn zero_has_one_rank() {
        let pairs = [(0.0, 1.0), (-0.0, 2.0), (1.0, 3.0)];
        assert_eq!(found(0, &pairs), rank::correlation(&pairs));
        assert_eq!(found(0, &[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(found(0, &[]), None);
    }
}
