//! The surroundings of a job: the names of hosts, and the engines that it may start.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;

use crate::{Endpoint, Error, Job, Periods, Resolve, SystemResolver};

/// An engine that has loaded the model of a job, as one of its hosts.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The name in the status and in dead letters.
    pub name: String,
    /// The end of its requests. The engine ends when it is dropped.
    pub endpoint: Arc<dyn Endpoint>,
}

/// Starts the engines for a job whose model is a package.
pub trait StartEngines: fmt::Debug + Send + Sync {
    /// Starts them, and loads the model.
    ///
    /// # Errors
    /// The package is not valid, or an engine does not start. No row was sent.
    fn start<'a>(&'a self, job: &'a Job) -> BoxFuture<'a, Result<Vec<Engine>, Error>>;
}

/// The surroundings of a job besides its settings and its store.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Finds the addresses of hosts.
    pub resolver: Arc<dyn Resolve>,
    /// The times of a worker's periodic work.
    pub periods: Periods,
    /// Starts engines, if this program can.
    pub engines: Option<Arc<dyn StartEngines>>,
}

impl Default for Environment {
    /// The resolver of the system, and no engines.
    fn default() -> Self {
        let (resolver, periods) = (Arc::new(SystemResolver), Periods::default());
        Self { resolver, periods, engines: None }
    }
}

impl Environment {
    /// The engines of a job; none if its model is on hosts.
    ///
    /// # Errors
    /// They cannot be started.
    pub(crate) async fn engines(&self, job: &Job) -> Result<Vec<Engine>, Error> {
        if job.model.package.is_none() {
            return Ok(Vec::new());
        }
        match &self.engines {
            Some(engines) => engines.start(job).await,
            None => Err(Error::usage("model: this program starts no engines for packages")),
        }
    }
}
