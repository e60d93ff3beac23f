//! The engines of a batch job whose model is a package: `outrigger batch run`.

mod host;
mod table;

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, try_join_all};
use outrigger_batch::{Engine, Error as JobError, Job, Package, StartEngines};
use outrigger_core::{Code, ModelName};
use outrigger_features::Plan;
use outrigger_lifecycle::{Gate, Golden, training_profile};
use outrigger_oci::{Client, Progress};
use outrigger_run::Framework;

use self::host::Host;
use crate::{
    Error,
    engine::Program,
    fetch::{Fetched, Source, blocking, fetch},
    in_engine::InEngine,
    validate,
};

/// The least time limit for loading a model.
const LOADING: Duration = Duration::from_secs(300);

/// Starts the engines of jobs. Packages pass the checks of [`validate::validate`] before.
#[derive(Debug)]
pub struct Engines {
    /// The client for registries.
    pub client: Client,
    /// The engine program, unless models run in this process.
    pub program: Program,
    /// The frameworks of models.
    pub frameworks: Vec<Framework>,
    /// Shows how much of an image has been received.
    pub progress: Progress,
}

/// All that an engine of the job needs to load the model, as often as it is started.
#[derive(Debug, Clone)]
struct Launch {
    program: Program,
    name: ModelName,
    fetched: Arc<Fetched>,
    plan: Arc<Plan>,
    timeout: Duration,
}

impl Launch {
    /// Starts an engine that has loaded the model.
    async fn start(&self) -> Result<InEngine, Error> {
        let model = (&self.name, Arc::clone(&self.fetched));
        InEngine::load(&self.program, model, &self.plan, self.timeout).await
    }
}

impl StartEngines for Engines {
    fn start<'a>(&'a self, job: &'a Job) -> BoxFuture<'a, Result<Vec<Engine>, JobError>> {
        Box::pin(async move {
            let Some(package) = &job.model.package else { return Ok(Vec::new()) };
            let timeout = job.timeout.0.max(LOADING);
            let started = self.engines(package, timeout).await;
            started.map_err(|error| refused(&package.source, &error))
        })
    }
}

impl Engines {
    async fn engines(&self, package: &Package, timeout: Duration) -> Result<Vec<Engine>, Error> {
        let source = Source::parse(&package.source)?;
        let fetched = fetch(&self.client, &source, &self.frameworks, &self.progress).await?;
        let (tree, frameworks) = (fetched.tree.clone(), self.frameworks.clone());
        let plan = blocking(move || validate::plan(&tree, &frameworks)).await?;
        training_profile(&fetched.tree, &plan)?;
        let golden = Golden::check(&fetched.tree, &plan)?;
        let fetched = Arc::new(fetched);
        let framework = Arc::clone(&plan.metadata().framework);
        let in_process = (self.program.in_process)(&framework).is_some();
        let count = if in_process { 1 } else { package.instances.get() };
        let start = |number: u32| {
            let name = format!("engine-{number}").parse().expect("a valid name");
            let (fetched, plan) = (Arc::clone(&fetched), Arc::clone(&plan));
            let launch = Launch { program: self.program.clone(), name, fetched, plan, timeout };
            let name = match in_process {
                true => format!("{framework} in this process"),
                false => format!("{framework} engine {number}"),
            };
            started(name, launch, &golden)
        };
        // One task starts all of them: the system ends their processes with its thread.
        try_join_all((1..=count).map(start)).await
    }
}

/// An engine whose model has passed the gate of a server.
async fn started(name: String, launch: Launch, golden: &Golden) -> Result<Engine, Error> {
    let loaded = launch.start().await?;
    let (scorer, timeout) = (&loaded.scorer, launch.timeout);
    Gate { engine: loaded.engine(), scorer, timeout, packages: None }.pass(golden).await?;
    let endpoint = Arc::new(Host::new(&name, loaded, launch));
    Ok(Engine { name, endpoint })
}

/// The error of a job whose engines did not start.
fn refused(source: &str, error: &Error) -> JobError {
    let is_usage = match error {
        Error::Usage(_) => true,
        Error::Failed(failure) => matches!(
            failure.reason.code(),
            Code::FailedPrecondition | Code::NotFound | Code::InvalidArgument
        ),
        _ => false,
    };
    let message = format!("model {source}: {error}");
    if is_usage { JobError::Usage(message) } else { JobError::Failed(message) }
}
