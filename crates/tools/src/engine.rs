//! A temporary engine for one command, in a child process.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use outrigger_backend::{Backend as _, Config, ServedModel, ServingConfig, State, TfServing};
use outrigger_core::{Failure, Reason, ServableId};
use tokio::{
    process::{Child, Command},
    time::{Instant, interval, timeout_at},
};

use crate::Error;

/// Interval between status calls to the engine.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The engine program that serves models for one command: tensorflow_model_server, or
/// `outrigger engine`, which accepts the same flags.
#[derive(Debug, Clone)]
pub struct Program {
    /// The binary.
    pub binary: PathBuf,
    /// Arguments before the flags.
    pub arguments: Vec<String>,
}

/// A running engine that serves one model; dropping the value ends it.
#[derive(Debug)]
pub struct Engine {
    child: Child,
    log: PathBuf,
    /// The connection to the engine.
    pub client: TfServing,
}

impl Engine {
    /// Starts `program` with its socket and log in `directory`.
    pub fn start(program: &Program, directory: &Path) -> Result<Self, Error> {
        let starting = |error: io::Error| Error::io(&program.binary.display().to_string(), error);
        let (socket, log) = (directory.join("engine.sock"), directory.join("engine.log"));
        let models = directory.join("models.config");
        fs::write(&models, "model_config_list {}\n").map_err(starting)?;
        let output = fs::File::create(&log).map_err(starting)?;
        let child = Command::new(&program.binary)
            .args(&program.arguments)
            .args(["--port=0", "--rest_api_port=0", "--max_num_load_retries=0"])
            .args(["--num_load_threads=2", "--num_unload_threads=1"])
            .arg(format!("--grpc_socket_path={}", socket.display()))
            .arg(format!("--model_config_file={}", models.display()))
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(starting)?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::Engine(format!("{}: {error}", program.binary.display())))?;
        let client = TfServing::connect(Config::new(format!("unix:{}", socket.display())))
            .map_err(|error| Failure::because(error.reason(), &error))?;
        Ok(Self { child, log, client })
    }

    /// Loads the version `id`, whose directory is under `base_path`, by `deadline`.
    pub async fn load(
        &mut self,
        id: &ServableId,
        base_path: PathBuf,
        deadline: Instant,
    ) -> Result<(), Error> {
        let expired =
            || Failure::new(Reason::Deadline, "the engine did not load the model in time");
        self.wait_until_listening(id, deadline).await?;
        let model = ServedModel { base_path, versions: [id.version].into() };
        let config = ServingConfig { models: [(id.name.clone(), model)].into() };
        // The status decides; the reload's error only explains a failure without a
        // reason.
        let reloaded =
            timeout_at(deadline, self.client.reload(config)).await.map_err(|_| expired())?;
        loop {
            let (state, failure) = self.state(id).await?;
            match (state, failure) {
                (State::Available, _) => return Ok(()),
                (State::End, Some(failure)) => return Err(failure.into()),
                (State::End, None) => break,
                _ if Instant::now() >= deadline => return Err(expired().into()),
                _ => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
        let why =
            reloaded.err().map_or_else(|| "no reason was given".to_owned(), |e| e.to_string());
        Err(Failure::new(Reason::EngineFailed, format!("the engine did not load the model: {why}"))
            .into())
    }

    /// Waits until the engine answers status calls.
    async fn wait_until_listening(
        &mut self,
        id: &ServableId,
        deadline: Instant,
    ) -> Result<(), Error> {
        let mut polls = interval(POLL_INTERVAL);
        loop {
            polls.tick().await;
            if self.child.try_wait().map_err(|error| Error::io("the engine", error))?.is_some() {
                let output = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(Error::Engine(tail(&output)));
            }
            match self.client.status(&id.name).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(Failure::because(error.reason(), &error).into());
                }
                Err(_) => {}
            }
        }
    }

    async fn state(&self, id: &ServableId) -> Result<(State, Option<Failure>), Error> {
        let versions = self.client.status(&id.name).await;
        let versions = versions.map_err(|error| Failure::because(error.reason(), &error))?;
        let ours = versions.into_iter().find(|status| status.version == id.version);
        Ok(ours.map_or((State::Start, None), |status| {
            (status.state, status.error.map(|error| error.failure()))
        }))
    }
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
