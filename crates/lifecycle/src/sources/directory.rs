//! The source of versions in a directory.

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{Describer, Digest, Failure, ModelName, Reason, Tag};
use outrigger_oci::Artifact;
use outrigger_store::Tree;
use outrigger_trials::{MayPush, Pair};

use super::{Fetch, Source};
use crate::{error::store_failure, numbered::Versions, world::blocking};

/// The settings of a version's trial as a canary, as the label of an image states them: a directory
/// has no tag that a promotion could move.
const CANARY: &str = r#"{"mode": "MODE_LOCAL"}"#;

/// The directory of one model's versions.
pub(super) struct Numbered {
    pub(super) model: ModelName,
    pub(super) versions: Arc<Versions>,
}

impl Numbered {
    async fn look_up(&self, tag: &Tag) -> Result<Digest, Failure> {
        let found = self.versions.look_up(tag).await;
        found.map_err(|failure| failure.map_message(|why| format!("model {}: {why}", self.model)))
    }

    async fn copy(&self, digest: Digest, fetch: Fetch<'_>) -> Result<Tree, Failure> {
        let listing = self.versions.listing().await;
        let mut versions = listing.selected.values();
        let Some(version) = versions.find(|version| version.content == Ok(digest)) else {
            let message = format!("model {}: no version has the content {digest}", self.model);
            return Err(Failure::new(Reason::DigestNotFound, message));
        };
        let (name, path) = (version.name.clone(), self.versions.directory.path.clone());
        let labels = [(outrigger_canary::LABEL.to_owned(), CANARY.to_owned())].into();
        let listed = blocking(fetch.world, move |world| {
            let files = world.store.directory(&path).files(&name);
            files.map(|files| (world.store.describes(&files), files))
        });
        let (describes, files) = listed.await.map_err(|error| store_failure(&error))?;
        let packages = &fetch.world.config.budget.packages;
        let _memory = match describes {
            true => Some(packages.wait(digest, Describer::MEMORY).await?),
            false => None,
        };
        let taken = blocking(fetch.world, move |world| {
            let in_use = |digest: &Digest| world.uses(digest);
            world.store.take(&files, digest, labels, &in_use)
        });
        taken.await.map_err(|error| store_failure(&error))
    }
}

impl Source for Numbered {
    fn resolve<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<Digest, Failure>> {
        self.look_up(tag).boxed()
    }

    fn is_missing<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<bool, Failure>> {
        let is_missing = |found: Result<Digest, Failure>| match found {
            Ok(_) => Ok(false),
            Err(failure) if failure.reason == Reason::TagNotFound => Ok(true),
            Err(failure) => Err(failure),
        };
        async move { is_missing(self.look_up(tag).await) }.boxed()
    }

    fn fetch<'a>(
        &'a self,
        digest: Digest,
        fetch: Fetch<'a>,
    ) -> BoxFuture<'a, Result<Tree, Failure>> {
        self.copy(digest, fetch).boxed()
    }

    /// Fails: the configuration says which version a label names.
    fn move_tag<'a>(
        &'a self,
        tag: &'a Tag,
        _pair: Pair,
        _may_push: &'a MayPush<'a>,
    ) -> BoxFuture<'a, Result<Digest, Failure>> {
        let message = format!(
            "model {}: the tag {tag} of a directory is not moved; models[].labels names its version",
            self.model
        );
        async { Err(Failure::new(Reason::RegistryDenied, message)) }.boxed()
    }

    /// Does nothing: a directory has no place for documents.
    fn attach<'a>(
        &'a self,
        _digest: Digest,
        _artifact: &'a Artifact,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        async { Ok(()) }.boxed()
    }

    fn attached<'a>(
        &'a self,
        _digest: Digest,
        _artifact_type: &'a str,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, Failure>> {
        async { Ok(Vec::new()) }.boxed()
    }
}
