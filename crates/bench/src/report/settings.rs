//! The settings of a run in its report.

use std::fmt;

use outrigger_compression::Encoding;
use serde::Serialize;

use crate::Job;

/// The requested settings, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// `kv`, `columnar`, `json`; `oip-grpc`, `oip-binary` or `oip-json`; or `direct` for TensorFlow
    /// Serving itself.
    pub form: &'static str,
    /// Duration of the measurement; in a search, of the confirmation.
    pub duration_seconds: f64,
    /// Duration of the load before the measurement.
    pub warmup_seconds: f64,
    /// Initial number of connections to the server.
    pub connections: usize,
    /// Number of sending threads.
    pub threads: usize,
    /// Requests in flight at once; in an open loop and in a search this is a maximum.
    pub in_flight: usize,
    /// Largest HTTP/2 frame of a gRPC request in bytes; HTTP/1.1 has no frames.
    pub frame_size: usize,
    /// Encoding of the requests: `gzip` or `zstd`; absent if they are not compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compress: Option<&'static str>,
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
            frame_size: job.frame,
            compress: job.compress.map(Encoding::name),
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, duration_seconds, warmup_seconds, .. } = self;
        let Self { connections, threads, in_flight, frame_size, .. } = self;
        write!(f, "form {form}, duration {duration_seconds} s, warm-up {warmup_seconds} s, ")?;
        write!(f, "connections {connections}, threads {threads}, in flight {in_flight}, ")?;
        write!(f, "frames of {frame_size} bytes")?;
        self.compress.map_or(Ok(()), |encoding| write!(f, ", compressed with {encoding}"))
    }
}
