//! Starts the process, serves, and ends it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use outrigger_proto::inference::grpc_inference_service_server::GrpcInferenceServiceServer;
use tokio::{
    net::UnixListener,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

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
    /// The listener failed.
    #[error("cannot serve: {0}")]
    Serve(#[source] tonic::transport::Error),
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
    let connections = UnixListenerStream::new(listener);
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .serve_with_incoming_shutdown(service, connections, stop.clone().cancelled_owned());
    tracing::info!(
        grpc.socket = %options.socket.display(),
        onnxruntime.library = %library.display(),
        threads = options.threads,
        "listening"
    );
    let mut server = pin!(server);
    tokio::select! {
        ended = &mut server => return ended.map_err(Error::Serve),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("shutting down");
    stop.cancel();
    let ended = timeout(DRAIN, server).await;
    fs::remove_file(&options.socket).ok();
    ended
        .unwrap_or_else(|_| {
            tracing::warn!("calls in progress were cut off");
            Ok(())
        })
        .map_err(Error::Serve)
}

/// Listens on a socket, in place of one that an earlier process left.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}
