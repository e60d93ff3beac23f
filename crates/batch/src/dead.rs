//! The dead rows that the commits of a job record.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Error,
    commit::{Commit, committed},
    store::Store,
};

/// The dead rows of the chunks that are committed, by whichever worker.
#[derive(Debug, Default)]
pub(crate) struct DeadRows(BTreeMap<u64, u64>);

impl DeadRows {
    /// Reads the commits that were added since the last time. Blocks.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn refresh(&mut self, store: &Store) -> Result<(), Error> {
        self.add(&committed(store)?, store)
    }

    /// Reads those of these commits that were not read before. Blocks.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn add(&mut self, committed: &BTreeSet<u64>, store: &Store) -> Result<(), Error> {
        let chunks = committed.iter().copied().filter(|chunk| !self.0.contains_key(chunk));
        let found = Commit::read_all(store, chunks.collect::<Vec<_>>())?;
        self.0.extend(found.into_iter().flatten().map(|commit| (commit.chunk, commit.dead)));
        Ok(())
    }

    /// The dead rows of all chunks but these.
    pub(crate) fn without(&self, chunks: &BTreeSet<u64>) -> u64 {
        let others = self.0.iter().filter(|(chunk, _)| !chunks.contains(chunk));
        others.map(|(_, dead)| dead).sum()
    }
}
