//! The frameworks whose packages the commands read, and the engine that scores them.

use std::{
    env,
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use outrigger_core::{EngineId, Failure};
use outrigger_run::{Engine, Framework};
use outrigger_server::Kinds;
use outrigger_store::Store;
use outrigger_tfserving::{Client, Config, Settings};
use outrigger_tools::engine::Program;

use crate::exit::Exit;

/// Every framework of the kinds of engines that `serve` has.
pub(crate) static KNOWN: LazyLock<Vec<Framework>> = LazyLock::new(|| Kinds::shipped().frameworks());

/// The given engine, or this binary's own.
pub(crate) fn engine_program(engine: Option<PathBuf>) -> Result<Program, Exit> {
    let (binary, arguments) = match engine {
        Some(binary) => (binary, Vec::new()),
        None => (env::current_exe().map_err(Exit::failed)?, vec!["engine".to_owned()]),
    };
    Ok(Program { binary, arguments, connect, in_process, passes: 1, for_batching: false })
}

/// The engine in this process that runs models of `framework`, if there is one.
fn in_process(framework: &str) -> Option<Arc<dyn Engine>> {
    Kinds::shipped().in_process(framework)
}

/// The engine that listens at `endpoint`, with its files in `store`.
fn connect(endpoint: String, store: Store) -> Result<Arc<dyn Engine>, Failure> {
    let client = Client::connect(Config::new(endpoint))
        .map_err(|error| Failure::because(error.reason(), &error))?;
    let serving = store
        .serving(&EngineId::default(), None)
        .map_err(|error| Failure::because(error.reason(), &error))?;
    Ok(Arc::new(outrigger_tfserving::Engine::new(client, serving, Settings::default())))
}
