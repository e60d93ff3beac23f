//! The engines by name, and the choice of the engine for a model.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use outrigger_core::{EngineId, Failure, Reason};
use outrigger_run::{Engine, Framework, memory_to_read};

/// The engines by name.
pub type ByName = BTreeMap<EngineId, Arc<dyn Engine>>;

/// All engines of this process.
#[derive(Clone, Default)]
pub(crate) struct Engines(ByName);

impl Engines {
    pub(crate) fn new(engines: ByName) -> Self {
        Self(engines)
    }

    /// The engine of that name.
    pub(crate) fn get(&self, engine: &EngineId) -> Option<&Arc<dyn Engine>> {
        self.0.get(engine)
    }

    /// The engines and their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&EngineId, &Arc<dyn Engine>)> {
        self.0.iter()
    }

    /// The most memory that reading the model in `directory` takes, in bytes. Blocks.
    pub(crate) fn memory_to_read(&self, directory: &Path) -> u64 {
        memory_to_read(self.0.values().flat_map(|engine| engine.frameworks()), directory)
    }

    /// Chooses the engine that runs a model of `framework`, and the reader of that
    /// framework's files: the engine named in the configuration, or else the only one that
    /// accepts the framework.
    ///
    /// # Errors
    /// ENGINE_NOT_CHOSEN: the named engine does not exist or does not accept the framework, or
    /// none or several accept it.
    pub(crate) fn choose(
        &self,
        framework: &str,
        named: Option<&EngineId>,
    ) -> Result<(EngineId, Framework), Failure> {
        let refused = |message: String| Failure::new(Reason::EngineNotChosen, message);
        if let Some(named) = named {
            let engine = self.get(named).ok_or_else(|| {
                refused(format!("models[].engine is {named}, and there is no such engine"))
            })?;
            let found = accepted(engine, framework).ok_or_else(|| {
                let own = engine.frameworks().iter().map(|it| it.name).collect::<Vec<_>>();
                let own = own.join(", ");
                refused(format!("engine {named} runs {own}, and the model is of {framework}"))
            })?;
            return Ok((named.clone(), found));
        }
        let accepting: Vec<_> = (self.0.iter())
            .filter_map(|(id, engine)| Some((id, accepted(engine, framework)?)))
            .collect();
        match &accepting[..] {
            [(id, framework)] => Ok(((*id).clone(), *framework)),
            [] => Err(refused(format!(
                "no engine runs models of {framework}; there are: {}",
                self.described()
            ))),
            several => {
                let names: Vec<_> = several.iter().map(|(id, _)| id.as_str()).collect();
                let names = names.join(", ");
                Err(refused(format!(
                    "engines {names} run models of {framework}: name one in models[].engine"
                )))
            }
        }
    }

    /// Adds the list of engines to the failure of a package whose framework no engine runs.
    pub(crate) fn listed(&self, failure: Failure) -> Failure {
        if failure.reason != Reason::EngineNotChosen {
            return failure;
        }
        failure.map_message(|message| format!("{message}; there are: {}", self.described()))
    }

    /// Lists the engines and their frameworks, for people.
    fn described(&self) -> String {
        let described = |(id, engine): (&EngineId, &Arc<dyn Engine>)| {
            let names: BTreeSet<_> = engine.frameworks().iter().map(|it| it.name).collect();
            format!("{id} ({})", names.into_iter().collect::<Vec<_>>().join(", "))
        };
        self.0.iter().map(described).collect::<Vec<_>>().join(", ")
    }
}

fn accepted(engine: &Arc<dyn Engine>, framework: &str) -> Option<Framework> {
    engine.frameworks().iter().find(|it| it.name == framework).copied()
}
