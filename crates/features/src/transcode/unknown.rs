//! What was sent but not asked for.

use std::collections::BTreeSet;

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
    pub(crate) fn add(&mut self, name: &str, count: usize) {
        self.count += count as u64;
        if let Some(names) = &mut self.names
            && count > 0
            && !names.contains(name)
        {
            names.insert(name.to_owned());
        }
    }

    /// Counts the unknown keys of one row, of which the last of the same name
    /// holds: whether it had a value.
    pub(super) fn add_row(&mut self, row: &mut [(&[u8], bool)]) {
        // Stable, so that the last stays last.
        row.sort_by_key(|(key, _)| *key);
        let mut rest = row.iter().peekable();
        while let Some((key, sent)) = rest.next() {
            let repeated = rest.peek().is_some_and(|(next, _)| next == key);
            if *sent && !repeated {
                self.add(&String::from_utf8_lossy(key), 1);
            }
        }
    }
}
