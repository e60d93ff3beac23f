//! Starts the process, serves, and ends it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use hyper::server::conn::http2;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use outrigger_proto::inference::grpc_inference_service_server::GrpcInferenceServiceServer;
use tokio::{
    net::UnixListener,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    library::{self, LibraryError},
    service::Service,
};

/// The time limit for calls in progress at the end.
const DRAIN: Duration = Duration::from_secs(30);
/// The threads that read and write messages, and run models whose runs are short.
const WORKERS: usize = 2;
/// The bytes of one request, and of all requests of a connection, that a client may send without
/// waiting: several requests of a megabyte.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;

/// The pause after a failed accept, which is most likely caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Calls = TowerToHyperService<GrpcInferenceServiceServer<Service>>;

/// The settings of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The library, its directory or a virtual environment; see [`library::locate`].
    pub onnxruntime: Option<PathBuf>,
    /// The socket to listen on.
    pub socket: PathBuf,
    /// The threads that run all models together.
    pub threads: usize,
    /// The largest message in bytes, in either direction.
    pub max_message: usize,
}

/// An error that prevents the start or ends the process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// ONNX Runtime cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The socket cannot be bound.
    #[error("cannot listen on {}: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Threads or signal handlers cannot be set up.
    #[error("cannot set up the process: {0}")]
    Process(#[source] io::Error),
}

/// Runs the engine until SIGTERM or SIGINT, then lets calls end.
///
/// # Errors
/// It cannot start.
pub fn run(options: &Options) -> Result<(), Error> {
    let library = library::locate(options.onnxruntime.as_deref())?;
    library::open(&library, options.threads)?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(Error::Process)?;
    let served = runtime.block_on(serve(options, &library));
    // Does not wait for a run whose caller has gone.
    runtime.shutdown_background();
    served
}

async fn serve(options: &Options, library: &Path) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Process)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Process)?;
    let listener = bind(&options.socket)
        .map_err(|source| Error::Listen { path: options.socket.clone(), source })?;
    let service = GrpcInferenceServiceServer::new(Service::default())
        .max_decoding_message_size(options.max_message)
        .max_encoding_message_size(options.max_message);
    let stop = CancellationToken::new();
    let server = connections(listener, TowerToHyperService::new(service), &stop);
    tracing::info!(
        grpc.socket = %options.socket.display(),
        onnxruntime.library = %library.display(),
        threads = options.threads,
        "listening"
    );
    let mut server = pin!(server);
    tokio::select! {
        () = &mut server => return Ok(()),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("shutting down");
    stop.cancel();
    if timeout(DRAIN, server).await.is_err() {
        tracing::warn!("calls in progress were cut off");
    }
    fs::remove_file(&options.socket).ok();
    Ok(())
}

/// Answers calls until `stop`, and then only those in progress. A call has no deadline here: its
/// answer shows that its run has ended.
async fn connections(listener: UnixListener, service: Calls, stop: &CancellationToken) {
    let connections = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(None)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(socket), service.clone());
        let stop = stop.clone();
        connections.spawn(async move {
            let mut connection = pin!(connection);
            if stop.run_until_cancelled(connection.as_mut()).await.is_none() {
                connection.as_mut().graceful_shutdown();
                connection.await.ok();
            }
        });
    }
    connections.close();
    connections.wait().await;
}

/// Listens on a socket, in place of one that an earlier process left.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}
