//! Jobs with the registry, requested by trials.

pub(crate) mod promote;
pub(crate) mod removal;
pub(crate) mod verdicts;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use outrigger_core::{Digest, Failure, ModelKey, ModelName, Moment, machines::TagKey};
use outrigger_oci::Artifact;

use self::{
    promote::{Moved, Push},
    verdicts::Verdict,
};
use crate::pair::Pair;

/// Access to the sources of models: their tags, and the documents attached to their versions.
pub trait Registry: Send + Sync {
    /// Asks the source for the digest of a tag.
    fn resolve<'a>(&'a self, key: &'a TagKey) -> BoxFuture<'a, Result<Digest, Failure>>;

    /// Reports true if it is certain that the source does not have the tag.
    fn is_missing<'a>(&'a self, key: &'a TagKey) -> BoxFuture<'a, Result<bool, Failure>>;

    /// Points the tag at the canary, provided that it names the live version and `may_push` then
    /// returns true. Returns the digest that the tag names afterwards.
    fn move_tag<'a>(
        &'a self,
        key: &'a TagKey,
        pair: Pair,
        may_push: &'a MayPush<'a>,
    ) -> BoxFuture<'a, Result<Digest, Failure>>;

    /// Attaches a document to a version.
    fn attach<'a>(
        &'a self,
        version: &'a ModelKey,
        artifact: &'a Artifact,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// The readable documents of that type, of at most `limit` bytes, that are attached to a
    /// version.
    fn attached<'a>(
        &'a self,
        version: &'a ModelKey,
        artifact_type: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, Failure>>;
}

/// Decides immediately before a tag is moved if it may be.
pub type MayPush<'a> = dyn Fn() -> bool + Send + Sync + 'a;

/// A job with the registry, to run in the background.
#[derive(Debug)]
pub struct Job(Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    /// Move the tag to the canary of the trial with that number.
    Promote { key: TagKey, number: u64, pair: Pair, push: Arc<Push> },
    /// Attach a decision to the canary's image, for other control planes.
    PublishVerdict { model: ModelName, verdict: Verdict },
    /// Look for a decision of another control plane about the trial with that number.
    LookForVerdict { key: TagKey, number: u64, pair: Pair },
    /// Check whether a canary's tag, last found at `found_at`, is gone.
    CheckRemoval { canary_tag: TagKey, live: TagKey, found_at: Option<Moment> },
}

/// The result of a [`Job`], for [`Trials::completed`](crate::Trials::completed).
#[derive(Debug)]
pub struct Completion(pub(crate) Completed);

#[derive(Debug)]
pub(crate) enum Completed {
    /// Nothing is left to do.
    Nothing,
    /// The result of a promotion.
    Moved { key: TagKey, number: u64, result: Result<Moved, Failure> },
    /// The result of looking for a verdict.
    Looked { key: TagKey, number: u64, verdict: Option<Verdict> },
    /// The result of checking a canary's tag, with the digest that the live tag names.
    Checked {
        canary_tag: TagKey,
        found_at: Option<Moment>,
        result: Result<Option<Digest>, Failure>,
    },
}

impl Job {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(kind)
    }

    /// The completion of a job that panicked, with `failure` as its result.
    pub fn panicked(&self, failure: Failure) -> Completion {
        Completion(match &self.0 {
            Kind::PublishVerdict { .. } => Completed::Nothing,
            Kind::Promote { key, number, .. } => {
                Completed::Moved { key: key.clone(), number: *number, result: Err(failure) }
            }
            Kind::LookForVerdict { key, number, .. } => {
                Completed::Looked { key: key.clone(), number: *number, verdict: None }
            }
            Kind::CheckRemoval { canary_tag, found_at, .. } => Completed::Checked {
                canary_tag: canary_tag.clone(),
                found_at: *found_at,
                result: Err(failure),
            },
        })
    }

    /// Runs the job.
    pub async fn run(self, registry: &dyn Registry) -> Completion {
        Completion(match self.0 {
            Kind::Promote { key, number, pair, push } => {
                let result = promote::promote(registry, &key, pair, &push).await;
                Completed::Moved { key, number, result }
            }
            Kind::PublishVerdict { model, verdict } => {
                verdicts::publish(registry, &model, &verdict).await;
                Completed::Nothing
            }
            Kind::LookForVerdict { key, number, pair } => {
                let verdict = verdicts::look(registry, &key, pair).await;
                Completed::Looked { key, number, verdict }
            }
            Kind::CheckRemoval { canary_tag, live, found_at } => {
                let result = removal::look(registry, &canary_tag, &live).await;
                Completed::Checked { canary_tag, found_at, result }
            }
        })
    }
}
