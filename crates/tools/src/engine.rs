//! A temporary engine for one command, in a child process or in this one.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use outrigger_core::{
    Digest, EngineId, Failure, Reason, ServableId, Version, Versions,
    engine::{FromEngine, ToEngine},
};
use outrigger_run::{Clock, Engine, Event, Failed, PackagedModel, Start};
use outrigger_store::Store;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, interval, timeout_at},
};

use crate::Error;

/// The interval at which the process is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The engine program that serves models for one command. It is not started for a model that an
/// engine in this process runs.
#[derive(Debug, Clone)]
pub struct Program {
    /// The binary.
    pub binary: PathBuf,
    /// The arguments before the flags.
    pub arguments: Vec<String>,
    /// The flags of an engine without models that listens on a socket. It may write files to a
    /// directory.
    pub flags: fn(directory: &Path, socket: &Path) -> io::Result<Vec<OsString>>,
    /// Makes the engine that listens at an endpoint and finds its files in a store. Called
    /// in a tokio runtime, which drives its connections.
    pub connect: fn(endpoint: String, store: Store) -> Result<Arc<dyn Engine>, Failure>,
    /// Makes the engine in this process that runs models of a framework, if there is one.
    pub in_process: fn(framework: &str) -> Option<Arc<dyn Engine>>,
    /// The program for models of a framework that this one does not run, if there is one.
    pub other: fn(framework: &str) -> io::Result<Option<Program>>,
    /// The number of times that the golden cases are scored. More than once is for times, not for
    /// scores.
    pub passes: u32,
    /// True if the models are to be served by an engine that batches requests: then their scores
    /// must not depend on padding.
    pub for_batching: bool,
}

impl Program {
    /// The command of an engine without models that listens on `socket`. Its files are written to
    /// `directory`. The process is killed with its `Child`.
    pub(crate) fn command(&self, directory: &Path, socket: &Path) -> io::Result<Command> {
        let mut command = Command::new(&self.binary);
        command
            .args(&self.arguments)
            .args((self.flags)(directory, socket)?)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }
}

/// The flags of tensorflow_model_server, and of `outrigger engine`, which accepts the same ones; for
/// [`Program::flags`].
///
/// # Errors
/// The configuration cannot be written to `directory`.
pub fn tensorflow_flags(directory: &Path, socket: &Path) -> io::Result<Vec<OsString>> {
    let models = directory.join("models.config");
    fs::write(&models, "model_config_list {}\n")?;
    let fixed = [
        "--port=0",
        "--rest_api_port=0",
        "--max_num_load_retries=0",
        "--num_load_threads=2",
        "--num_unload_threads=1",
    ];
    let socket = format!("--grpc_socket_path={}", socket.display());
    let models = format!("--model_config_file={}", models.display());
    Ok(fixed.into_iter().map(OsString::from).chain([socket.into(), models.into()]).collect())
}

/// A running engine; its process ends with the value.
pub struct Running {
    /// The child process, unless the engine runs in this one.
    process: Option<EngineProcess>,
    engine: Arc<dyn Engine>,
    events: mpsc::Receiver<(EngineId, Event)>,
    _tasks: JoinSet<()>,
}

/// Refuses a model that only an engine elsewhere runs.
fn check_framework(engine: &dyn Engine, framework: &str) -> Result<(), Error> {
    if engine.frameworks().iter().any(|known| known.name == framework) {
        return Ok(());
    }
    let message = format!("this command has no engine for models of {framework}: use --no-engine");
    Err(Failure::new(Reason::EngineNotChosen, message).into())
}

