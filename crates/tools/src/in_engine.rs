//! A package's model in a temporary engine.

use std::{sync::Arc, time::Duration};

use outrigger_core::{ModelName, ServableId, ServableName, Version};
use outrigger_features::Plan;
use outrigger_run::{Engine, PackagedModel};
use outrigger_score::{Scorer, SharedLimits};
use tokio::time::Instant;

use crate::{
    Error,
    engine::{Program, Running},
    fetch::Fetched,
};

/// A model in an engine, which ends with the value.
pub(crate) struct InEngine {
    pub(crate) scorer: Scorer,
    running: Running,
    _files: Fetched,
}

impl InEngine {
    /// Starts an engine and loads the model of a package within `timeout`.
    pub(crate) async fn load(
        program: &Program,
        fetched: Fetched,
        plan: &Arc<Plan>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let name: ModelName = "validated".parse().expect("a valid name");
        let id = ServableId { name: ServableName::of(&name), version: Version(1) };
        let framework = &plan.metadata().framework;
        let mut running = Running::start(program, framework, &fetched.store)?;
        let uplift = plan.metadata().uplift.clone();
        let model = PackagedModel { directory: fetched.tree.model_dir(), uplift };
        running.load(&id, (*fetched.tree.digest(), model), Instant::now() + timeout).await?;
        let scorer = Scorer::bind(running.engine(), id, Arc::clone(plan), SharedLimits::default());
        Ok(Self { scorer, running, _files: fetched })
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &dyn Engine {
        self.running.engine()
    }
}
