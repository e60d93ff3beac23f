//! Ranking: the rows with the highest scores.

use std::cmp::Reverse;

/// The rows of the `top_k` highest scores, best first; ties keep their order.
/// Scores are little-endian float32, all of them finite.
pub(super) fn best(scores: &[u8], top_k: usize) -> Vec<u32> {
    let (scores, _) = scores.as_chunks();
    let rows = scores.iter().zip(0..);
    let keys = rows.map(|(score, row)| key(f32::from_le_bytes(*score), row)).collect();
    lowest(keys, top_k).into_iter().map(|key: u64| key as u32).collect()
}

/// As [`best`], of integers.
pub(super) fn best_integers<'s>(scores: impl Iterator<Item = &'s i64>, top_k: usize) -> Vec<u32> {
    let keys = scores.map(Reverse).zip(0..).collect();
    lowest(keys, top_k).into_iter().map(|(_, row)| row).collect()
}

/// The `count` lowest keys, in order.
fn lowest<K: Ord>(mut keys: Vec<K>, count: usize) -> Vec<K> {
    if count < keys.len() {
        keys.select_nth_unstable(count);
        keys.truncate(count);
    }
    keys.sort_unstable();
    keys
}

/// A sort key that is lower for a row that ranks higher. No two rows have the same key.
fn key(score: f32, row: u32) -> u64 {
    const SIGN: u32 = 1 << 31;
    // Adding zero turns -0 into 0.
    let bits = (score + 0.0).to_bits();
    let from_best = if bits & SIGN == 0 { bits ^ !SIGN } else { bits };
    u64::from(from_best) << 32 | u64::from(row)
}
