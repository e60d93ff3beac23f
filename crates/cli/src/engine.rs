//! `outrigger engine`: the local engine, with TensorFlow Serving's flags.

use std::{
    io::{IsTerminal as _, stderr},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use outrigger_engine::{Models, Options, Poll, environment, run as run_engine};
use tracing_subscriber::EnvFilter;

use crate::exit::Exit;

/// Runs the local engine: TensorFlow Serving's gRPC interface over the TensorFlow library
/// of the Python package tensorflow-cpu.
///
/// Flags have the names and defaults of those of tensorflow_model_server.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  echo 'model_config_list {}' > models.txt
  outrigger engine --tensorflow=.venv --port=8500 --model_config_file=models.txt \\
    --num_load_threads=2 --num_unload_threads=1")]
pub(crate) struct Arguments {
    /// Directory of libtensorflow, or a virtual environment with tensorflow-cpu
    /// [env: OUTRIGGER_TENSORFLOW] [default: active environment, else ./.venv]
    #[arg(long, value_name = "DIR")]
    tensorflow: Option<PathBuf>,

    /// TCP port to listen on; 0 means none
    #[arg(long = "port", default_value_t = 8500)]
    port: u16,

    /// Unix socket to listen on in addition
    #[arg(long = "grpc_socket_path", value_name = "PATH")]
    grpc_socket_path: Option<PathBuf>,

    /// HTTP is not supported: must be 0
    #[arg(long = "rest_api_port", default_value_t = 0)]
    rest_api_port: u16,

    /// File with a ModelServerConfig in protobuf's text format
    #[arg(long = "model_config_file", value_name = "PATH")]
    model_config_file: Option<PathBuf>,

    /// Polling the file is not supported: must be 0
    #[arg(long = "model_config_file_poll_wait_seconds", default_value_t = 0)]
    model_config_file_poll_wait_seconds: u32,

    /// Name of the model, if there is no configuration file
    #[arg(long = "model_name", default_value = "default")]
    model_name: String,

    /// Base path of the model, if there is no configuration file
    #[arg(long = "model_base_path", value_name = "DIR")]
    model_base_path: Option<String>,

    /// Seconds between polls for versions; 0: only at the start; negative: never
    #[arg(
        long = "file_system_poll_wait_seconds",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    file_system_poll_wait_seconds: i64,

    /// Concurrent loads after the start; 0: one, in the manager's own thread
    #[arg(long = "num_load_threads", default_value_t = 0)]
    num_load_threads: usize,

    /// Concurrent unloads; 0: one, in the manager's own thread
    #[arg(long = "num_unload_threads", default_value_t = 0)]
    num_unload_threads: usize,

    /// Retries after a failed load
    #[arg(long = "max_num_load_retries", default_value_t = 5)]
    max_num_load_retries: u32,

    /// Microseconds before each retry; negative: none
    #[arg(
        long = "load_retry_interval_micros",
        default_value_t = 60_000_000,
        allow_negative_numbers = true
    )]
    load_retry_interval_micros: i64,

    /// Threads per operation; 0: one per core
    #[arg(long = "tensorflow_intra_op_parallelism", default_value_t = 0)]
    tensorflow_intra_op_parallelism: u32,

    /// Concurrent operations; 0: one per core
    #[arg(long = "tensorflow_inter_op_parallelism", default_value_t = 0)]
    tensorflow_inter_op_parallelism: u32,

    /// Concurrent calls, beyond which calls fail with RESOURCE_EXHAUSTED; 0: four per
    /// core
    #[arg(long = "grpc_max_threads", default_value_t = 0)]
    grpc_max_threads: usize,

    /// Run concurrent requests for a model together
    #[arg(long = "enable_batching", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    enable_batching: bool,

    /// File with BatchingParameters in protobuf's text format; requires
    /// --enable_batching
    #[arg(long = "batching_parameters_file", value_name = "PATH")]
    batching_parameters_file: Option<PathBuf>,

    /// Batch requests only for models with a batching_params.pbtxt, with the parameters
    /// in that file; requires --enable_batching
    #[arg(long = "enable_per_model_batching_parameters", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    enable_per_model_batching_parameters: bool,

    /// Accepted; a model's warm-up requests are not replayed, which is logged
    #[arg(long = "enable_model_warmup", default_value_t = true, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    enable_model_warmup: bool,

    /// Answer with tensor_content instead of lists of values
    #[arg(long = "enable_serialization_as_tensor_content", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    enable_serialization_as_tensor_content: bool,

    /// Trace every run, and write the times of operations to this file, as JSON
    #[arg(long = "step_stats_file", value_name = "PATH")]
    step_stats_file: Option<PathBuf>,

    /// Let a new version label point to a version that is not available yet
    #[arg(long = "allow_version_labels_for_unavailable_models", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    allow_version_labels_for_unavailable_models: bool,
}

