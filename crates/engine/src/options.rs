//! The engine's settings.

use std::{path::PathBuf, time::Duration};

use crate::source::Poll;

/// Settings, named after TensorFlow Serving's flags and with its defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of libtensorflow, or of a virtual environment that contains it. `None`
    /// uses the environment variable `OUTRIGGER_TENSORFLOW`, or searches if that is not
    /// set.
    pub tensorflow: Option<PathBuf>,
    /// TCP port on all IPv4 addresses; zero listens on no port.
    pub port: u16,
    /// Unix socket to listen on in addition.
    pub grpc_socket_path: Option<PathBuf>,
    /// The initial models.
    pub models: Models,
    /// The schedule of polling base paths.
    pub file_system_poll: Poll,
    /// Concurrent loads after the start; zero loads in the manager's own thread.
    pub num_load_threads: usize,
    /// Concurrent unloads; zero unloads in the manager's own thread.
    pub num_unload_threads: usize,
    /// Retries after a failed load.
    pub max_num_load_retries: u32,
    /// Pause before each retry.
    pub load_retry_interval: Duration,
    /// Threads per operation; zero means one per core.
    pub tensorflow_intra_op_parallelism: u32,
    /// Concurrent operations; zero means one per core.
    pub tensorflow_inter_op_parallelism: u32,
    /// Concurrent calls; further ones are refused. Zero means four per core.
    pub grpc_max_threads: usize,
    /// True if requests are batched.
    pub batching: bool,
    /// A file with `BatchingParameters` in text format; without it, the defaults apply.
    pub batching_parameters_file: Option<PathBuf>,
    /// True if requests are batched only for models that have a file of their own parameters;
    /// malformed ones fail the load.
    pub per_model_batching: bool,
    /// True if a warning is logged about warm-up requests of a model, which are not
    /// replayed.
    pub model_warmup: bool,
    /// True if outputs are sent as `tensor_content` instead of lists of values.
    pub serialization_as_tensor_content: bool,
    /// A file for the times of operations, as JSON of [`crate::step_stats::Times`]: every run is
    /// traced. Requests must not be batched.
    pub step_stats_file: Option<PathBuf>,
    /// True if a new label may point to a version that is not available yet.
    pub allow_version_labels_for_unavailable_models: bool,
}

/// The source of the initial configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Models {
    /// A file with a `ModelServerConfig` in text format.
    File(PathBuf),
    /// One model with its latest version.
    One {
        /// Its name.
        name: String,
        /// Its absolute base path.
        base_path: String,
    },
}

impl Options {
    /// The defaults of all flags, for these models.
    pub fn new(models: Models) -> Self {
        Self {
            tensorflow: None,
            port: 8500,
            grpc_socket_path: None,
            models,
            file_system_poll: Poll::Every(Duration::from_secs(1)),
            num_load_threads: 0,
            num_unload_threads: 0,
            max_num_load_retries: 5,
            load_retry_interval: Duration::from_secs(60),
            tensorflow_intra_op_parallelism: 0,
            tensorflow_inter_op_parallelism: 0,
            grpc_max_threads: 0,
            batching: false,
            batching_parameters_file: None,
            per_model_batching: false,
            model_warmup: true,
            serialization_as_tensor_content: false,
            step_stats_file: None,
            allow_version_labels_for_unavailable_models: false,
        }
    }
}
