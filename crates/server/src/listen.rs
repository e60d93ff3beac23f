//! Listeners: they bind their addresses before anything else starts, and close connections in
//! order.

mod ahead;
mod arriving;
mod bodies;
mod conversation;
mod direct;
mod endings;
mod frames;
mod places;
mod respond;
mod unread;
mod windows;

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    time::Duration,
};

use axum::{
    BoxError, Router,
    body::{Bytes, HttpBody as Body},
    http::{Request, Response},
};
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use outrigger_net::Socket as _;
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

pub(crate) use self::{
    arriving::{Arriving, unread},
    places::{Places, Shares, raise_descriptors},
    unread::Unread,
};
use self::{conversation::Conversation, endings::Endings};
use crate::{caller::Peer, metrics, runtimes::Seats, sending::counted, tls::Acceptor};

/// HTTP/2 flow control, in calm. A request of a megabyte must not wait for window updates: a stream's
/// window holds several of them, a connection's window as many as are likely at once. That of a
/// connection is at most its share of the pool of unread bytes; see [`windows`].
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
const FRAME: u32 = 1 << 20;
/// The most bytes of a request's headers, as HTTP/2 counts them; gRPC's are a few hundred.
const HEADERS: u32 = 16 << 10;
/// The most bytes that hyper reads ahead of a body over HTTP/1.
const HTTP1_BUFFER: usize = 256 << 10;
const STREAMS: u32 = 1024;
/// The most requests of a connection that were reset before the server looked at them: as many as a
/// caller may have open at once, because all of them can be reset while the machine is busy. Reset
/// requests do not count as open, so without a bound they would pile up as fast as a peer can send
/// and reset them (the "rapid reset" attack). Beyond the bound the peer loses its connection.
const GIVEN_UP: usize = STREAMS as usize;
/// HTTP/2 keep-alive: a peer that does not answer a ping is considered gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit for the first byte of a connection, and for the headers of an HTTP/1 request.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(15);
/// The time that requests in flight get after the caller's certificate has become invalid.
const LAST_ANSWERS: Duration = Duration::from_secs(60);
/// The time that requests in flight get when a connection has to leave for another one.
const LEAVING: Duration = Duration::from_secs(5);
/// The pause after a failed accept, which is most likely due to a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An application that answers the requests of a listener.
pub(crate) trait App: Clone + Send + Sync + 'static {
    /// The body type of its responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// True if requests wait at their headers, with their bodies at the senders. Such an application is
    /// served over HTTP/2 without hyper.
    const IS_DIRECT: bool = false;

    /// Answers a request of `peer`.
    fn answer(
        self,
        peer: Peer,
        request: Request<Arriving>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Stores the peer in the request's extensions, where handlers find it.
impl App for Router {
    type Body = axum::body::Body;

    async fn answer(self, peer: Peer, mut request: Request<Arriving>) -> Response<Self::Body> {
        request.extensions_mut().insert(peer.clone());
        let response = self.oneshot(request).await.unwrap_or_else(|never| match never {});
        response.map(|body| counted(body, peer.unsent()))
    }
}

/// A bound listener.
pub(crate) struct Listener {
    name: &'static str,
    socket: StdListener,
    tls: Option<Acceptor>,
    send_timeout: Duration,
}

/// An address that a listener cannot bind.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {name}")]
pub struct BindError {
    /// The name of the listener: `grpc`, `http`, `health`, `admin`, `xgboost_serving` or `oip`.
    pub name: &'static str,
    /// The address of the listener.
    pub address: SocketAddr,
    #[source]
    source: io::Error,
}

impl Listener {
    /// Binds an address. Callers may connect, but are not answered yet. With `tls`, connections
    /// begin with a handshake. A connection that has not sent an answer after `send_timeout` ends.
    pub(crate) fn bind(
        name: &'static str,
        address: SocketAddr,
        tls: Option<Acceptor>,
        send_timeout: Duration,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError { name, address, source };
        let socket = StdListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        metrics::listener_begins(name, tls.is_some());
        Ok(Self { name, socket, tls, send_timeout })
    }

    /// The address, with the port the system chose for port 0.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Answers requests with `app` until `stop`. Then it accepts no more connections, signals peers
    /// to send no more requests (GOAWAY), and returns when all requests in flight are answered.
    ///
    /// Each connection has one of `places`, and is served on the seat that `seats` assigns to it. Its
    /// unread bytes are in the pool `unread`.
    pub(crate) async fn serve(
        self,
        app: impl App,
        seats: Seats,
        places: Places,
        unread: Unread,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(self.socket)?;
        let conversation = Conversation {
            listener: self.name,
            app,
            tls: self.tls,
            send_timeout: self.send_timeout,
            builder: protocol(),
            unread,
            endings: Endings::of(self.name),
            stop: stop.clone(),
        };
        let connections = TaskTracker::new();
        let accepting = async {
            loop {
                let (stream, from) = accept(&listener, &places).await;
                let place = places.enter(self.name, from).await;
                let conversation = conversation.clone();
                let (name, seat) = (self.name, seats.take());
                let runtime = seat.runtime().clone();
                let serving = async move {
                    let (_seat, _counted) = (seat, metrics::connection(name));
                    match stream.here() {
                        Ok(stream) => conversation.hold(stream, from, &place).await,
                        Err(error) => tracing::warn!(%error, "a connection could not be moved"),
                    }
                };
                connections.spawn_on(serving, &runtime);
            }
        };
        stop.run_until_cancelled(accepting).await;
        drop(listener);
        connections.close();
        connections.wait().await;
        Ok(())
    }
}

async fn accept(listener: &TcpListener, places: &Places) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(error = %error, "a connection could not be accepted");
                places.relieve();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// HTTP/1, and HTTP/2 with prior knowledge as gRPC uses it. Answers have no `date`: hyper panics where
/// the clock is beyond the year 9999.
fn protocol() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(GIVEN_UP)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
        .http1()
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT);
    builder
}

/// Gives a connection windows and a buffer within its share of the pool of unread bytes: hyper keeps
/// what nobody reads up to these. Headers must fit in the buffer of HTTP/1.
fn with_windows(mut builder: Builder<TokioExecutor>, share: usize) -> Builder<TokioExecutor> {
    let connection = u32::try_from(share).unwrap_or(CONNECTION_WINDOW).min(CONNECTION_WINDOW);
    builder
        .http2()
        .initial_stream_window_size(connection.min(STREAM_WINDOW))
        .initial_connection_window_size(connection);
    builder.http1().max_buf_size((share / 4).clamp(HEADERS as usize, HTTP1_BUFFER));
    builder
}

#[cfg(test)]
mod crowds;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod floods;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod tests;
