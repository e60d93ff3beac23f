//! Images in registries and in image layout directories.

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{Digest, Failure, ModelName, Reason, Tag};
use outrigger_oci::{Artifact, Client, Error, Progress, Reference};
use outrigger_store::Tree;
use outrigger_trace::SpanKind;
use outrigger_trials::{MayPush, Pair};

use super::{Fetch, Source};
use crate::pull::Pull;

/// An image, without tag and digest.
pub(super) struct Image {
    pub(super) client: Client,
    pub(super) model: ModelName,
    pub(super) reference: Reference,
}

impl Image {
    async fn pull(&self, digest: Digest, fetch: Fetch<'_>) -> Result<Tree, Failure> {
        let Fetch { world, turn, span } = fetch;
        let reference = self.reference.with_digest(digest);
        let resolve = span.child("resolve", SpanKind::Client);
        let image = async || self.client.image(&reference).await.map_err(failure);
        let image = turn.run(&reference, &Progress::default(), image).await;
        resolve.end(&image);
        let uses = Arc::clone(world);
        let pull = Pull {
            client: &self.client,
            store: &world.store,
            in_use: Arc::new(move |digest| uses.uses(digest)),
            concurrency: world.config.layer_concurrency,
            memory: Some(&world.config.budget.pulls),
            progress: &Progress::default(),
            turn: Some(turn),
        };
        pull.traced(&image?, span).await
    }

    /// The failure of a look-up. A missing repository is reported without its name: callers need not
    /// know the registry.
    fn not_found(&self, error: Error) -> Failure {
        let failure = failure(error);
        if failure.reason != Reason::ModelNotFound {
            return failure;
        }
        let message = format!("model {}: there is no such image", self.model);
        Failure::new(Reason::ModelNotFound, message)
    }
}

impl Source for Image {
    fn resolve<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<Digest, Failure>> {
        let reference = self.reference.with_tag(tag.clone());
        async move { self.client.resolve(&reference).await.map_err(|error| self.not_found(error)) }
            .boxed()
    }

    fn is_missing<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<bool, Failure>> {
        let reference = self.reference.with_tag(tag.clone());
        async move { self.client.is_missing(&reference).await.map_err(failure) }.boxed()
    }

    fn fetch<'a>(
        &'a self,
        digest: Digest,
        fetch: Fetch<'a>,
    ) -> BoxFuture<'a, Result<Tree, Failure>> {
        self.pull(digest, fetch).boxed()
    }

    fn move_tag<'a>(
        &'a self,
        tag: &'a Tag,
        Pair { live, canary }: Pair,
        may_push: &'a MayPush<'a>,
    ) -> BoxFuture<'a, Result<Digest, Failure>> {
        let version = self.reference.with_digest(canary);
        async move { self.client.move_tag(&version, tag, live, may_push).await.map_err(failure) }
            .boxed()
    }

    fn attach<'a>(
        &'a self,
        digest: Digest,
        artifact: &'a Artifact,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let attached = self.client.attach(&self.reference, digest, artifact);
        async move { attached.await.map(drop).map_err(failure) }.boxed()
    }

    fn attached<'a>(
        &'a self,
        digest: Digest,
        artifact_type: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, Failure>> {
        let attached = self.client.attached(&self.reference, digest, artifact_type, limit);
        async move { Ok(attached.await.map_err(failure)?.documents) }.boxed()
    }
}

fn failure(error: Error) -> Failure {
    error.failure()
}
