//! The job that prepares a version: from its files to a plan.

use std::{fmt, sync::Arc};

use bytesize::ByteSize;
use outrigger_budget::{Charge, Owner};
use outrigger_core::{
    Digest, EngineId, Failure, ModelKey, ModelName, ServableId, ServableName, model::Fault,
};
use outrigger_features::{MAX_GOLDEN_CASE, Plan};
use outrigger_run::{Engine, PackagedModel};
use outrigger_score::{Flight, Scorer, SharedLimits};
use outrigger_store::Tree;
use outrigger_trials::Profiled;

use crate::{
    package::{Golden, ModelFiles, parsed, training_profile},
    signatures,
    world::{World, blocking},
};

/// A version's data read from its files.
pub(crate) struct Prepared {
    /// The engine that runs it, with the engine's name.
    pub(crate) engine: (EngineId, Arc<dyn Engine>),
    /// The model's directory in the store.
    pub(crate) model: PackagedModel,
    pub(crate) platform_digest: Digest,
    plan: Arc<Plan>,
    limits: SharedLimits,
    flight: Arc<Flight>,
    pub(crate) golden: Golden,
    pub(crate) profile: Option<Arc<Profiled>>,
    /// The charge for the plan and the profile.
    pub(crate) memory: Arc<Charge>,
}

/// Facts about a version's files in the store.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) platform_digest: Digest,
    /// The size on disk in bytes.
    pub(crate) size: u64,
    /// The settings for its trial as a canary: the image's label.
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

/// Verifies that `key`'s image is signed as required, reads its metadata, its model's interface and
/// golden cases, and checks them against each other.
pub(crate) async fn prepare(world: &Arc<World>, key: &ModelKey) -> Result<Arc<Prepared>, Fault> {
    let (digest, name) = (key.digest, key.name.clone());
    let verified = signatures::verify(world, key).await.map_err(Fault::Failed)?;
    signatures::keep(world, digest, verified).await;
    let tree = blocking(world, move |world| world.store.tree(&digest)).await;
    let tree = tree.ok_or(Fault::FilesMissing)?;
    let _reading = room(world, &tree).await.map_err(Fault::Failed)?;
    let memory = held(world, &tree, &name).map_err(Fault::Failed)?;
    blocking(world, move |world| {
        world.store.touch(&digest);
        let names = world.names.load();
        let named = names.engine(&name);
        read(&tree, world, (&name, named), memory).map(Arc::new).map_err(Fault::Failed)
    })
    .await
}

/// Charges the memory that a version's plan and profile take as long as it is loaded.
fn held(world: &World, tree: &Tree, name: &ModelName) -> Result<Charge, Failure> {
    let memory = Plan::most_memory(tree.metadata_size() + tree.profile_size());
    // The engine charges a model in this process to the same owner.
    let owner = Owner::of(&ServableName::of(name));
    let held = world.config.budget.plans.charge(owner, memory);
    held.map_err(|failure| {
        failure.map_message(|message| {
            let metadata = ByteSize(tree.metadata_size());
            format!(
                "the version cannot be held in memory: its metadata.json has {metadata}: {message}"
            )
        })
    })
}

/// Waits until there is memory to read a package: for its largest part, and for the interface of
/// its model.
async fn room(world: &World, tree: &Tree) -> Result<Charge, Failure> {
    let largest = tree.largest_part(MAX_GOLDEN_CASE as u64);
    let interface = world.engines.memory_to_read(&tree.model_dir());
    let room = world.config.budget.packages.wait(*tree.digest(), parsed(largest) + interface).await;
    room.map_err(|failure| {
        failure.map_message(|message| {
            let (largest, interface) = (ByteSize(largest), ByteSize(interface));
            format!(
                "the largest part to be read has {largest}, and the model's file takes {interface}: {message}"
            )
        })
    })
}

fn read(
    tree: &Tree,
    world: &World,
    (name, named): (&ModelName, Option<&EngineId>),
    memory: Charge,
) -> Result<Prepared, Failure> {
    let (engines, mut chosen) = (&world.engines, None);
    let files = ModelFiles::read(tree, |framework| {
        let (engine, framework) = engines.choose(framework, named)?;
        chosen = engines.get(&engine).map(|it| (engine, Arc::clone(it)));
        Ok(framework)
    })?;
    let model = files.model.clone();
    let plan = files.plan()?;
    let needed = plan.memory(tree.metadata_size() + tree.profile_size());
    memory.shrink(memory.bytes().saturating_sub(needed));
    let engine = chosen.expect("an engine was chosen to read the files");
    let key = ModelKey { name: name.clone(), digest: *tree.digest() };
    Ok(Prepared {
        flight: world.flights.of(&engine.0, &key),
        engine,
        model,
        platform_digest: *tree.platform_digest(),
        golden: Golden::check(tree, &plan)?,
        profile: training_profile(tree, &plan)?,
        plan,
        memory: Arc::new(memory),
        limits: Arc::clone(&world.config.limits),
    })
}

impl Prepared {
    /// The version as its engine serves it under the name `id`.
    pub(crate) fn scorer(&self, id: ServableId) -> Scorer {
        let (plan, limits) = (Arc::clone(&self.plan), Arc::clone(&self.limits));
        let scorer = Scorer::bind(&*self.engine.1, id, plan, limits);
        Scorer { flight: Arc::clone(&self.flight), ..scorer }
    }

    /// The version for its gate, whose runs never wait.
    pub(crate) fn unhindered(&self, id: ServableId) -> Scorer {
        Scorer { flight: Arc::new(self.flight.unhindered()), ..self.scorer(id) }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (engine, _) = &self.engine;
        f.debug_struct("Prepared")
            .field("engine", engine)
            .field("model", &self.model.directory)
            .finish()
    }
}
