//! The task of a load generator.

use std::{path::PathBuf, sync::Arc, time::Duration};

use outrigger_compression::Encoding;
use outrigger_features::Plan;
use outrigger_proto::outrigger::v1::ModelSelector;

use crate::{Arrivals, Error, Failure, Form, Inference, Process, Servable, Server, Source, Stop};

/// The task of a load generator.
#[derive(Debug, Clone)]
pub struct Job {
    /// The server.
    pub server: Server,
    /// The model or servable that answers.
    pub target: Target,
    /// The source of requests.
    pub source: Source,
    /// The model's features; required for generating requests, except for those whose tensors a
    /// server of the Open Inference Protocol describes, and for converting them to tensors.
    pub plan: Option<Arc<Plan>>,
    /// The load.
    pub load: Load,
    /// Duration of the measurement.
    pub duration: Duration,
    /// Duration of the load before the measurement.
    pub warmup: Duration,
    /// Connections to the server, at least one per thread. For HTTP this is the initial
    /// number: each request in flight has its own connection.
    pub connections: usize,
    /// Number of sending threads.
    pub threads: usize,
    /// Requests in flight at once, at least one per thread: in a closed loop exactly this
    /// number, in an open loop at most; requests beyond it fail with `CLIENT_SATURATED`.
    /// `None` means 64 and 4096, or the number of threads if that is larger.
    pub in_flight: Option<usize>,
    /// Largest HTTP/2 frame of a gRPC request in bytes, at least 1. Smaller ones are sent if
    /// the server does not accept this size.
    pub frame: usize,
    /// Encoding of the requests to a model, which are compressed before the run; `None` sends them
    /// as they are. Answers are asked for uncompressed.
    pub compress: Option<Encoding>,
    /// A directory for each different request and its first answer: `request-0.binpb`,
    /// `answer-0.binpb` and so on, without gRPC's prefix; `.json` for JSON, and `.bin` for JSON with
    /// binary tensors.
    pub save: Option<PathBuf>,
    /// Timeout of a request, which is also sent to the server.
    pub timeout: Duration,
    /// Processes whose CPU time is reported.
    pub processes: Vec<Process>,
    /// Ends the run early.
    pub stop: Stop,
}

/// The model or servable that answers requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A model of the control plane.
    Model {
        /// The model and its version.
        model: ModelSelector,
        /// The form of the requests. `None` means key-value for generated requests, and
        /// the form of the file for others.
        form: Option<Form>,
    },
    /// A model of a server of the Open Inference Protocol, which gets the tensors of the same
    /// requests.
    Inference(Inference),
    /// TensorFlow Serving itself, which gets the tensors of the same requests.
    Servable(Servable),
}

/// The load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Open loop: a fixed number of requests a second.
    Rate {
        /// Requests a second.
        rate: f64,
        /// Distribution of the requests over time.
        arrivals: Arrivals,
    },
    /// Closed loop: the next request is sent when another is answered.
    Max,
    /// A search for the highest rate that is held.
    FindRate {
        /// Upper limit of the latency's 99th percentile.
        p99: Duration,
        /// Duration of the trial of a rate; the rate found is confirmed for the job's
        /// duration.
        step: Duration,
        /// Distribution of the requests over time.
        arrivals: Arrivals,
    },
}

impl Load {
    /// The load's name in reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Rate { .. } => "rate",
            Self::Max => "max",
            Self::FindRate { .. } => "find-rate",
        }
    }

    /// Whether the reported measurement is an open loop.
    pub(crate) const fn is_open(self) -> bool {
        !matches!(self, Self::Max)
    }
}

impl Job {
    /// Requests in flight at once, in an open or a closed loop.
    pub(crate) fn in_flight(&self, open: bool) -> usize {
        let usual = if open { 4096 } else { 64 };
        self.in_flight.unwrap_or_else(|| self.threads.max(usual))
    }

    /// Checks that each thread gets a part of the connections and requests.
    ///
    /// # Errors
    /// There are more threads than connections or requests in flight.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { connections, threads, in_flight, .. } = self;
        let parts = [("connections", Some(*connections)), ("requests in flight", *in_flight)];
        for (what, given) in parts {
            if let Some(few) = given.filter(|given| given < threads) {
                let error = format!("{threads} threads need at least as many {what}, not {few}");
                return Err(Error::Options(error));
            }
        }
        Ok(())
    }

    /// The model's features.
    ///
    /// # Errors
    /// They are missing; `what` is the purpose for the error message.
    pub(crate) fn plan(&self, what: &str) -> Result<&Plan, Error> {
        let missing = || Error::Request(format!("a metadata.json is needed {what}"));
        self.plan.as_deref().ok_or_else(missing)
    }

    pub(crate) fn unreachable(&self, failure: Failure) -> Error {
        Error::Unreachable { server: self.server.to_string(), failure }
    }
}
