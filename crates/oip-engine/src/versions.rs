//! The published versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use outrigger_core::{Digest, Failure, ServableId};
use outrigger_oip_client::ModelRef;
use outrigger_run::Adopted;

use crate::{
    framework::{MODELS, Package, Remote, invalid},
    repository::{Repository, published},
    requirements,
};

/// A published version.
#[derive(Debug)]
pub(crate) struct Version {
    digest: Digest,
    /// The model that is run.
    pub(crate) remote: Remote,
    /// The names of the version's models on the servers, in the order in which they are loaded.
    pub(crate) models: Vec<Arc<str>>,
    /// The content of metadata.json.
    pub(crate) package: Package,
}

/// The published versions, and the repository that they are published to, if there is one. Most
/// operations block.
#[derive(Debug)]
pub(crate) struct Versions {
    repository: Option<Repository>,
    known: Mutex<BTreeMap<ServableId, Arc<Version>>>,
}

impl Versions {
    pub(crate) fn new(repository: Option<Repository>) -> Self {
        Self { repository, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServableId, Arc<Version>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &ServableId) -> Option<Arc<Version>> {
        self.lock().get(id).cloned()
    }

    /// Publishes the package in `directory` as the version `id`.
    pub(crate) fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        directory: &Path,
    ) -> Result<(), Failure> {
        let _changing = self.repository.as_ref().map(Repository::lock);
        let package = Package::read(directory)?;
        if let Some(remark) = requirements::remark(directory) {
            tracing::warn!(servable = %id, model.digest = %digest, "{remark}");
        }
        if let (Some(repository), false) = (&self.repository, package.carried.is_empty()) {
            repository.publish(&directory.join(MODELS), &package.carried, digest)?;
        }
        let version = self.version(package, digest)?;
        self.lock().insert(id, Arc::new(version));
        Ok(())
    }

    fn version(&self, package: Package, digest: Digest) -> Result<Version, Failure> {
        let remote = package.remote.clone();
        if package.carried.is_empty() {
            let models = vec![Arc::clone(&remote.model)];
            return Ok(Version { digest, remote, models, package });
        }
        if self.repository.is_none() {
            let message = "the package carries models in oip, and its engine has no `repository`";
            return Err(invalid(message.to_owned()));
        }
        let models = package.carried.iter().map(|name| published(name, digest)).collect();
        let remote = Remote { model: published(&remote.model, digest), ..remote };
        Ok(Version { digest, remote, models, package })
    }

    /// Takes over the versions of which the models are in the repository, and removes all others
    /// from it. Returns the former, and the names of the latter's models.
    pub(crate) fn adopt(
        &self,
        loaded: Vec<Adopted>,
    ) -> Result<(BTreeSet<ServableId>, Vec<Arc<str>>), Failure> {
        let Some(repository) = &self.repository else { return Ok(Default::default()) };
        let _changing = repository.lock();
        let mut known = self.lock();
        for Adopted { id, digest, model } in loaded {
            // A package that cannot be read is prepared again, which reports the reason.
            let Ok(package) = Package::read(&model) else { continue };
            let is_there = !package.carried.is_empty() && repository.has(&package.carried, digest);
            if is_there && let Ok(version) = self.version(package, digest) {
                known.insert(id, Arc::new(version));
            }
        }
        let removed = repository.keep(&known.values().map(|version| version.digest).collect())?;
        Ok((known.keys().cloned().collect(), removed))
    }

    /// Removes a version, and its models from the repository unless another version has the same.
    pub(crate) fn unpublish(&self, id: &ServableId) -> Result<(), Failure> {
        self.remove_if(|other, _| other == id)
    }

    /// Removes all versions of an image.
    pub(crate) fn unpublish_image(&self, digest: Digest) -> Result<(), Failure> {
        self.remove_if(|_, of| of == digest)
    }

    fn remove_if(&self, is_meant: impl Fn(&ServableId, Digest) -> bool) -> Result<(), Failure> {
        let _changing = self.repository.as_ref().map(Repository::lock);
        let mut known = self.lock();
        let removed = known.extract_if(.., |id, version| is_meant(id, version.digest));
        let removed: BTreeSet<_> = removed.map(|(_, version)| version.digest).collect();
        let kept: BTreeSet<_> = known.values().map(|version| version.digest).collect();
        drop(known);
        let Some(repository) = &self.repository else { return Ok(()) };
        removed.difference(&kept).try_for_each(|digest| repository.remove(*digest))
    }
}

impl Remote {
    pub(crate) fn reference(&self) -> ModelRef<'_> {
        ModelRef { name: &self.model, version: self.version.as_deref() }
    }
}