/// Runs the engine until a signal stops it.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    environment::prepare();
    let options = arguments.options()?;
    log_to_stderr();
    run_engine(options)
        .map_err(|error| if error.is_usage() { Exit::usage(error) } else { Exit::failed(error) })
}

pub(crate) fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .init();
}

impl Arguments {
    fn options(self) -> Result<Options, Exit> {
        self.check_flags()?;
        let models = match (self.model_config_file, self.model_base_path) {
            (Some(file), _) => Models::File(file),
            (None, Some(base_path)) => Models::One { name: self.model_name, base_path },
            (None, None) => {
                return Err(Exit::usage("--model_config_file or --model_base_path must be set"));
            }
        };
        let retry = u64::try_from(self.load_retry_interval_micros).unwrap_or(0);
        Ok(Options {
            tensorflow: self.tensorflow,
            port: self.port,
            grpc_socket_path: self.grpc_socket_path,
            models,
            file_system_poll: poll(self.file_system_poll_wait_seconds),
            num_load_threads: self.num_load_threads,
            num_unload_threads: self.num_unload_threads,
            max_num_load_retries: self.max_num_load_retries,
            load_retry_interval: Duration::from_micros(retry),
            tensorflow_intra_op_parallelism: self.tensorflow_intra_op_parallelism,
            tensorflow_inter_op_parallelism: self.tensorflow_inter_op_parallelism,
            grpc_max_threads: self.grpc_max_threads,
            batching: self.enable_batching,
            batching_parameters_file: self.batching_parameters_file,
            per_model_batching: self.enable_per_model_batching_parameters,
            model_warmup: self.enable_model_warmup,
            serialization_as_tensor_content: self.enable_serialization_as_tensor_content,
            step_stats_file: self.step_stats_file,
            allow_version_labels_for_unavailable_models: self
                .allow_version_labels_for_unavailable_models,
        })
    }

    fn check_flags(&self) -> Result<(), Exit> {
        let problem = if self.rest_api_port != 0 {
            "--rest_api_port: this engine has no HTTP interface; must be 0"
        } else if self.batching_parameters_file.is_some() && !self.enable_batching {
            "--batching_parameters_file has no effect without --enable_batching"
        } else if self.enable_per_model_batching_parameters && !self.enable_batching {
            "--enable_per_model_batching_parameters has no effect without --enable_batching"
        } else if self.step_stats_file.is_some() && self.enable_batching {
            "--step_stats_file and --enable_batching cannot be combined: batches are not traced"
        } else if self.model_config_file_poll_wait_seconds != 0 {
            "--model_config_file_poll_wait_seconds: the file is read only once; must be 0"
        } else {
            return Ok(());
        };
        Err(Exit::usage(problem))
    }
}

fn poll(seconds: i64) -> Poll {
    match u64::try_from(seconds) {
        Err(_) => Poll::Never,
        Ok(0) => Poll::Once,
        Ok(seconds) => Poll::Every(Duration::from_secs(seconds)),
    }
}
