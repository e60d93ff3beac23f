//! Makes the engines of a configuration.

use outrigger_budget::Budget;
use outrigger_lifecycle::Engines;
use outrigger_store::Store;
use outrigger_trace::Tracer;

use super::{remote, tfserving, trees};
use crate::{
    Error,
    config::{Config, Invalid, Kinds, kinds::Context},
    runtimes::Runtimes,
};

impl Kinds {
    /// The kinds of engines that the program is shipped with.
    pub fn shipped() -> Self {
        Self::default().with(tfserving::kind()).with(trees::kind()).with(remote::kind())
    }
}

/// The engines by name, with their files in `store`.
pub(super) fn engines(
    config: &Config,
    kinds: &Kinds,
    runtimes: &Runtimes,
    store: &Store,
    (budget, tracer): (&Budget, &Tracer),
) -> Result<Engines, Error> {
    let serving: Vec<_> = runtimes.serving.seats().runtimes().cloned().collect();
    let server = &config.server;
    // Allows for names, shapes and the messages around the tensors.
    let envelope = 1 << 20;
    let max_message = server.max_tensors.max(server.max_message).bytes().saturating_add(envelope);
    let mut engines = Engines::new();
    for (engine, make) in kinds.engines(config) {
        let context =
            Context { engine: &engine, store, serving: &serving, budget, tracer, max_message };
        let made = make.map_err(Invalid)?(&context);
        let failed = |source| Error::Engine { engine: engine.clone(), source };
        engines.insert(engine.clone(), made.map_err(failed)?);
    }
    store.remove_other_servings()?;
    Ok(engines)
}
