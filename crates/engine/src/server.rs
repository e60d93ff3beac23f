//! Starts the engine from its options, serves, and shuts it down.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use outrigger_net::{Scheduling, Workers};
use outrigger_proto::tensorflow::serving::{
    ModelConfig, ModelConfigList, ModelServerConfig, model_server_config,
};
use tokio::{
    net::{TcpListener, UnixListener},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    batching::{Parameters, Pool},
    config::{self, ConfigError},
    connections,
    cores::cores,
    loader::{Batching, Loader, SavedModelLoader, Settings},
    manager::{self, Manager},
    options::{Models, Options},
    reload::{self, Reloader},
    servable::Servable,
    status::Status,
    step_stats::StepStats,
    surface::{Calls, Services, Surface},
    tensorflow::{LocateError, OpenError, Runtime, Threads, locate},
};

/// Time limit for requests in progress at shutdown.
const DRAIN: Duration = Duration::from_secs(30);

/// An error that prevents the start or ends the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// libtensorflow was not found.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// libtensorflow cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Neither a port nor a socket is configured.
    #[error("nothing to listen on: --port is 0 and there is no --grpc_socket_path")]
    NoAddress,
    /// The configuration file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The parameters of batching cannot be used.
    #[error("requests cannot be batched: {0}")]
    Batching(#[source] Status),
    /// The file for the times of operations cannot be written.
    #[error("{}: {source}", path.display())]
    StepStats {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The first configuration is refused, or one of its models failed.
    #[error("the models cannot be served: {0}")]
    Models(#[source] Status),
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// Threads or signal handlers cannot be set up.
    #[error("cannot set up the process: {0}")]
    Process(#[source] io::Error),
}

impl Error {
    /// True if the cause is an invalid option.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Locate(_)
                | Self::NoAddress
                | Self::Batching(_)
                | Self::Config(ConfigError::Parse { .. })
        )
    }
}

/// Runs an engine until SIGTERM or SIGINT, then lets requests finish.
///
/// Call [`crate::environment::prepare`] before, while there is only one thread.
///
/// # Errors
/// The engine cannot start.
pub fn run(options: Options) -> Result<(), Error> {
    // One thread is enough here: connections are served by other threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Process)?;
    let outcome = runtime.block_on(async {
        let stop = stop_signal()?;
        tokio::select! {
            engine = Engine::start(options) => engine?.serve(stop.cancelled()).await,
            // Nothing is served yet, so there are no requests to wait for.
            () = stop.cancelled() => Ok(()),
        }
    });
    // Does not wait for a run whose caller has gone.
    runtime.shutdown_background();
    outcome
}

/// A token that is cancelled on SIGTERM or SIGINT.
fn stop_signal() -> Result<CancellationToken, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Process)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Process)?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    let tracker = TaskTracker::new();
    tracker.spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        cancel.cancel();
    });
    Ok(token)
}

/// An engine whose first models are available and whose addresses are bound.
#[derive(Debug)]
pub struct Engine {
    surface: Arc<Surface>,
    tcp: Option<TcpListener>,
    unix: Option<UnixListener>,
    socket: Option<PathBuf>,
    /// Background tasks; aborted when the engine is dropped.
    tasks: JoinSet<()>,
}

impl Engine {
    /// Opens TensorFlow, loads the first models and binds the addresses, in that order.
    /// Waits as long as a base path does not exist.
    ///
    /// # Errors
    /// One of these steps fails.
    pub async fn start(options: Options) -> Result<Self, Error> {
        if options.port == 0 && options.grpc_socket_path.is_none() {
            return Err(Error::NoAddress);
        }
        let batching = batching(&options)?;
        let config = first_config(&options.models)?;
        let step_stats = options.step_stats_file.as_deref().map(step_stats).transpose()?;
        let runtime = open(options.tensorflow.as_deref())?;
        let surface = Arc::new(surface(runtime, &options, batching, step_stats));
        let mut tasks = JoinSet::new();
        spawn_ticks(&mut tasks, surface.manager.clone());
        surface.reloader.apply(config).await.map_err(Error::Models)?;
        let tcp = match options.port {
            0 => None,
            port => Some(bind_tcp(port).await?),
        };
        let unix = options.grpc_socket_path.as_deref().map(bind_unix).transpose()?;
        Ok(Self { surface, tcp, unix, socket: options.grpc_socket_path, tasks })
    }

