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
    _files: Arc<Fetched>,
}

/// The name of a model that is the only one of its store.
pub(crate) fn only() -> ModelName {
    "validated".parse().expect("a valid name")
}

impl InEngine {
    /// Starts an engine and loads the model of a package within `timeout`. Engines of one package
    /// have models of different names: their files are in one store.
    pub(crate) async fn load(
        program: &Program,
        (name, fetched): (&ModelName, Arc<Fetched>),
        plan: &Arc<Plan>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let id = ServableId { name: ServableName::of(name), version: Version(1) };
        let framework = &plan.metadata().framework;
        let mut running = Running::start(program, framework, &fetched.store)?;
        let uplift = plan.metadata().uplift.clone();
        let is_double = plan.metadata().is_double();
        let model = PackagedModel { directory: fetched.tree.model_dir(), uplift, is_double };
        running.load(&id, (*fetched.tree.digest(), model), Instant::now() + timeout).await?;
        let scorer = Scorer::bind(running.engine(), id, Arc::clone(plan), SharedLimits::default());
        Ok(Self { scorer, running, _files: fetched })
    }

    /// Waits until the engine ends. Returns the reason.
    pub(crate) async fn ended(&mut self) -> String {
        self.running.ended().await
    }

    /// The engine's remark about the files of the model, if it has one.
    pub(crate) fn remark(&self) -> Option<String> {
        self.engine().remark(&self.scorer.id)
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &dyn Engine {
        self.running.engine()
    }
}
