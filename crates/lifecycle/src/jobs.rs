//! Jobs requested by the machines and the trials, each in a task of its own.

pub(crate) mod disk;
pub(crate) mod gate;
pub(crate) mod prepare;
pub(crate) mod pull;

use std::{collections::HashMap, sync::Arc};

use outrigger_core::{Attempt, Digest, Failure, ModelKey, machines::Event, model::Fault};
use outrigger_trials::Completion;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

pub(crate) use prepare::{Kept, Prepared};

use crate::{location::Location, replay::Replayed, world::World};

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Done {
    /// Nothing is left to do.
    Nothing,
    /// An event for the machines.
    Event(Event),
    /// The result of a pull, and the trees that made room for it.
    Pulled { origin: Origin, result: Result<Kept, Failure>, evicted: Vec<Digest> },
    /// The result of a preparation.
    Prepared { key: ModelKey, attempt: Attempt, result: Result<Arc<Prepared>, Fault> },
    /// The result of a registry call for trials.
    Trial(Completion),
    /// Versions that are up and must not be served, with the reasons.
    Verified(Vec<(ModelKey, Failure)>),
    /// The result of the gate, with the preparation it needed and the warm-up after it, and the
    /// versions beside it that do not pass the gate any more.
    Checked {
        key: ModelKey,
        attempt: Attempt,
        prepared: Option<Arc<Prepared>>,
        result: Result<Replayed, Failure>,
        harmed: Vec<(ModelKey, Failure)>,
    },
}

/// The digest to pull, and its location if the configuration names one: another repository may
/// require other signatures for the same digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    pub(crate) digest: Digest,
    pub(crate) location: Option<Location>,
}

impl World {
    /// The place to pull a version from.
    pub(crate) fn origin(&self, key: &ModelKey) -> Origin {
        Origin { digest: key.digest, location: self.names.load().location(&key.name).ok() }
    }
}

/// All running jobs. A job that panics counts as failed.
#[derive(Default)]
pub(crate) struct Jobs {
    set: JoinSet<Done>,
    if_panicked: HashMap<Id, Done>,
}

impl Jobs {
    /// Starts a job; if the job panics, `if_panicked` is its result.
    pub(crate) fn start(
        &mut self,
        if_panicked: Done,
        job: impl Future<Output = Done> + Send + 'static,
    ) -> AbortHandle {
        let handle = self.set.spawn(job);
        self.if_panicked.insert(handle.id(), if_panicked);
        handle
    }

    /// Waits for the next job to end; for ever if there is none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Done {
        match self.set.join_next_with_id().await {
            Some(joined) => self.ended(joined),
            None => std::future::pending().await,
        }
    }

    fn ended(&mut self, joined: Result<(Id, Done), JoinError>) -> Done {
        match joined {
            Ok((id, done)) => {
                self.if_panicked.remove(&id);
                done
            }
            Err(error) => {
                let done = self.if_panicked.remove(&error.id()).unwrap_or(Done::Nothing);
                if error.is_cancelled() {
                    return Done::Nothing;
                }
                tracing::error!(job = ?done, "a job panicked");
                done
            }
        }
    }

    /// Ends all jobs. Blocking work already running ends by itself.
    pub(crate) async fn stop(&mut self) {
        self.set.shutdown().await;
        self.if_panicked.clear();
    }
}
