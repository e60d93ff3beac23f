//! Has a package served in place of the version before it.

use std::{collections::BTreeMap, future::pending, time::Duration};

use outrigger_core::{Digest, Failure, Reason, Selector};
use outrigger_proto::outrigger::v1::Model;
use tokio::time::{Instant, sleep, timeout_at};

use super::{state::State, watched::Watched};
use crate::{Error, ModelArgument, models::Models, package::pack};

/// The time limit for loading a version.
const LOAD: Duration = Duration::from_secs(600);
/// The time limit for the tag to name a version that is loaded.
const SWITCH: Duration = Duration::from_secs(30);
/// The interval at which the tag is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The result of publishing a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// The tag is served by this version.
    Serves(Digest),
    /// The package is that of the version which is served.
    Unchanged,
}

impl Watched<'_> {
    /// Packs the directory, pushes it, and waits until the control plane serves it. Does not return
    /// if the directory has another state than `state` by the time it is packed.
    pub(super) async fn publish(&self, state: &State) -> Result<Published, Error> {
        fits(state, self.target.max_size)?;
        let packed = pack(&self.directory, BTreeMap::new(), &self.target.frameworks).await;
        if State::of(&self.directory).await != *state {
            return pending().await;
        }
        let image = packed?;
        let digest = image.digest();
        // Also if it is served already: the tag may name a version that was refused.
        let pushed = self.target.client.push(&self.image, &image).await;
        pushed.map_err(|error| error.failure())?;
        drop(image);
        if self.serves == Some(digest) {
            return Ok(Published::Unchanged);
        }
        tracing::info!("{}: loads {digest}", self.name);
        let mut models = Models::connect(&self.target.admin, &self.target.access).await?;
        // The version itself first: its refusal is reported, and the tag would be answered by the
        // version before it.
        models.load(self.version(Selector::Digest(digest)), LOAD).await?;
        models.load(self.version(Selector::Tag(self.target.tag.clone())), LOAD).await?;
        self.switched(&mut models, digest).await?;
        self.delete_others(&mut models, digest).await;
        Ok(Published::Serves(digest))
    }

    fn version(&self, selector: Selector) -> ModelArgument {
        ModelArgument { name: self.name.clone(), version: Some(selector) }
    }

    /// Waits until the tag is served by a version.
    async fn switched(&self, models: &mut Models, digest: Digest) -> Result<(), Error> {
        let deadline = Instant::now() + SWITCH;
        let switched = async {
            loop {
                let model = models.get(self.version(Selector::Digest(digest))).await?;
                let mut tags =
                    model.tags.iter().filter(|tag| *tag.name == *self.target.tag.as_str());
                if tags.any(|tag| tag.serving_digest == digest.to_string()) {
                    return Ok(());
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        let late = || {
            Failure::new(Reason::Deadline, "the version is loaded, and the tag does not name it")
        };
        timeout_at(deadline, switched).await.unwrap_or_else(|_| Err(late().into()))
    }

    /// Deletes the versions that no tag names, from the engine, the store and the layout directory:
    /// there is one for every change of the directory. A failure leaves them where they are.
    async fn delete_others(&self, models: &mut Models, digest: Digest) {
        let deleted = async {
            let model = models.get(self.version(Selector::Digest(digest))).await?;
            for other in others(&model, digest) {
                models.unload(self.version(Selector::Digest(other)), true).await?;
            }
            let pruned = self.target.client.prune(&self.image).await;
            pruned.map_err(|error| Error::from(error.failure()))
        };
        if let Err(error) = deleted.await {
            tracing::warn!("{}: earlier versions cannot be deleted: {error}", self.name);
        }
    }
}

/// Refuses a package of more than `most` bytes.
fn fits(state: &State, most: u64) -> Result<(), Failure> {
    let size = state.size();
    let message = || format!("it has {size} bytes, more than store.max_unpacked ({most})");
    if size > most { Err(Failure::new(Reason::ImageInvalid, message())) } else { Ok(()) }
}

/// The versions of a model other than `digest` that no tag names.
fn others(model: &Model, digest: Digest) -> Vec<Digest> {
    let named = |digest: &Digest| {
        let digest = digest.to_string();
        model.tags.iter().any(|tag| {
            let canary = tag.canary.as_ref().map(|canary| canary.digest.as_str());
            [Some(tag.serving_digest.as_str()), Some(tag.registry_digest.as_str()), canary]
                .contains(&Some(digest.as_str()))
        })
    };
    let versions = model.versions.iter().filter_map(|version| version.digest.parse().ok());
    versions.filter(|other| *other != digest && !named(other)).collect()
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{ModelVersion, Tag, TagCanary};

    use super::*;

    #[tokio::test]
    async fn a_package_that_is_too_large_is_not_copied() {
        let directory = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(directory.path().join("model.txt")).unwrap();
        file.set_len(1 << 40).unwrap();
        let state = State::of(directory.path()).await;
        assert_eq!(fits(&state, 1 << 41), Ok(()));
        let failure = fits(&state, 1 << 40).unwrap_err();
        assert!(failure.message.contains("store.max_unpacked"), "{failure}");
    }

    #[test]
    fn versions_that_a_tag_names_are_kept() {
        let digests: Vec<_> = (0..5_u8).map(|number| Digest::of(&[number])).collect();
        let text = |number: usize| digests[number].to_string();
        let canary = TagCanary { digest: text(2), ..TagCanary::default() };
        let tag = Tag {
            serving_digest: text(0),
            registry_digest: text(1),
            canary: Some(canary),
            ..Tag::default()
        };
        let version = |number| ModelVersion { digest: text(number), ..ModelVersion::default() };
        let versions = (0..5).map(version).collect();
        let model = Model { tags: vec![tag], versions, ..Model::default() };
        assert_eq!(others(&model, digests[3]), [digests[4]]);
    }
}
