//! The client of TensorFlow Serving.

mod control;
mod predict;
mod status;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use outrigger_core::{Interface, ServableId, ServableName, Tensor};
use outrigger_rpc::{Endpoint, HttpService, InvalidEndpoint, Settings};
use tokio::{runtime::Handle, time::Instant};

use self::{control::Control, predict::Predictor};
use crate::{
    Backend, Call, Error, ReloadError, ServingConfig, VersionStatus,
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
pub struct TfServing {
    predictor: Predictor,
    control: Control,
    metrics: Metrics,
}

impl TfServing {
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

impl Backend for TfServing {
    fn predict(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, Error>> {
        Box::pin(async move {
            let observed = self.metrics.predict.start();
            observed.end(self.predictor.run(call).await, Error::outcome)
        })
    }

    fn signature<'a>(
        &'a self,
        servable: &'a ServableId,
        signature: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, Error>> {
        Box::pin(async move {
            let observed = self.metrics.signature.start();
            let result = self.control.signature(servable, signature, deadline).await;
            observed.end(result, Error::outcome)
        })
    }

    fn status<'a>(
        &'a self,
        name: &'a ServableName,
    ) -> BoxFuture<'a, Result<Vec<VersionStatus>, Error>> {
        Box::pin(async move {
            let observed = self.metrics.status.start();
            observed.end(self.control.status(name).await, Error::outcome)
        })
    }

    fn reload(&self, config: ServingConfig) -> BoxFuture<'_, Result<(), ReloadError>> {
        Box::pin(async move {
            let observed = self.metrics.reload.start();
            observed.end(self.control.reload(config).await, ReloadError::outcome)
        })
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
    shared::<TfServing>();
    shared::<Arc<dyn Backend>>();
};
