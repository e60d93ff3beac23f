//! One loaded model.

use std::{path::Path, sync::Arc, time::Instant};

use ort::{
    ErrorCode,
    session::{OutputSelector, RunOptions, Session},
};
use outrigger_core::{Interface, Tensor};
use outrigger_oip::message::{is_of_memory, is_of_onnx_input};
use outrigger_onnx::{FILE, read};
use outrigger_run::Pace;
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::{block_in_place, spawn_blocking},
};

use crate::value;

/// The failure of a load or of a run. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The file is refused, or the values of the inputs: another attempt would end the same way.
    #[error("{0}")]
    Invalid(String),
    /// ONNX Runtime failed.
    #[error("{0}")]
    Runtime(String),
}

impl ModelError {
    /// The failure of a thread.
    pub(crate) fn panicked() -> Self {
        Self::Runtime("a task ended unexpectedly".to_owned())
    }
}

/// The failure of a run. A node that fails does so for the values of its inputs: the version has
/// passed a first request.
impl<R> From<ort::Error<R>> for ModelError {
    fn from(error: ort::Error<R>) -> Self {
        let message = error.to_string();
        let is_invalid = error.code() == ErrorCode::InvalidArgument && !is_of_memory(&message);
        match is_invalid || is_of_onnx_input(&message) {
            true => Self::Invalid(message),
            false => Self::Runtime(message),
        }
    }
}

/// The failure of a load. ONNX Runtime reports most faults of a file under its general code, as those
/// of the machine, which name a lack of memory or an error of the system.
fn of_load<R>(error: ort::Error<R>) -> ModelError {
    let message = error.to_string();
    let is_of_machine = is_of_memory(&message) || message.contains("system error number");
    match error.code() {
        ErrorCode::NoSuchFile | ErrorCode::ModelLoaded | ErrorCode::ExecutionProviderFailure => {
            ModelError::Runtime(message)
        }
        _ if is_of_machine => ModelError::Runtime(message),
        _ => ModelError::Invalid(message),
    }
}

/// The turn of a call, in which no other call of the model runs.
pub(crate) type Turn = OwnedMutexGuard<Session>;

/// A model in memory.
#[derive(Debug)]
pub struct Model {
    /// ONNX Runtime runs one call of a session at a time, on the threads that all sessions share.
    /// Further calls wait in order, and hold no thread meanwhile.
    session: Arc<Mutex<Session>>,
    interface: Interface,
    pace: Pace,
}

impl Model {
    /// Checks the model in `directory` and loads it. Blocks.
    ///
    /// # Errors
    /// The file is refused ([`read`]), or ONNX Runtime cannot load it.
    pub fn load(directory: &Path) -> Result<Self, ModelError> {
        let interface = read(directory).map_err(|error| ModelError::Invalid(error.to_string()))?;
        let session =
            Session::builder()?.commit_from_file(directory.join(FILE)).map_err(of_load)?;
        Ok(Self { session: Arc::new(Mutex::new(session)), interface, pace: Pace::default() })
    }

    /// The inputs and outputs.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Waits for the turn of a call.
    pub async fn turn(&self) -> Turn {
        Arc::clone(&self.session).lock_owned().await
    }

    /// Runs the model once. Returns the outputs called `wanted`, in that order, or all.
    ///
    /// # Errors
    /// [`ModelError`].
    pub async fn run(
        self: Arc<Self>,
        mut session: Turn,
        inputs: Vec<Tensor>,
        wanted: Vec<Arc<str>>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let unknown = inputs.iter().find(|input| self.interface.input(&input.name).is_none());
        if let Some(input) = unknown {
            return Err(ModelError::Invalid(format!("the model has no input {}", input.name)));
        }
        let all = || self.interface.outputs.iter().map(|output| Arc::clone(&output.name)).collect();
        let wanted = if wanted.is_empty() { all() } else { wanted };
        if let Some(name) = wanted.iter().find(|name| self.interface.output(name).is_none()) {
            return Err(ModelError::Invalid(format!("the model has no output {name}")));
        }
        let bytes = inputs.iter().map(Tensor::size).sum();
        if self.pace.is_short(bytes) {
            // Another thread serves this one's connections meanwhile: a run may take long all the same.
            return block_in_place(|| self.timed(&mut session, inputs, &wanted, bytes));
        }
        let run = spawn_blocking(move || self.timed(&mut session, inputs, &wanted, bytes));
        run.await.unwrap_or_else(|_| Err(ModelError::panicked()))
    }

    /// Runs the model once with inputs of `bytes` bytes, and records the time that it takes.
    fn timed(
        &self,
        session: &mut Session,
        inputs: Vec<Tensor>,
        wanted: &[Arc<str>],
        bytes: usize,
    ) -> Result<Vec<Tensor>, ModelError> {
        let start = Instant::now();
        let outputs = run(session, inputs, wanted);
        self.pace.record(bytes, start.elapsed());
        outputs
    }
}

fn run(
    session: &mut Session,
    inputs: Vec<Tensor>,
    wanted: &[Arc<str>],
) -> Result<Vec<Tensor>, ModelError> {
    let input = |input: Tensor| Ok((input.name.to_string(), value::input(input)?));
    let inputs = inputs.into_iter().map(input).collect::<Result<Vec<_>, ModelError>>()?;
    let selected = wanted.iter().fold(OutputSelector::no_default(), |it, name| it.with(&**name));
    let options = RunOptions::new()?.with_outputs(selected);
    let outputs = session.run_with_options(inputs, &options)?;
    let output = |name: &Arc<str>| match outputs.get(&**name) {
        Some(found) => value::output(name, found),
        None => Err(ModelError::Runtime(format!("there is no output {name}"))),
    };
    wanted.iter().map(output).collect()
}
