//! What the engine is told to do.

use std::{path::PathBuf, time::Duration};

use crate::source::Poll;

/// Settings, named after TensorFlow Serving's flags; the defaults are its own.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of libtensorflow, or a virtual environment that has it. None:
    /// the environment variable `OUTRIGGER_TENSORFLOW`, else a search.
    pub tensorflow: Option<PathBuf>,
    /// TCP port on all IPv4 addresses; zero listens on no port.
    pub port: u16,
    /// Unix socket to listen on as well.
    pub grpc_socket_path: Option<PathBuf>,
    /// The models to begin with.
    pub models: Models,
    /// When base paths are looked at.
    pub file_system_poll: Poll,
    /// Loads at once after the start; zero: in the manager's own thread.
    pub num_load_threads: usize,
    /// Unloads at once; zero: in the manager's own thread.
    pub num_unload_threads: usize,
    /// Further tries after a failed load.
    pub max_num_load_retries: u32,
    /// Pause before each of them.
    pub load_retry_interval: Duration,
    /// Threads of one operation; zero: one a core.
    pub tensorflow_intra_op_parallelism: u32,
    /// Operations at once; zero: one a core.
    pub tensorflow_inter_op_parallelism: u32,
    /// Calls at once before further ones are refused; zero: four a core.
    pub grpc_max_threads: usize,
    /// Say so when requests were to be batched, which they are not.
    pub batching: bool,
    /// A file with `BatchingParameters` in text format, which are only checked.
    pub batching_parameters_file: Option<PathBuf>,
    /// Check the models' own files of such parameters; one that is malformed fails the load.
    pub per_model_batching: bool,
    /// Say so when a model has warmup requests, which are not replayed.
    pub model_warmup: bool,
    /// Answer with `tensor_content` instead of lists of values.
    pub serialization_as_tensor_content: bool,
    /// Let a new label point to a version that is not available yet.
    pub allow_version_labels_for_unavailable_models: bool,
}

/// Where the first configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Models {
    /// A file with a `ModelServerConfig` in text format.
    File(PathBuf),
    /// One model, its latest version.
    One {
        /// Its name.
        name: String,
        /// Its absolute base path.
        base_path: String,
    },
}

impl Options {
    /// The defaults of every flag, for these models.
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
            allow_version_labels_for_unavailable_models: false,
        }
    }
}
