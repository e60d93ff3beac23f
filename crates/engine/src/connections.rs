//! Accepts connections and serves each of them on one thread.
//!
//! A request is read, run and answered on the thread of its connection: waking another
//! thread costs as much as all the work between reading and running, and the other core
//! would have to fetch the request into its cache.

mod authority;

use std::{convert::Infallible, io, time::Duration};

use hyper::{server::conn::http2::Builder, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use outrigger_net::{Corked, Seats, Socket};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::surface::Services;
use authority::Plain;

/// Large enough that requests of a megabyte do not wait for window updates.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
/// Large enough that a typical request is one frame and can be read in place.
const MAX_FRAME: u32 = 4 << 20;
/// Clients may open any number of streams, as with TensorFlow Serving; the number of
/// calls is limited instead.
const MAX_STREAMS: u32 = i32::MAX as u32;
/// Calls that the client may reset before the server has read them, for example
/// after a pause of the machine: more than a client is likely to have open on a
/// connection. Beyond this number the connection is closed. Without the limit a client
/// could send and reset calls without end, the "rapid reset" attack.
const MAX_PENDING_RESETS: usize = 1024;
/// Pause after a failed accept, which is most likely caused by a lack of file
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A source of incoming connections.
pub(crate) trait Listener: Send + Sync + 'static {
    /// The connection's socket.
    type Socket: Socket;

    /// Waits for the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Socket>> + Send;
}

impl Listener for TcpListener {
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (socket, _) = TcpListener::accept(self).await?;
        // Answers are written as a whole, so Nagle's algorithm would only delay them.
        socket.set_nodelay(true)?;
        Ok(socket)
    }
}

impl Listener for UnixListener {
    type Socket = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        UnixListener::accept(self).await.map(|(socket, _)| socket)
    }
}

/// Answers calls until `closing` is cancelled. Then it accepts no more connections,
/// announces the shutdown to the peers, and returns when the calls in flight are
/// answered.
pub(crate) async fn serve<L: Listener>(
    listener: L,
    services: Services,
    seats: Seats,
    closing: CancellationToken,
) {
    let connections = TaskTracker::new();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok(socket) => {
                    let seat = seats.take();
                    let runtime = seat.runtime().clone();
                    let (services, closing) = (services.clone(), closing.clone());
                    let serving = async move {
                        let _seat = seat;
                        serve_connection(socket, services, closing).await;
                    };
                    connections.spawn_on(serving, &runtime);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    closing.run_until_cancelled(accepting).await;
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Serves one connection to its end; after `closing` only the calls in flight.
async fn serve_connection(socket: impl Socket, services: Services, closing: CancellationToken) {
    let socket = match socket.here() {
        Ok(socket) => Corked::new(socket),
        Err(error) => return tracing::warn!(%error, "a connection could not be moved"),
    };
    let cork = socket.cork();
    let service = service_fn(move |request| {
        let services = services.clone();
        async move { Ok::<_, Infallible>(services.answer(request).await) }
    });
    let connection = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(Plain::new(socket)), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = cork.pulled_after(connection.as_mut()) => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            cork.pulled_after(connection).await
        }
    };
    if let Err(error) = ended {
        // A peer may close its connection at any time, so this is no warning.
        tracing::debug!(%error, "a connection broke");
    }
}
