//! The chunks that a worker has still to do.

use std::collections::VecDeque;

use crate::{
    Error, commit,
    lease::Leases,
    part::Part,
    plan::{Chunk, Plan},
    store::Store,
};

/// The chunks of a job that are not committed, which are divided among workers by leases.
#[derive(Debug)]
pub(crate) struct Work {
    store: Store,
    /// The chunks that were not tried, in the order in which they are.
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

    /// Begins with the chunks of a worker's part, so that several workers seldom want the same ones.
    #[must_use]
    pub(crate) fn beginning_with(mut self, part: Part) -> Self {
        self.pending.rotate_left(part.start(self.pending.len()));
        self
    }

    /// Claims the next chunk.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn next(&mut self, leases: &Leases) -> Result<Next, Error> {
        if self.pending.is_empty() && !self.elsewhere.is_empty() {
            self.pending.extend(self.elsewhere.drain(..));
            self.forget_committed()?;
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
            // Others have worked here, so it is seldom the only one.
            self.forget_committed()?;
        }
        Ok(if self.elsewhere.is_empty() { Next::Done } else { Next::Wait })
    }

    fn forget_committed(&mut self) -> Result<(), Error> {
        let committed = commit::committed(&self.store)?;
        self.pending.retain(|chunk| !committed.contains(&chunk.number));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use outrigger_tables::Format;

    use super::*;
    use crate::{
        commit::Commit,
        input::InputFile,
        plan::{Plan, Scoring},
    };

    fn plan(rows: u64) -> Plan {
        let file = InputFile {
            path: "a".into(),
            size: 1,
            modified: 2,
            tag: None,
            rows,
            picked: Default::default(),
            index: None,
        };
        let scoring = Scoring {
            files: vec![file],
            format: Format::Parquet,
            types: Vec::new(),
            protocol: Default::default(),
            model: "m".to_owned(),
            version: None,
            tag: None,
            is_pinned: false,
            row_by_row: false,
            inputs: Vec::new(),
            keys: Vec::new(),
            outputs: Vec::new(),
            chunk_rows: 2,
            output_format: Format::Parquet,
        };
        Plan::new(scoring, 1).expect("a plan")
    }

    fn commit(chunk: u64, store: &Store) {
        let commit = Commit {
            chunk,
            start: 0,
            attempt: "a".to_owned(),
            rows: 2,
            scored: 2,
            dead: 0,
            data: None,
            dead_letters: None,
            version: None,
            hosts: Default::default(),
            time: String::new(),
            parts: Vec::new(),
        };
        assert_eq!(commit.write(store), Ok(true));
    }

    /// The number of the next chunk.
    fn next(work: &mut Work, leases: &Leases) -> u64 {
        match work.next(leases) {
            Ok(Next::Chunk(chunk)) => chunk.number,
            other => panic!("no chunk: {other:?}"),
        }
    }

    #[test]
    fn workers_divide_the_chunks_that_are_not_committed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, plan) = (Store::local(directory.path()), plan(7));
        commit(1, &store);
        let [ours, theirs] = ["a", "b"].map(|worker| Leases::new(store.clone(), worker));
        let (mut work, done) = Work::new(&plan, &store).expect("work");
        let (mut other, _) = Work::new(&plan, &store).expect("work");
        assert_eq!(done, 2);
        assert_eq!(next(&mut work, &ours), 0);
        assert_eq!(next(&mut other, &theirs), 2);
        assert_eq!(next(&mut work, &ours), 3);
        assert_eq!(work.next(&ours), Ok(Next::Wait));
        assert_eq!(other.next(&theirs), Ok(Next::Wait));
        // One worker commits, and the other one ends without a commit.
        commit(2, &store);
        theirs.release(2).expect("released");
        assert_eq!(work.next(&ours), Ok(Next::Done));
        ours.release_all().expect("released");
        assert_eq!([next(&mut other, &theirs), next(&mut other, &theirs)], [0, 3]);
        assert_eq!(other.next(&theirs), Ok(Next::Done));
    }

    #[test]
    fn a_chunk_that_was_committed_meanwhile_is_not_done_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, plan) = (Store::local(directory.path()), plan(4));
        let leases = Leases::new(store.clone(), "a");
        let (mut work, _) = Work::new(&plan, &store).expect("work");
        commit(0, &store);
        assert_eq!(next(&mut work, &leases), 1);
        assert_eq!(work.next(&leases), Ok(Next::Done));
    }

    #[test]
    fn workers_begin_with_their_parts_and_go_on_with_those_of_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, plan) = (Store::local(directory.path()), plan(12));
        let leases = Leases::new(store.clone(), "a");
        let (work, _) = Work::new(&plan, &store).expect("work");
        let mut second = work.beginning_with("1/3".parse().expect("a part"));
        assert_eq!([next(&mut second, &leases), next(&mut second, &leases)], [2, 3]);
        // The third worker has done its part meanwhile, and the first a chunk.
        [0, 4, 5].into_iter().for_each(|chunk| commit(chunk, &store));
        assert_eq!(next(&mut second, &leases), 1);
        assert_eq!(second.next(&leases), Ok(Next::Done));
    }
}
