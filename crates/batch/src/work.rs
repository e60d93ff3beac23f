//! The chunks that a worker has still to do.

use std::collections::VecDeque;

use crate::{
    Error, commit,
    lease::Leases,
    plan::{Chunk, Plan},
    store::Store,
};

/// The chunks of a job that are not committed, which are divided among workers by leases.
#[derive(Debug)]
pub(crate) struct Work {
    store: Store,
    /// The chunks that were not tried, in order.
    pending: VecDeque<Chunk>,
    /// The chunks that other workers had.
    elsewhere: Vec<Chunk>,
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A chunk, whose lease is held.
    Chunk(Chunk),
    /// Other workers have all chunks that are left.
    Wait,
    /// All chunks are committed, or held by this worker.
    Done,
}

impl Work {
    /// The chunks of a plan that are not committed, and the number of rows of those that are.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn new(plan: &Plan, store: &Store) -> Result<(Self, u64), Error> {
        let committed = commit::committed(store)?;
        let (mut pending, mut done) = (VecDeque::new(), 0);
        for chunk in plan.scoring.all_chunks() {
            match committed.contains(&chunk.number) {
                true => done += chunk.count(),
                false => pending.push_back(chunk),
            }
        }
        Ok((Self { store: store.clone(), pending, elsewhere: Vec::new() }, done))
    }

    /// Claims the next chunk.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn next(&mut self, leases: &Leases) -> Result<Next, Error> {
        if self.pending.is_empty() && !self.elsewhere.is_empty() {
            let committed = commit::committed(&self.store)?;
            self.elsewhere.retain(|chunk| !committed.contains(&chunk.number));
            self.pending.extend(self.elsewhere.drain(..));
        }
        while let Some(chunk) = self.pending.pop_front() {
            if !leases.claim(chunk.number)? {
                self.elsewhere.push(chunk);
                continue;
            }
            // Another worker may have committed it before its lease was free.
            if commit::Commit::read(&self.store, chunk.number)?.is_none() {
                return Ok(Next::Chunk(chunk));
            }
            leases.release(chunk.number)?;
        }
        Ok(if self.elsewhere.is_empty() { Next::Done } else { Next::Wait })
    }
}
