//! A hash table of a model's feature names, looked up by their bytes in the request.

use std::sync::Arc;

/// The length and the outer bytes of a name, which distinguish most names without a full
/// comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe {
    first: u64,
    last: u64,
    length: usize,
}

/// Maps names to their positions: an open-addressing hash table, built once per model and
/// never changed. Its hash function is the best of several: some forty names mostly have
/// no collisions, hundreds have few. Requests only look up, so no choice of keys can make
/// a look-up slower than the table's longest run.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    table: Vec<Option<Key>>,
    factor: u64,
    shift: u32,
    /// The length of the longest name in bytes.
    longest: usize,
}

#[derive(Debug, Clone)]
struct Key {
    probe: Probe,
    slot: usize,
    name: Arc<str>,
}

impl Probe {
    /// Builds a probe of the first and the last eight bytes, and the length.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Self {
        let length = name.len();
        if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
            return Self { first, last, length };
        }
        let (first, last) = match (name.first_chunk(), name.last_chunk()) {
            (Some(first), Some(last)) => (u32::from_le_bytes(*first), u32::from_le_bytes(*last)),
            _ => (name.iter().fold(0, |bytes, byte| bytes << 8 | u32::from(*byte)), 0),
        };
        Self { first: first.into(), last: last.into(), length }
    }

    /// Whether the probe contains the whole name.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.length <= 16
    }

    /// A digest of the whole name; the hash function still multiplies it by a factor.
    #[inline]
    fn digest(&self, name: &[u8]) -> u64 {
        let ends = self.first ^ self.last.rotate_left(29) ^ self.length as u64;
        if self.is_whole() { ends } else { ends ^ middle(name) }
    }
}

/// A digest of all bytes of a long name, so that names that differ only in the middle do
/// not all collide.
#[inline(never)]
fn middle(name: &[u8]) -> u64 {
    let (chunks, _) = name.as_chunks();
    chunks.iter().fold(0, |mixed: u64, chunk| {
        (mixed.rotate_left(23) ^ u64::from_le_bytes(*chunk)).wrapping_mul(FACTOR)
    })
}

/// The fraction of the golden ratio: an odd number without a pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Tables of at most `FEW` names try `TRIES` factors to avoid collisions.
const FEW: usize = 512;
const TRIES: u64 = 64;

impl Keys {
    /// Builds the table; a name's position is its index. The names are distinct.
    pub(crate) fn new<'n>(names: impl ExactSizeIterator<Item = &'n Arc<str>>) -> Self {
        let names: Vec<_> = names.collect();
        let tries = if names.len() <= FEW { TRIES } else { 1 };
        let factors = (0..tries).map(|seed| FACTOR.wrapping_mul(2 * seed + 1));
        let mut best: Option<(usize, Self)> = None;
        for factor in factors {
            let (collisions, keys) = Self::with_factor(&names, factor);
            if best.as_ref().is_none_or(|(fewest, _)| collisions < *fewest) {
                best = Some((collisions, keys));
            }
            if collisions == 0 {
                break;
            }
        }
        best.map(|(_, keys)| keys).unwrap_or_default()
    }

    /// Builds the table with one hash factor; also returns the number of collisions.
    fn with_factor(names: &[&Arc<str>], factor: u64) -> (usize, Self) {
        let size = (names.len() * 4).next_power_of_two().max(4);
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let shift = 64 - size.trailing_zeros();
        let mut keys = Self { table: vec![None; size], factor, shift, longest };
        let mut collisions = 0;
        for (slot, name) in names.iter().enumerate() {
            let probe = Probe::of(name.as_bytes());
            let mut at = keys.start(&probe, name.as_bytes());
            while keys.table[at].is_some() {
                at = (at + 1) % size;
                collisions += 1;
            }
            keys.table[at] = Some(Key { probe, slot, name: Arc::clone(name) });
        }
        (collisions, keys)
    }

    /// The length of the longest name in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    #[inline]
    fn start(&self, probe: &Probe, name: &[u8]) -> usize {
        // The high bits of a product depend on all of its factors' bits.
        let digest = probe.digest(name);
        ((digest ^ digest >> 32).wrapping_mul(self.factor) >> self.shift) as usize
    }

    /// The position of a name, given its probe. A name longer than all in the table is
    /// rejected without a comparison.
    #[inline]
    pub(crate) fn find_probe(&self, probe: &Probe, name: &[u8]) -> Option<usize> {
        if probe.length > self.longest {
            return None;
        }
        let mut at = self.start(probe, name);
        loop {
            let key = self.table.get(at)?.as_ref()?;
            if key.probe == *probe && (probe.is_whole() || key.name.as_bytes() == name) {
                return Some(key.slot);
            }
            at = (at + 1) % self.table.len();
        }
    }

    /// The position of a name.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        self.find_probe(&Probe::of(name), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Keys {
        let names: Vec<Arc<str>> = names.iter().map(|name| (*name).into()).collect();
        Keys::new(names.iter())
    }

    #[test]
    fn every_name_is_found_at_its_position_and_no_other_is() {
        let all: Vec<_> = (0..40).map(|length| "x".repeat(length)).collect();
        let names: Vec<_> = all.iter().step_by(2).map(String::as_str).collect();
        let keys = keys(&names);
        for (length, name) in all.iter().enumerate() {
            let expected = (length % 2 == 0).then_some(length / 2);
            assert_eq!(keys.find(name.as_bytes()), expected, "{name:?}");
        }
    }

    #[test]
    fn long_names_are_distinguished_by_their_middle() {
        let keys = keys(&["a_long_name_1_of_many", "a_long_name_2_of_many"]);
        assert_eq!(keys.find(b"a_long_name_2_of_many"), Some(1));
        assert_eq!(keys.find(b"a_long_name_3_of_many"), None);
    }

    /// The number of steps from a name's hash position to its entry.
    fn steps(keys: &Keys, name: &Arc<str>) -> usize {
        let start = keys.start(&Probe::of(name.as_bytes()), name.as_bytes());
        let table = keys.table.iter().cycle().skip(start).flat_map(|key| key.as_ref());
        table.take_while(|key| key.name != *name).count()
    }

    #[test]
    fn few_of_many_names_are_not_in_their_place() {
        for (begin, end) in [("feature_", ""), ("user_profile_", "_of_all"), ("", "_30_days_ago")] {
            for (count, most) in [(20, 0), (100, 6), (300, 18)] {
                let name = |number| format!("{begin}{number:03}{end}").into();
                let names: Vec<Arc<str>> = (0..count).map(name).collect();
                let keys = Keys::new(names.iter());
                let steps: usize = names.iter().map(|name| steps(&keys, name)).sum();
                assert!(steps <= most, "{steps} for {count} names like {:?}", names[0]);
            }
        }
    }

    #[test]
    fn a_name_longer_than_all_is_not_looked_for() {
        let name = "a_name_of_more_than_16_bytes";
        let mut keys = keys(&["a", name]);
        assert_eq!((keys.longest(), keys.find(name.as_bytes())), (name.len(), Some(1)));
        keys.longest -= 1;
        assert_eq!(keys.find(name.as_bytes()), None);
    }

    #[test]
    fn a_model_without_features_names_nothing() {
        assert_eq!(keys(&[]).find(b"a"), None);
        assert_eq!(Keys::default().find(b"a"), None);
    }
}
