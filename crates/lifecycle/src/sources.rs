//! The sources of versions: registries, image layout directories, and directories of numbered
//! versions.

mod directory;
mod image;

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{Digest, Failure, ModelKey, ModelName, Tag, machines::TagKey};
use outrigger_oci::Artifact;
use outrigger_store::Tree;
use outrigger_trace::Parent;
use outrigger_trials::{MayPush, Pair, Registry};

use self::{directory::Numbered, image::Image};
use crate::{metrics, pull::Turn, world::World};

/// A source of the versions of one model: it maps tags to digests, and has the files of each
/// digest.
///
/// The tags of every source are looked up at intervals. A source that notices its changes itself
/// also reports them: [`outrigger_core::machines::Event::Listed`].
pub(crate) trait Source: Send + Sync {
    /// Looks up the digest of a tag.
    fn resolve<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<Digest, Failure>>;

    /// Reports true if it is certain that there is no such tag.
    fn is_missing<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<bool, Failure>>;

    /// Brings the files of a version into the store, under its digest.
    fn fetch<'a>(
        &'a self,
        digest: Digest,
        fetch: Fetch<'a>,
    ) -> BoxFuture<'a, Result<Tree, Failure>>;

    /// As [`Registry::move_tag`].
    fn move_tag<'a>(
        &'a self,
        tag: &'a Tag,
        pair: Pair,
        may_push: &'a MayPush<'a>,
    ) -> BoxFuture<'a, Result<Digest, Failure>>;

    /// As [`Registry::attach`].
    fn attach<'a>(
        &'a self,
        digest: Digest,
        artifact: &'a Artifact,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// As [`Registry::attached`].
    fn attached<'a>(
        &'a self,
        digest: Digest,
        artifact_type: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, Failure>>;
}

/// The circumstances of a fetch.
#[derive(Clone, Copy)]
pub(crate) struct Fetch<'a> {
    pub(crate) world: &'a Arc<World>,
    pub(crate) turn: Turn<'a>,
    /// The parent of the trace spans.
    pub(crate) span: &'a Parent,
}

impl World {
    /// The source of a model's versions.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND` and `IMAGE_NOT_ALLOWED`.
    pub(crate) fn source(&self, model: &ModelName) -> Result<Arc<dyn Source>, Failure> {
        let names = self.names.load();
        if let Some(directory) = names.directory(model) {
            return Ok(Arc::new(Numbered {
                model: model.clone(),
                versions: Arc::clone(directory),
            }));
        }
        let reference = names.image(model)?;
        Ok(Arc::new(Image { client: self.client.clone(), model: model.clone(), reference }))
    }

    /// Asks the source of a model for the digest of a tag.
    pub(crate) async fn resolve_tag(
        &self,
        model: &ModelName,
        tag: &Tag,
    ) -> Result<Digest, Failure> {
        let resolved = self.source(model)?.resolve(tag).await;
        metrics::resolved(&resolved, tag);
        resolved
    }
}

impl Registry for World {
    fn resolve<'a>(&'a self, key: &'a TagKey) -> BoxFuture<'a, Result<Digest, Failure>> {
        self.resolve_tag(&key.name, &key.tag).boxed()
    }

    fn is_missing<'a>(&'a self, key: &'a TagKey) -> BoxFuture<'a, Result<bool, Failure>> {
        async move { self.source(&key.name)?.is_missing(&key.tag).await }.boxed()
    }

    fn move_tag<'a>(
        &'a self,
        key: &'a TagKey,
        pair: Pair,
        may_push: &'a MayPush<'a>,
    ) -> BoxFuture<'a, Result<Digest, Failure>> {
        async move { self.source(&key.name)?.move_tag(&key.tag, pair, may_push).await }.boxed()
    }

    fn attach<'a>(
        &'a self,
        version: &'a ModelKey,
        artifact: &'a Artifact,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        async move { self.source(&version.name)?.attach(version.digest, artifact).await }.boxed()
    }

    fn attached<'a>(
        &'a self,
        version: &'a ModelKey,
        artifact_type: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, Failure>> {
        async move {
            self.source(&version.name)?.attached(version.digest, artifact_type, limit).await
        }
        .boxed()
    }
}