    /// Serves until `stop`, then refuses new requests and lets those in progress finish.
    /// Models are not unloaded, because the process is about to end.
    ///
    /// # Errors
    /// The threads that serve connections cannot be started.
    pub async fn serve(mut self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let workers = Workers::start(cores(), Scheduling::Batch).map_err(Error::Process)?;
        let services = Services::new(Arc::clone(&self.surface));
        let closing = CancellationToken::new();
        let mut servers = JoinSet::new();
        if let Some(listener) = self.tcp.take() {
            let (services, seats) = (services.clone(), workers.seats().clone());
            servers.spawn(connections::serve(listener, services, seats, closing.clone()));
        }
        if let Some(listener) = self.unix.take() {
            let seats = workers.seats().clone();
            servers.spawn(connections::serve(listener, services, seats, closing.clone()));
        }
        self.log_addresses();
        stop.await;
        tracing::info!("shutting down");
        closing.cancel();
        self.surface.stop.cancel();
        let drained = timeout(DRAIN, async { while servers.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!("requests in progress were cut off");
        }
        self.tasks.shutdown().await;
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
        Ok(())
    }

    fn log_addresses(&self) {
        let port = self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        let port = port.map(tracing::field::display);
        let socket = self.socket.as_ref().map(|socket| tracing::field::display(socket.display()));
        let version = self.surface.runtime.version();
        tracing::info!(
            grpc.address = port,
            grpc.socket = socket,
            tensorflow.version = version,
            "listening"
        );
    }
}

fn batching(options: &Options) -> Result<Option<Batching>, Error> {
    if !options.batching {
        return Ok(None);
    }
    let file = options.batching_parameters_file.as_deref();
    let parameters = file.map_or(Ok(Parameters::default()), config::read_batching)?;
    let threads = parameters.threads().map_err(Error::Batching)?;
    let pool = Arc::new(Pool::start(threads).map_err(Error::Process)?);
    // Models with parameters of their own share the threads.
    Ok(Some(Batching { pool, parameters: (!options.per_model_batching).then_some(parameters) }))
}

fn step_stats(path: &Path) -> Result<StepStats, Error> {
    StepStats::create(path.to_owned())
        .map_err(|source| Error::StepStats { path: path.to_owned(), source })
}

fn first_config(models: &Models) -> Result<ModelServerConfig, ConfigError> {
    match models {
        Models::File(path) => config::read(path),
        Models::One { name, base_path } => {
            let model = ModelConfig {
                name: name.clone(),
                base_path: base_path.clone(),
                model_platform: "tensorflow".to_owned(),
                ..ModelConfig::default()
            };
            let list = ModelConfigList { config: vec![model] };
            let list = model_server_config::Config::ModelConfigList(list);
            Ok(ModelServerConfig { config: Some(list) })
        }
    }
}

fn open(named: Option<&Path>) -> Result<Runtime, Error> {
    let directory = locate(named)?;
    Ok(Runtime::open(&directory.canonicalize().unwrap_or(directory))?)
}

fn surface(
    runtime: Runtime,
    options: &Options,
    batching: Option<Batching>,
    step_stats: Option<StepStats>,
) -> Surface {
    let threads = Threads {
        intra_op: options.tensorflow_intra_op_parallelism,
        inter_op: options.tensorflow_inter_op_parallelism,
    };
    let manager = Manager::<Servable>::new(manager::Config {
        load_threads: options.num_load_threads,
        unload_threads: options.num_unload_threads,
        max_retries: options.max_num_load_retries,
        retry_interval: options.load_retry_interval,
    });
    let monitor = manager.bus().monitor();
    let settings = Settings { threads, batching, warmup: options.model_warmup };
    let make_loader = move |path: &Path| -> Arc<dyn Loader<Servable>> {
        Arc::new(SavedModelLoader::new(runtime, path.to_owned(), settings.clone()))
    };
    let config = reload::Config {
        make_loader: Arc::new(make_loader),
        poll: options.file_system_poll,
        load_threads: options.num_load_threads,
        labels_for_unavailable: options.allow_version_labels_for_unavailable_models,
    };
    Surface {
        runtime,
        reloader: Reloader::new(config, manager.clone(), monitor.clone()),
        manager,
        monitor,
        as_content: options.serialization_as_tensor_content,
        step_stats,
        calls: Calls::new(options.grpc_max_threads),
        reloads: TaskTracker::new(),
        stop: CancellationToken::new(),
    }
}

/// Ticks as long as the set of tasks lives. A tick may load a model, so it runs on a
/// blocking thread; the next tick is then late.
fn spawn_ticks(tasks: &mut JoinSet<()>, manager: Manager<Servable>) {
    tasks.spawn(async move {
        let mut ticks = interval(manager::TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let manager = manager.clone();
            if tokio::task::spawn_blocking(move || manager.tick()).await.is_err() {
                tracing::error!("a tick of the manager panicked");
            }
        }
    });
}

async fn bind_tcp(port: u16) -> Result<TcpListener, Error> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    TcpListener::bind(address)
        .await
        .map_err(|source| Error::Listen { address: address.to_string(), source })
}

/// Binds a Unix socket; replaces a socket file that a terminated process has left.
fn bind_unix(path: &Path) -> Result<UnixListener, Error> {
    let listen = || -> io::Result<UnixListener> {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if is_socket(path) {
            std::fs::remove_file(path)?;
        }
        UnixListener::bind(path)
    };
    listen().map_err(|source| Error::Listen { address: path.display().to_string(), source })
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
