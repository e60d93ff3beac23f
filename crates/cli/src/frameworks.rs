//! The frameworks whose packages the commands read, and the engine that scores them.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use outrigger_core::{EngineId, Failure, Reason};
use outrigger_onnx::ONNX;
use outrigger_run::{Engine, Framework};
use outrigger_server::Kinds;
use outrigger_store::Store;
use outrigger_tfserving::{Client, Config, Settings};
use outrigger_tools::engine::{Program, tensorflow_flags};
use tokio::runtime::Handle;

use crate::exit::Exit;

/// Every framework of the kinds of engines that `serve` has.
pub(crate) static KNOWN: LazyLock<Vec<Framework>> = LazyLock::new(|| Kinds::shipped().frameworks());

/// The given engine, or this binary's own.
pub(crate) fn engine_program(engine: Option<PathBuf>) -> Result<Program, Exit> {
    let (binary, arguments) = match engine {
        Some(binary) => (binary, Vec::new()),
        None => (env::current_exe().map_err(Exit::failed)?, vec!["engine".to_owned()]),
    };
    Ok(Program { arguments, flags: tensorflow_flags, connect, other, ..program(binary) })
}

/// A program without a command.
fn program(binary: PathBuf) -> Program {
    Program {
        binary,
        arguments: Vec::new(),
        flags: |_, _| Ok(Vec::new()),
        connect,
        in_process,
        other: |_| Ok(None),
        passes: 1,
        for_batching: false,
    }
}

/// This binary's own engine for ONNX models, for their framework.
fn other(framework: &str) -> io::Result<Option<Program>> {
    if framework != ONNX.name {
        return Ok(None);
    }
    let arguments = vec!["onnx".to_owned()];
    let binary = env::current_exe()?;
    Ok(Some(Program { arguments, flags: onnx_flags, connect: connect_onnx, ..program(binary) }))
}

fn onnx_flags(_: &Path, socket: &Path) -> io::Result<Vec<OsString>> {
    Ok(vec![format!("--socket={}", socket.display()).into()])
}

fn connect_onnx(endpoint: String, _: Store) -> Result<Arc<dyn Engine>, Failure> {
    let endpoint = endpoint.parse().map_err(|error| Failure::because(Reason::Internal, &error))?;
    let config = outrigger_onnx::Config::new(EngineId::default(), endpoint);
    Ok(Arc::new(outrigger_onnx::Engine::new(config, &[Handle::current()], None)))
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
