//! Loads models into this process, within the budget of memory.

use std::sync::Arc;

use outrigger_budget::{Budget, Charge, Owner};
use outrigger_core::{Digest, Failure, Reason};
use tokio::task::spawn_blocking;

use super::{Load, Model};
use crate::{Framework, PackagedModel, memory_to_read};

/// Loads models of `frameworks` by `load`, and charges their memory to `budget`.
pub(super) struct Loader {
    pub(super) frameworks: Vec<Framework>,
    pub(super) load: Load,
    pub(super) budget: Budget,
}

/// A loaded model.
pub(super) struct Held {
    pub(super) model: Arc<dyn Model>,
    /// The charge for its memory.
    pub(super) _memory: Charge,
}

impl Loader {
    /// Loads the `model` of `version` for `owner`.
    ///
    /// # Errors
    /// IMAGE_INVALID if the account of packages can never hold what reading the model takes,
    /// MEMORY_FULL if the loaded model does not fit into the account of plans, or the failure of the
    /// function that loads.
    pub(super) async fn load(
        &self,
        owner: Owner,
        (version, model): (Digest, PackagedModel),
    ) -> Result<Held, Failure> {
        let Budget { packages, plans, .. } = &self.budget;
        let _reading = packages
            .wait(version, memory_to_read(&self.frameworks, &model.directory))
            .await
            .map_err(|failure| prefixed(failure, "the model cannot be read"))?;
        let load = self.load;
        let loaded = spawn_blocking(move || load(&model)).await;
        let panicked = |_| Err(Failure::new(Reason::Internal, "loading the model panicked"));
        let model = loaded.unwrap_or_else(panicked)?;
        let memory = plans
            .charge(owner, model.memory() as u64)
            .map_err(|failure| prefixed(failure, "the model cannot be held in memory"))?;
        Ok(Held { model, _memory: memory })
    }
}

fn prefixed(failure: Failure, subject: &str) -> Failure {
    failure.map_message(|message| format!("{subject}: {message}"))
}
