//! What was sent but not asked for.

use std::collections::BTreeSet;

/// As many names are kept, the first in their order, and as many bytes of each.
const NAMES: usize = 1000;
pub(super) const NAME_BYTES: usize = 256;

/// Features that the model does not name.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    /// How many values.
    pub(crate) count: u64,
    /// Their names, where somebody wants to see them.
    pub(crate) names: Option<BTreeSet<String>>,
}

impl Unknown {
    pub(crate) fn new(named: bool) -> Self {
        Self { count: 0, names: named.then(BTreeSet::new) }
    }

    /// Counts `count` values of the feature `name`.
    pub(crate) fn add(&mut self, name: &[u8], count: usize) {
        self.count += count as u64;
        if let Some(names) = &mut self.names
            && count > 0
        {
            names.insert(kept(name));
            if names.len() > NAMES {
                names.pop_last();
            }
        }
    }

    /// Counts the unknown keys of one row.
    pub(super) fn add_row(&mut self, row: &mut Strangers<'_>) {
        row.keep_last();
        for (key, sent) in &row.keys {
            self.add(key, usize::from(*sent));
        }
    }
}

/// A name, or its beginning if it is long.
fn kept(name: &[u8]) -> String {
    let Some(beginning) = name.get(..NAME_BYTES).filter(|it| it.len() < name.len()) else {
        return String::from_utf8_lossy(name).into_owned();
    };
    // All of the beginning, but for a character that is cut in two.
    let whole = beginning.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    format!("{whole}…")
}

/// The keys of one row that the model does not name, and whether they had a
/// value. The last of the same name holds.
#[derive(Debug, Default)]
pub(super) struct Strangers<'r> {
    keys: Vec<(&'r [u8], bool)>,
    /// How many there were when repeated ones were last dropped.
    different: usize,
}

/// As many are kept without a look at which are repeated.
const UNSORTED: usize = 1024;

impl<'r> Strangers<'r> {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.different = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn push(&mut self, key: &'r [u8], sent: bool) {
        self.keys.push((key, sent));
        // One key, sent very often, must not fill the memory.
        if self.keys.len() > UNSORTED.max(2 * self.different) {
            self.keep_last();
        }
    }

    fn keep_last(&mut self) {
        if self.keys.len() > 1 {
            // Stable, so that the last stays last.
            self.keys.sort_by_key(|(key, _)| *key);
            self.keys.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same {
                    *kept = *next;
                }
                same
            });
        }
        self.different = self.keys.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_same_name_decides() {
        let mut row = Strangers::default();
        for (key, sent) in [("b", true), ("a", true), ("b", false), ("c", false), ("c", true)] {
            row.push(key.as_bytes(), sent);
        }
        let mut unknown = Unknown::new(true);
        unknown.add_row(&mut row);
        assert_eq!(unknown.count, 2);
        assert_eq!(Vec::from_iter(unknown.names.expect("named")), ["a", "c"]);
    }

    #[test]
    fn of_very_many_names_the_first_are_kept() {
        let mut unknown = Unknown::new(true);
        for name in (0..3 * NAMES).map(|index| format!("{index:04}")).rev() {
            unknown.add(name.as_bytes(), 1);
        }
        assert_eq!(unknown.count, 3 * NAMES as u64);
        assert!(
            unknown.names.expect("named").into_iter().eq((0..NAMES).map(|it| format!("{it:04}")))
        );
    }

    #[test]
    fn of_a_long_name_the_beginning_is_kept() {
        let just_so = "x".repeat(NAME_BYTES);
        let cut_in_two = "x".repeat(NAME_BYTES - 1) + "é";
        let mut unknown = Unknown::new(true);
        unknown.add(just_so.as_bytes(), 1);
        unknown.add(cut_in_two.as_bytes(), 1);
        let cut = "x".repeat(NAME_BYTES - 1) + "…";
        assert_eq!(Vec::from_iter(unknown.names.expect("named")), [just_so, cut]);
    }

    #[test]
    fn a_key_sent_very_often_takes_no_room() {
        let mut row = Strangers::default();
        for _ in 0..100_000 {
            row.push(b"again", true);
        }
        assert!(row.keys.capacity() <= 4 * UNSORTED);
        let mut unknown = Unknown::new(false);
        unknown.add_row(&mut row);
        assert_eq!(unknown.count, 1);
    }
}