impl Running {
    /// Starts the engine for models of `framework`, whose files are in `store`: `program`, or an engine
    /// in this process. The system ends the process of `program` with the calling thread.
    pub fn start(program: &Program, framework: &str, store: &Store) -> Result<Self, Error> {
        let (process, engine) = match (program.in_process)(framework) {
            Some(engine) => (None, engine),
            None => {
                let other = (program.other)(framework);
                let other = other.map_err(|error| Error::Engine(error.to_string()))?;
                let program = other.as_ref().unwrap_or(program);
                let (process, engine) = EngineProcess::start(program, store)?;
                check_framework(&*engine, framework)?;
                (Some(process), engine)
            }
        };
        let (reports, events) = mpsc::channel(16);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&engine).run(Start {
            engine: EngineId::default(),
            clock: Clock::start(),
            versions: Versions::after(Version(1)),
            events: reports,
        }));
        Ok(Self { process, engine, events, _tasks: tasks })
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Waits until the engine ends or loses a version. Returns the reason. Must be called after
    /// [`Self::load`], or nobody takes the engine's reports.
    pub async fn ended(&mut self) -> String {
        let Self { process, events, .. } = self;
        loop {
            let ended = async {
                match process {
                    Some(process) => (process.child.wait().await, process.log()),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                (status, log) = ended => {
                    let status = status.map_or_else(|it| it.to_string(), |it| it.to_string());
                    return format!("its process has ended ({status}): {log}");
                }
                event = events.recv() => match event {
                    Some((_, Event::Version(FromEngine::Lost(_)))) => {
                        return "it has lost the model".to_owned();
                    }
                    Some((_, Event::Version(FromEngine::Failed(_, failure)))) => {
                        return failure.to_string();
                    }
                    Some(_) => {}
                    None => return "its task has ended".to_owned(),
                }
            }
        }
    }

    /// Loads the model of the version `digest` as `id` by `deadline`.
    pub async fn load(
        &mut self,
        id: &ServableId,
        (digest, model): (Digest, PackagedModel),
        deadline: Instant,
    ) -> Result<(), Error> {
        let published = self.engine.publish(id.clone(), digest, model).await;
        published.map_err(|failed| match failed {
            Failed::FilesMissing => Failure::new(Reason::Internal, "the model's files are gone"),
            Failed::Other(failure) => failure,
        })?;
        self.engine.send(ToEngine::Add(id.clone()));
        let mut reachable = Ok(());
        let mut polls = interval(POLL_INTERVAL);
        loop {
            let next = tokio::select! {
                biased;
                next = timeout_at(deadline, self.events.recv()) => next,
                _ = polls.tick() => {
                    self.process.as_mut().map_or(Ok(()), EngineProcess::check)?;
                    continue;
                }
            };
            match next {
                Ok(Some((_, Event::Version(FromEngine::Up(up))))) if up == *id => return Ok(()),
                Ok(Some((_, Event::Version(FromEngine::Failed(_, failure))))) => {
                    return Err(failure.into());
                }
                Ok(Some((_, Event::Condition(condition)))) => {
                    reachable = condition.failure.map_or(Ok(()), Err);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err(Error::Engine("its task ended".to_owned())),
                Err(_) => return Err(reachable.err().unwrap_or_else(expired).into()),
            }
        }
    }
}

/// A child process that runs an engine.
struct EngineProcess {
    child: Child,
    /// The directory of its socket and its log, which ends after the process.
    directory: TempDir,
}

impl EngineProcess {
    /// Starts `program` on the models of `store`.
    fn start(program: &Program, store: &Store) -> Result<(Self, Arc<dyn Engine>), Error> {
        let starting =
            |error: io::Error| Error::Engine(format!("{}: {error}", program.binary.display()));
        let directory = tempfile::tempdir().map_err(starting)?;
        let socket = directory.path().join("engine.sock");
        let child = spawn(program, directory.path(), &socket).map_err(starting)?;
        let engine = (program.connect)(format!("unix:{}", socket.display()), store.clone())?;
        Ok((Self { child, directory }, engine))
    }

    /// The end of the log.
    fn log(&self) -> String {
        tail(&fs::read_to_string(log(self.directory.path())).unwrap_or_default())
    }

    /// Fails with the end of the log when the process has ended.
    fn check(&mut self) -> Result<(), Error> {
        match self.child.try_wait().map_err(|error| Error::io("the engine", error))? {
            None => Ok(()),
            Some(_) => Err(Error::Engine(self.log())),
        }
    }
}

fn expired() -> Failure {
    Failure::new(Reason::Deadline, "the engine did not load the model in time")
}

fn spawn(program: &Program, directory: &Path, socket: &Path) -> io::Result<Child> {
    let output = fs::File::create(log(directory))?;
    let mut command = program.command(directory, socket)?;
    command.stdout(output.try_clone()?).stderr(output);
    tie_to_this_process(&mut command);
    command.spawn()
}

/// The log of an engine whose files are in `directory`.
fn log(directory: &Path) -> PathBuf {
    directory.join("engine.log")
}

/// Has the system kill the process of `command` when the calling thread ends.
pub(crate) fn tie_to_this_process(command: &mut Command) {
    let parent = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() == Some(parent) {
            return Ok(());
        }
        // The parent has ended before the signal was set.
        Err(io::Error::from(io::ErrorKind::NotFound))
    };
    // SAFETY: the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(tie) };
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
