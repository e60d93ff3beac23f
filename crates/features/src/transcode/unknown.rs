//! The features of a request that the model does not name.

use std::collections::BTreeSet;

use super::lasts::{Keyed, Lasts};

/// The maximum number of names kept (the first in sort order), and of bytes of each.
const NAMES: usize = 1000;
pub(super) const NAME_BYTES: usize = 256;

/// Features that the model does not name.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    /// The number of values.
    pub(crate) count: u64,
    /// Their names, if the call is traced.
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
    pub(super) fn add_row(&mut self, row: &mut Lasts<Stranger<'_>>) {
        for stranger in row.sorted() {
            self.add(stranger.key, usize::from(stranger.sent));
        }
    }
}

/// A name, truncated if it is long.
fn kept(name: &[u8]) -> String {
    let Some(beginning) = name.get(..NAME_BYTES).filter(|it| it.len() < name.len()) else {
        return String::from_utf8_lossy(name).into_owned();
    };
    // The whole prefix, except a character that is cut in two.
    let whole = beginning.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    format!("{whole}…")
}

/// A key of a row that the model does not name, and whether it had a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stranger<'r> {
    pub(super) key: &'r [u8],
    pub(super) sent: bool,
}

impl Keyed for Stranger<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_same_name_decides() {
        let mut row = Lasts::default();
        for (key, sent) in [("b", true), ("a", true), ("b", false), ("c", false), ("c", true)] {
            row.push(Stranger { key: key.as_bytes(), sent });
        }
        let mut unknown = Unknown::new(true);
        unknown.add_row(&mut row);
        assert_eq!(unknown.count, 2);
        assert_eq!(Vec::from_iter(unknown.names.expect("named")), ["a", "c"]);
    }

    #[test]
    fn only_the_first_of_many_names_are_kept() {
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
    fn only_the_beginning_of_a_long_name_is_kept() {
        let just_so = "x".repeat(NAME_BYTES);
        let cut_in_two = "x".repeat(NAME_BYTES - 1) + "é";
        let mut unknown = Unknown::new(true);
        unknown.add(just_so.as_bytes(), 1);
        unknown.add(cut_in_two.as_bytes(), 1);
        let cut = "x".repeat(NAME_BYTES - 1) + "…";
        assert_eq!(Vec::from_iter(unknown.names.expect("named")), [just_so, cut]);
    }
}
