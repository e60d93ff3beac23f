//! What to do.

use std::{sync::Arc, time::Duration};

use outrigger_features::Plan;
use outrigger_proto::outrigger::v1::ModelSelector;

use crate::{Arrivals, Error, Failure, Form, Process, Servable, Server, Source, Stop};

/// A load generator's task.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where the server is.
    pub server: Server,
    /// What answers there.
    pub target: Target,
    /// Where requests come from.
    pub source: Source,
    /// The model's features: needed to make requests up, and to turn them into
    /// tensors.
    pub plan: Option<Arc<Plan>>,
    /// How much to send.
    pub load: Load,
    /// How long to measure.
    pub duration: Duration,
    /// How long to send before that.
    pub warmup: Duration,
    /// Connections to the server, at least 1 a thread. Over HTTP they are those
    /// to begin with: each request under way has one of its own.
    pub connections: usize,
    /// Threads that send.
    pub threads: usize,
    /// Requests under way at once, at least 1 a thread: in a closed loop so many, in an
    /// open loop at most so many; those beyond fail with `CLIENT_SATURATED`.
    /// None: 64 and 4096, or as many as threads.
    pub in_flight: Option<usize>,
    /// How long to wait for an answer; the server is told.
    pub timeout: Duration,
    /// Processes whose CPU time to tell.
    pub processes: Vec<Process>,
    /// Ends the run before its time.
    pub stop: Stop,
}

/// What answers requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A model of the control plane.
    Model {
        /// Which.
        model: ModelSelector,
        /// How features are sent to it. None: key-value where requests are made
        /// up, else as the files have them.
        form: Option<Form>,
    },
    /// TensorFlow Serving itself, with the tensors of the same requests.
    Servable(Servable),
}

/// How much to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// So many requests a second, in an open loop.
    Rate {
        /// Requests a second.
        rate: f64,
        /// How they follow each other.
        arrivals: Arrivals,
    },
    /// As many as are answered, in a closed loop.
    Max,
    /// The highest rate that is held, which is searched for.
    FindRate {
        /// What the 99th percentile of the latency must stay under.
        p99: Duration,
        /// How long a rate is tried; what is found is confirmed for the job's
        /// duration.
        step: Duration,
        /// How requests follow each other.
        arrivals: Arrivals,
    },
}

impl Load {
    /// Its name in reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Rate { .. } => "rate",
            Self::Max => "max",
            Self::FindRate { .. } => "find-rate",
        }
    }

    /// Whether what is reported is of an open loop.
    pub(crate) const fn is_open(self) -> bool {
        !matches!(self, Self::Max)
    }
}

impl Job {
    /// Requests under way at once, in an open loop or a closed one.
    pub(crate) fn in_flight(&self, open: bool) -> usize {
        let usual = if open { 4096 } else { 64 };
        self.in_flight.unwrap_or_else(|| self.threads.max(usual))
    }

    /// Makes sure that each thread has a part in everything.
    ///
    /// # Errors
    /// One would have none.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { connections, threads, in_flight, .. } = self;
        let parts = [("connections", Some(*connections)), ("requests under way", *in_flight)];
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
    /// There are none, `what` though needs them.
    pub(crate) fn plan(&self, what: &str) -> Result<&Plan, Error> {
        let missing = || Error::Request(format!("a metadata.json is needed {what}"));
        self.plan.as_deref().ok_or_else(missing)
    }

    pub(crate) fn unreachable(&self, failure: Failure) -> Error {
        Error::Unreachable { server: self.server.to_string(), failure }
    }
}
