//! The client of TensorFlow Serving.

mod control;
mod predict;
mod status;

use std::{sync::Arc, time::Duration};

use outrigger_core::{Interface, ServableId, ServableName, Tensor};
use outrigger_rpc::{Endpoint, HttpService, InvalidEndpoint, Settings};
use tokio::{runtime::Handle, time::Instant};

use self::{control::Control, predict::Predictor};
use crate::{
    Call, Error, ReloadError, ServingConfig, VersionStatus,
    metrics::{Connections, Metrics},
};

/// How to reach an engine, and how much to ask of it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `unix:/path`, `host:port` or `http://host:port`; see [`Endpoint`].
    pub endpoint: String,
    /// HTTP/2 connections for predictions, one at least for each runtime that
    /// makes them; control calls have one more. Several, because a server reads
    /// each on one thread.
    pub connections: usize,
    /// Predictions in flight; others wait, and have failed of overload if they still
    /// do at their deadline.
    pub max_in_flight: usize,
    /// Bytes a message may have, either way.
    pub max_message: usize,
    /// Time one attempt to connect may take.
    pub connect_timeout: Duration,
    /// For how long after losing the engine calls wait for it to come back;
    /// after that they fail at once until it does.
    pub reconnect_window: Duration,
    /// Deadline of a status call.
    pub status_timeout: Duration,
    /// Deadline of a reload. An engine answers a healthy one within two polls
    /// of its file system, seconds as a rule.
    pub reload_timeout: Duration,
}

impl Config {
    /// The defaults, for an engine at `endpoint`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            connections: 2,
            max_in_flight: 256,
            max_message: 64 << 20,
            connect_timeout: Duration::from_secs(1),
            reconnect_window: Duration::from_millis(250),
            status_timeout: Duration::from_secs(2),
            reload_timeout: Duration::from_secs(30),
        }
    }

    /// Settings of one connection.
    fn settings(&self) -> Settings {
        Settings {
            connect_timeout: self.connect_timeout,
            reconnect_window: self.reconnect_window,
            ..Settings::default()
        }
    }

    fn validate(&self) -> Result<Endpoint, Error> {
        let endpoint = self.endpoint.parse();
        let endpoint =
            endpoint.map_err(|error: InvalidEndpoint| Error::Config(error.to_string()))?;
        let positive = [
            ("connections", self.connections),
            ("max_in_flight", self.max_in_flight),
            ("max_message", self.max_message),
        ];
        match positive.into_iter().find(|&(_, value)| value == 0) {
            Some((key, _)) => Err(Error::Config(format!("{key} must be at least 1"))),
            None => Ok(endpoint),
        }
    }
}

/// A TensorFlow Serving, or anything that speaks its gRPC interface.
///
/// Dropping it closes its connections.
#[derive(Debug)]
pub struct Client {
    predictor: Predictor,
    control: Control,
    metrics: Metrics,
}

impl Client {
    /// A client of the engine at `config.endpoint`, which need not be up:
    /// connections are made with the first call, and again whenever they break.
    ///
    /// They are driven by the runtime this is called in; it must outlive the
    /// client. What is counted goes to the recorder that is installed by then.
    ///
    /// # Errors
    /// [`Error::Config`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn connect(config: Config) -> Result<Self, Error> {
        Self::connect_on(config, &[Handle::current()])
    }

    /// [`Self::connect`] with the connections for predictions spread over
    /// `runtimes`. A prediction made on one of them goes out on a connection of
    /// that one. Control calls have theirs on the first.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn connect_on(config: Config, runtimes: &[Handle]) -> Result<Self, Error> {
        let endpoint = config.validate()?;
        let (first, _) = runtimes
            .split_at_checked(1)
            .ok_or_else(|| Error::Config("there is no runtime for the connections".to_owned()))?;
        // Predictions and control calls share nothing: no number of the former
        // can hold up the latter.
        let observer = Arc::new(Connections::to(&endpoint));
        let control =
            HttpService::new(&endpoint, &config.settings(), first, Arc::clone(&observer) as _);
        Ok(Self {
            predictor: Predictor::new(&endpoint, &config, runtimes, observer),
            control: Control::new(control, &config),
            metrics: Metrics::new(),
        })
    }
}

/// # Guarantees
/// Every call ends by its deadline (`status` and `reload`: by the configured one), also
/// when the engine hangs. Control calls (`signature`, `status`, `reload`) do not wait for
/// predictions.
///
/// # Assumptions
/// One caller reloads, and never again while a reload that timed out may still be at work
/// in the engine.
impl Client {
    /// Runs a model once. Returns the outputs that the call names, in that order; all of
    /// the signature's, in any order, when it names none.
    pub async fn predict(&self, call: Call) -> Result<Vec<Tensor>, Error> {
        let observed = self.metrics.predict.start();
        observed.end(self.predictor.run(call).await, Error::outcome)
    }

    /// The interface of the signature of that name, as the loaded model has it.
    pub async fn signature(
        &self,
        servable: &ServableId,
        signature: &str,
        deadline: Instant,
    ) -> Result<Interface, Error> {
        let observed = self.metrics.signature.start();
        let result = self.control.signature(servable, signature, deadline).await;
        observed.end(result, Error::outcome)
    }

    /// Every version the engine has ever seen under `name`, also those that ended, highest
    /// first; empty when it does not know the name.
    pub async fn status(&self, name: &ServableName) -> Result<Vec<VersionStatus>, Error> {
        let observed = self.metrics.status.start();
        observed.end(self.control.status(name).await, Error::outcome)
    }

    /// Replaces the engine's whole configuration. `Ok` says only that the engine took it;
    /// [`Self::status`] says what is loaded.
    pub async fn reload(&self, config: ServingConfig) -> Result<(), ReloadError> {
        let observed = self.metrics.reload.start();
        observed.end(self.control.reload(config).await, ReloadError::outcome)
    }
}

/// What is left until `deadline`; an error when that is nothing.
fn remaining(deadline: Instant) -> Result<Duration, Error> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(Error::DeadlineExceeded),
        left => Ok(left),
    }
}

/// A request that tells the engine when we stop waiting.
fn request<T>(message: T, deadline: Instant) -> Result<tonic::Request<T>, Error> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(remaining(deadline)?);
    Ok(request)
}

/// The client is shared by every model of the process.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Client>();
};
