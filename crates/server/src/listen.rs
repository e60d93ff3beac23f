//! Listeners: bound before anything else, and connections that end in order.

mod arriving;

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use axum::{
    BoxError, Router,
    body::{Bytes, HttpBody as Body},
    http::{Request, Response, Version},
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use outrigger_net::{Cork, Corked, Socket as _};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

pub(crate) use self::arriving::Arriving;
use crate::{
    caller::Peer,
    metrics,
    runtimes::Seats,
    tls::{Acceptor, Vouched},
};

/// Connections of one listener; more wait to be accepted.
const MOST_CONNECTIONS: usize = 8192;
/// A megabyte request must not wait for window updates: a stream's window holds
/// several, a connection's as many as are likely at once.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
const FRAME: u32 = 1 << 20;
/// Bytes of a request's headers, as HTTP/2 counts them: gRPC's are a few hundred.
const HEADERS: u32 = 16 << 10;
const STREAMS: u32 = 1024;
/// Requests that are given up before they have been looked at, as after a moment in
/// which the machine did something else: all that a caller may have open at once. Such
/// requests are not open any more, and would without a bound pile up as fast as they
/// can be sent and reset, which is the "rapid reset" attack: beyond it the caller loses
/// its connection.
const GIVEN_UP: usize = STREAMS as usize;
/// A peer that does not answer a ping is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// For the first byte of a connection, and the headers of an HTTP/1 request.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(15);
/// For what is under way when nobody vouches for a caller any more.
const LAST_ANSWERS: Duration = Duration::from_secs(60);
/// After a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers the requests that come in on a listener.
pub(crate) trait App: Clone + Send + Sync + 'static {
    /// The bodies of its answers.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Answers a request of `peer`.
    fn answer(
        self,
        peer: Peer,
        request: Request<Arriving>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Handlers find the peer among the request's extensions.
impl App for Router {
    type Body = axum::body::Body;

    async fn answer(self, peer: Peer, mut request: Request<Arriving>) -> Response<Self::Body> {
        request.extensions_mut().insert(peer);
        self.oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

/// A listener whose address is taken.
pub(crate) struct Listener {
    name: &'static str,
    socket: StdListener,
    tls: Option<Acceptor>,
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {name}")]
pub struct BindError {
    /// Which listener: `grpc`, `http`, `health`, `admin`.
    pub name: &'static str,
    /// Its address.
    pub address: SocketAddr,
    #[source]
    source: io::Error,
}

impl Listener {
    /// Takes an address. Callers are not answered yet, but may connect. With `tls`,
    /// connections begin with its handshake.
    pub(crate) fn bind(
        name: &'static str,
        address: SocketAddr,
        tls: Option<Acceptor>,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError { name, address, source };
        let socket = StdListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        metrics::listener_begins(name, tls.is_some());
        Ok(Self { name, socket, tls })
    }

    /// The address, with the port the system chose for port 0.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Answers connections with `app` until `stop`; then accepts no more, tells
    /// peers to send no more requests, and returns when what is in flight has
    /// been answered.
    ///
    /// A connection is served on the seat that it is given.
    pub(crate) async fn serve(
        self,
        app: impl App,
        seats: Seats,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(self.socket)?;
        let conversation = Conversation {
            listener: self.name,
            app,
            tls: self.tls,
            builder: Arc::new(protocol()),
            stop: stop.clone(),
        };
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let connections = TaskTracker::new();
        let accepting = async {
            loop {
                let ((stream, from), place) = accept(&listener, &places).await;
                let conversation = conversation.clone();
                let (name, seat) = (self.name, seats.take());
                let runtime = seat.runtime().clone();
                let serving = async move {
                    let (_place, _seat, _counted) = (place, seat, metrics::connection(name));
                    match stream.here() {
                        Ok(stream) => conversation.begin(stream, from).await,
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

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> ((TcpStream, SocketAddr), OwnedSemaphorePermit) {
    let place = Arc::clone(places).acquire_owned().await.expect("never closed");
    loop {
        match listener.accept().await {
            Ok(accepted) => return (accepted, place),
            Err(error) => {
                tracing::warn!(error = %error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What a listener does with every connection.
#[derive(Clone)]
struct Conversation<A> {
    listener: &'static str,
    app: A,
    tls: Option<Acceptor>,
    builder: Arc<Builder<TokioExecutor>>,
    stop: CancellationToken,
}

impl<A: App> Conversation<A> {
    /// Serves one connection to its end; after `stop` only what is in flight.
    ///
    /// Who connects and says nothing must not keep a place for ever: the handshake
    /// has its time, and so has the first byte after it.
    async fn begin(self, stream: TcpStream, from: SocketAddr) {
        // Answers are written whole: waiting for more would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "no delay could not be set");
        }
        let Some(tls) = &self.tls else {
            let mut byte = [0];
            let first = timeout(HEADERS_TIMEOUT, stream.peek(&mut byte));
            if matches!(self.stop.run_until_cancelled(first).await, Some(Ok(Ok(1)))) {
                let socket = Corked::new(stream);
                let cork = socket.cork();
                self.converse(socket, &cork, Peer::new(from, None), None).await;
            }
            return;
        };
        let socket = Corked::new(stream);
        let cork = socket.cork();
        let handshake = cork.pulled_after(Box::pin(tls.shake(socket)));
        let (stream, identity, vouched) = match self.stop.run_until_cancelled(handshake).await {
            Some(Ok(shaken)) => shaken,
            Some(Err(error)) => return self.unshaken(from, &error),
            None => return,
        };
        // As good as a peek; further reads are longer, and pass the buffer by.
        let mut stream = BufReader::with_capacity(1, stream);
        let first = timeout(HEADERS_TIMEOUT, stream.fill_buf());
        let first = self.stop.run_until_cancelled(first).await;
        if matches!(first, Some(Ok(Ok(read))) if !read.is_empty()) {
            self.converse(stream, &cork, Peer::new(from, identity), vouched).await;
        }
    }

    /// Peers try what they like: that is for a counter, not for the log.
    fn unshaken(&self, from: SocketAddr, error: &io::Error) {
        metrics::handshake_failed(self.listener);
        tracing::debug!(listener = self.listener, peer = %from, %error, "a handshake failed");
    }

    /// Serves what comes in on `stream`, whose socket `cork` is of, for as long as its
    /// caller is `vouched` for, if that takes anybody.
    async fn converse<S>(
        &self,
        stream: S,
        cork: &Cork<TcpStream>,
        peer: Peer,
        vouched: Option<Vouched>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let shares = request.version() == Version::HTTP_2;
            let request = request.map(|body| Arriving::new(body, shares));
            // On the heap: it has kilobytes, and hyper and tokio hand it on a dozen times.
            let answer = Box::pin(self.app.clone().answer(peer.clone(), request));
            async { Ok::<_, Infallible>(answer.await) }
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let over = async {
            match vouched {
                Some(vouched) => vouched.over().await,
                None => pending().await,
            }
        };
        let ended = tokio::select! {
            ended = cork.pulled_after(connection.as_mut()) => Some(ended),
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                Some(cork.pulled_after(connection).await)
            }
            () = over => {
                connection.as_mut().graceful_shutdown();
                // What would go on for ever, as a watch does, is cut off.
                timeout(LAST_ANSWERS, cork.pulled_after(connection)).await.ok()
            }
        };
        if let Some(Err(error)) = ended {
            // Peers go away as they like.
            tracing::debug!(error = %error, "a connection broke");
        }
    }
}

/// HTTP/2 by prior knowledge, as gRPC does, and HTTP/1.
fn protocol() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(GIVEN_UP)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests;
