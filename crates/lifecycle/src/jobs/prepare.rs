//! From files to a plan.

use std::sync::Arc;

use outrigger_core::{Digest, Failure, ModelKey, model::Fault};
use outrigger_features::{GoldenCase, Plan};
use outrigger_store::Tree;

use crate::{
    Profiled, read_model, signatures,
    world::{World, blocking, store_failure},
};

/// What is known of a version from its files.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) platform_digest: Digest,
    pub(crate) plan: Arc<Plan>,
    pub(crate) golden: Vec<GoldenCase>,
    pub(crate) profile: Option<Arc<Profiled>>,
}

/// What of a version lies in the store.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) platform_digest: Digest,
    /// Bytes on disk.
    pub(crate) size: u64,
    /// How it wants to be tried as a canary: its label.
    pub(crate) canary: Option<Arc<str>>,
}

impl Kept {
    pub(crate) fn of(tree: &Tree) -> Self {
        Self {
            platform_digest: *tree.platform_digest(),
            size: tree.size().as_u64(),
            canary: tree.labels().get(outrigger_canary::LABEL).map(|label| label.as_str().into()),
        }
    }
}

/// Makes sure that `key` is signed as it has to be, reads its metadata, its
/// model's signature and golden cases, and checks them against each other.
pub(crate) async fn prepare(world: &Arc<World>, key: &ModelKey) -> Result<Arc<Prepared>, Fault> {
    let digest = key.digest;
    let verified = signatures::verify(world, key).await.map_err(Fault::Failed)?;
    signatures::keep(world, digest, verified).await;
    blocking(world, move |world| {
        let tree = world.store.tree(&digest).ok_or(Fault::FilesMissing)?;
        world.store.touch(&digest);
        read(&tree).map(Arc::new).map_err(Fault::Failed)
    })
    .await
}

fn read(tree: &Tree) -> Result<Prepared, Failure> {
    let store = |error| store_failure(&error);
    let (metadata, interface) = read_model(tree)?;
    let plan = Plan::load(metadata, &interface)
        .map_err(|error| Failure::because(error.reason(), &error))?;
    let golden = tree.golden_bytes().map_err(store)?.unwrap_or_default();
    let golden =
        plan.golden_cases(&golden).map_err(|error| Failure::because(error.reason(), &error))?;
    let profile = tree.profile_bytes().map_err(store)?;
    let profile = profile.map(|json| Profiled::read(&json, &plan).map(Arc::new)).transpose()?;
    let platform_digest = *tree.platform_digest();
    Ok(Prepared { platform_digest, plan: Arc::new(plan), golden, profile })
}
