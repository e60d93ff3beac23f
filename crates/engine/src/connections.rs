//! Connections: accepted in one place, each served by one thread.
//!
//! A request is read, run and answered on the thread of its connection: waking
//! another costs as much as the work between two of them, and what one core has
//! read the other would have to fetch.

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

/// Requests of a megabyte should not wait for window updates.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
/// A request in one frame is read where it arrived.
const MAX_FRAME: u32 = 4 << 20;
/// Clients bring as many streams as they like, as with TensorFlow Serving; the
/// calls are limited.
const MAX_STREAMS: u32 = i32::MAX as u32;
/// Calls that are given up before they have been looked at, as after a moment in which
/// the machine did something else: more than a client is likely to have on a connection.
/// Without a bound they would pile up as fast as they can be sent and reset, which is
/// the "rapid reset" attack: beyond it the client loses its connection.
const MAX_GIVEN_UP: usize = 1024;
/// After a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where connections come in.
pub(crate) trait Listener: Send + Sync + 'static {
    /// A connection.
    type Socket: Socket;

    /// The next connection.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Socket>> + Send;
}

impl Listener for TcpListener {
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (socket, _) = TcpListener::accept(self).await?;
        // Answers are written whole: waiting for more would only delay them.
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

/// Answers calls until `closing`; then accepts no more connections, tells peers
/// to send no more calls, and returns when those in flight are answered.
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
                        converse(socket, services, closing).await;
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

/// Serves one connection to its end; after `closing` only what is in flight.
async fn converse(socket: impl Socket, services: Services, closing: CancellationToken) {
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
        .max_pending_accept_reset_streams(MAX_GIVEN_UP)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = cork.pulled_after(connection.as_mut()) => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            cork.pulled_after(connection).await
        }
    };
    if let Err(error) = ended {
        // Peers go away as they like.
        tracing::debug!(%error, "a connection broke");
    }
}
