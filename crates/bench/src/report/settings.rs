//! What a run was told to be.

use std::fmt;

use serde::Serialize;

use crate::Job;

/// What was asked for, or the default of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// `kv`, `columnar`, `json`, or `direct` for TensorFlow Serving itself.
    pub form: &'static str,
    /// How long to measure; in a search for a rate, what is found.
    pub duration_seconds: f64,
    /// How long to send before that.
    pub warmup_seconds: f64,
    /// Connections to the server, to begin with.
    pub connections: usize,
    /// Threads that send.
    pub threads: usize,
    /// Requests under way at once; in an open loop and in a search at most so many.
    pub in_flight: usize,
}

impl Settings {
    pub(super) fn new(job: &Job, form: &'static str) -> Self {
        Self {
            form,
            duration_seconds: job.duration.as_secs_f64(),
            warmup_seconds: job.warmup.as_secs_f64(),
            connections: job.connections,
            threads: job.threads,
            in_flight: job.in_flight(job.load.is_open()),
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, duration_seconds, warmup_seconds, .. } = self;
        let Self { connections, threads, in_flight, .. } = self;
        write!(f, "form {form}, duration {duration_seconds} s, warm-up {warmup_seconds} s, ")?;
        write!(f, "connections {connections}, threads {threads}, in flight {in_flight}")
    }
}
