//! The client of TensorFlow Serving.

mod control;
mod predict;
mod status;

use std::{sync::Arc, time::Duration};

use outrigger_core::{EngineId, Interface, ServableId, ServableName, Tensor};
use outrigger_rpc::{Endpoint, HttpService, InvalidEndpoint, Settings, metrics::Connections};
use outrigger_run::RunError;
use tokio::{runtime::Handle, time::Instant};

pub(crate) use self::status::may_be_of_batch;
use self::{control::Control, predict::Predictor};
use crate::{
    Call, InvalidConfig, ReloadError, ServingConfig, VersionStatus,
    metrics::{self, Metrics},
};

/// The engine's address and the limits of its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The engine's name, for metrics and logs.
    pub engine: EngineId,
    /// `unix:/path`, `host:port` or `http://host:port`; see [`Endpoint`].
    pub endpoint: String,
    /// HTTP/2 connections for predictions, at least one for each runtime that makes them; control
    /// calls use one more. There are several because a server reads each on one thread.
    pub connections: usize,
    /// The limit of predictions in flight. Further calls wait, and fail with an overload if they
    /// still wait at their deadline.
    pub max_in_flight: usize,
    /// The largest message in bytes, in either direction.
    pub max_message: usize,
    /// The time limit of one attempt to connect.
    pub connect_timeout: Duration,
    /// The time for which calls wait for the engine after its connection was lost. After that they
    /// fail at once until the engine is back.
    pub reconnect_window: Duration,
    /// The deadline of a status call.
    pub status_timeout: Duration,
    /// The deadline of a reload. A healthy engine answers one within two polls of its file system,
    /// usually in seconds.
    pub reload_timeout: Duration,
}

impl Config {
    /// Creates the default configuration for an engine at `endpoint`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            engine: EngineId::default(),
            endpoint: endpoint.into(),
            connections: 2,
            max_in_flight: 128,
            max_message: 64 << 20,
            connect_timeout: Duration::from_secs(1),
            reconnect_window: Duration::from_millis(250),
            status_timeout: Duration::from_secs(2),
            reload_timeout: Duration::from_secs(30),
        }
    }

    /// The settings of one connection.
    fn settings(&self) -> Settings {
        Settings {
            connect_timeout: self.connect_timeout,
            reconnect_window: self.reconnect_window,
            ..Settings::default()
        }
    }

    fn validate(&self) -> Result<Endpoint, InvalidConfig> {
        let endpoint = self.endpoint.parse();
        let endpoint =
            endpoint.map_err(|error: InvalidEndpoint| InvalidConfig(error.to_string()))?;
        let positive = [
            ("connections", self.connections),
            ("max_in_flight", self.max_in_flight),
            ("max_message", self.max_message),
        ];
        match positive.into_iter().find(|&(_, value)| value == 0) {
            Some((key, _)) => Err(InvalidConfig(format!("{key} must be at least 1"))),
            None => Ok(endpoint),
        }
    }
}

/// A client of TensorFlow Serving, or of any server with its gRPC interface.
///
/// Dropping it closes its connections.
#[derive(Debug)]
pub struct Client {
    predictor: Predictor,
    control: Control,
    metrics: Metrics,
}

impl Client {
    /// Creates a client of the engine at `config.endpoint`, which need not be up:
    /// connections are made with the first call, and again whenever they break.
    ///
    /// The runtime of the caller drives them, so it must outlive the client. Metrics go to
    /// the recorder that is installed at the time of this call.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn connect(config: Config) -> Result<Self, InvalidConfig> {
        Self::connect_on(config, &[Handle::current()])
    }

    /// Like [`Self::connect`], with the connections for predictions spread over `runtimes`.
    /// A prediction made on one of the runtimes uses a connection of that runtime. Control
    /// calls use a connection on the first.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    pub fn connect_on(config: Config, runtimes: &[Handle]) -> Result<Self, InvalidConfig> {
        let endpoint = config.validate()?;
        let (first, _) = runtimes
            .split_at_checked(1)
            .ok_or_else(|| InvalidConfig("there is no runtime for the connections".to_owned()))?;
        // Predictions and control calls share no connection, so predictions cannot delay control
        // calls.
        let observer = Arc::new(Connections::to(&config.engine, &endpoint));
        let control =
            HttpService::new(&endpoint, &config.settings(), first, Arc::clone(&observer) as _);
        Ok(Self {
            predictor: Predictor::new(&endpoint, &config, runtimes, observer),
            control: Control::new(control, &config),
            metrics: Metrics::new(&config.engine),
        })
    }
}

/// # Guarantees
/// Every call ends by its deadline (`status` and `reload`: by the configured one), also
/// when the engine hangs. Control calls (`signature`, `status`, `reload`) do not wait for
/// predictions.
///
/// # Assumptions
/// Only one caller reloads. After a reload timed out, that caller does not reload again
/// while the engine may still be working on it.
impl Client {
    /// Runs a model once. Returns the outputs that the call names, in that order; if it names none,
    /// all outputs of the signature in any order.
    pub async fn predict(&self, mut call: Call) -> Result<Vec<Tensor>, RunError> {
        self.try_predict(&mut call).await
    }

    /// As [`Self::predict`], for a call that may be made again: it keeps its inputs, or an error has
    /// them.
    pub(crate) async fn try_predict(&self, call: &mut Call) -> Result<Vec<Tensor>, RunError> {
        let observed = self.metrics.predict.start();
        observed.end(self.predictor.run(call).await, RunError::outcome)
    }

    /// As [`Self::try_predict`], for a call that is made again after a failure of its batch.
    pub(crate) async fn retry_predict(&self, call: &mut Call) -> Result<Vec<Tensor>, RunError> {
        let result = self.try_predict(call).await;
        self.metrics.batch_retried(result.is_ok());
        result
    }

    /// The interface of the signature called `signature` in the loaded model.
    pub async fn signature(
        &self,
        servable: &ServableId,
        signature: &str,
        deadline: Instant,
    ) -> Result<Interface, RunError> {
        let observed = self.metrics.signature.start();
        let result = self.control.signature(servable, signature, deadline).await;
        observed.end(result, RunError::outcome)
    }

    /// The status of every version that the engine has ever seen under `name`, including ended
    /// ones, highest first; empty if the engine does not know the name.
    pub async fn status(&self, name: &ServableName) -> Result<Vec<VersionStatus>, RunError> {
        let observed = self.metrics.status.start();
        observed.end(self.control.status(name).await, RunError::outcome)
    }

    /// Replaces the engine's whole configuration. `Ok` means only that the engine took it;
    /// [`Self::status`] reports the loaded versions.
    pub async fn reload(&self, config: ServingConfig) -> Result<(), ReloadError> {
        let observed = self.metrics.reload.start();
        observed.end(self.control.reload(config).await, metrics::reload_outcome)
    }
}

/// The time left until `deadline`, or an error after it.
fn remaining(deadline: Instant) -> Result<Duration, RunError> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(RunError::DeadlineExceeded),
        left => Ok(left),
    }
}

/// Creates a request with a timeout, so that the engine knows when the caller stops waiting.
fn request<T>(message: T, deadline: Instant) -> Result<tonic::Request<T>, RunError> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(remaining(deadline)?);
    Ok(request)
}

/// Compile-time check that the client can be shared by every model of the process.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Client>();
};
