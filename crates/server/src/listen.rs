//! Listeners: they bind their addresses before anything else starts, and close connections in
//! order.

mod arriving;
mod frames;
mod places;

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
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

pub(crate) use self::{
    arriving::Arriving,
    places::{Places, Shares, raise_descriptors},
};
use self::{
    frames::{Flood, Frames},
    places::Place,
};
use crate::{
    caller::Peer,
    metrics::{self, Ending},
    runtimes::Seats,
    sending::counted,
    tls::{Acceptor, Vouched},
};

/// HTTP/2 flow control. A request of a megabyte must not wait for window updates: a stream's window
/// holds several of them, a connection's window as many as are likely at once.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
const FRAME: u32 = 1 << 20;
/// The most bytes of a request's headers, as HTTP/2 counts them; gRPC's are a few hundred.
const HEADERS: u32 = 16 << 10;
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
    /// The name of the listener: `grpc`, `http`, `health` or `admin`.
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
    /// Each connection has one of `places`, and is served on the seat that `seats` assigns to it.
    pub(crate) async fn serve(
        self,
        app: impl App,
        seats: Seats,
        places: Places,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(self.socket)?;
        let conversation = Conversation {
            listener: self.name,
            app,
            tls: self.tls,
            send_timeout: self.send_timeout,
            builder: Arc::new(protocol()),
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

/// The state that a listener shares with each of its connections.
#[derive(Clone)]
struct Conversation<A> {
    listener: &'static str,
    app: A,
    tls: Option<Acceptor>,
    send_timeout: Duration,
    builder: Arc<Builder<TokioExecutor>>,
    stop: CancellationToken,
}

impl<A: App> Conversation<A> {
    /// Serves one connection as long as it may keep its place.
    async fn hold(self, stream: TcpStream, from: SocketAddr, place: &Place) {
        tokio::select! {
            () = self.begin(stream, from, place) => {}
            () = place.cut() => {}
        }
    }

    /// Serves one connection to its end; after `stop` it answers only the requests in flight.
    ///
    /// A silent peer must not hold a place for ever, so the handshake and the first byte after it
    /// have time limits.
    async fn begin(self, stream: TcpStream, from: SocketAddr, place: &Place) {
        // Answers are written as a whole, so Nagle's algorithm would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "TCP_NODELAY could not be set");
        }
        let Some(tls) = &self.tls else {
            let mut byte = [0];
            let first = timeout(HEADERS_TIMEOUT, stream.peek(&mut byte));
            if matches!(self.stop.run_until_cancelled(first).await, Some(Ok(Ok(1)))) {
                let socket = Corked::new(stream);
                let cork = socket.cork();
                self.converse(socket, &cork, Peer::new(from, None), None, place).await;
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
        // The buffer of one byte serves as a peek. Further reads are longer, and bypass the buffer.
        let mut stream = BufReader::with_capacity(1, stream);
        let first = timeout(HEADERS_TIMEOUT, stream.fill_buf());
        let first = self.stop.run_until_cancelled(first).await;
        if matches!(first, Some(Ok(Ok(read))) if !read.is_empty()) {
            self.converse(stream, &cork, Peer::new(from, identity), vouched, place).await;
        }
    }

    /// Records a failed handshake. Any peer can cause one, so it increments a counter and is logged
    /// at debug only.
    fn unshaken(&self, from: SocketAddr, error: &io::Error) {
        metrics::handshake_failed(self.listener);
        tracing::debug!(listener = self.listener, peer = %from, %error, "a handshake failed");
    }

    /// Serves the requests on `stream` until it ends, the caller's certificate becomes invalid
    /// (`vouched`, if it has one), or it has to give up its place. `cork` belongs to the socket of
    /// `stream`.
    async fn converse<S>(
        &self,
        stream: S,
        cork: &Cork<TcpStream>,
        peer: Peer,
        vouched: Option<Vouched>,
        place: &Place,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        place.begins(&peer);
        let stream = Frames::new(stream);
        let unpaid = stream.unpaid();
        let service = service_fn(|request: Request<Incoming>| {
            let (answering, unpaid) = (place.answering(), unpaid.clone());
            let shares = request.version() == Version::HTTP_2;
            let request = request.map(|body| Arriving::new(body, shares));
            // The future has kilobytes, and hyper and tokio move it a dozen times, so it is boxed.
            let answer = Box::pin(self.app.clone().answer(peer.clone(), request));
            async move {
                let _answering = answering;
                let answer = answer.await;
                unpaid.answered();
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let invalid = async {
            match vouched {
                Some(vouched) => vouched.over().await,
                None => pending().await,
            }
        };
        let over = async {
            tokio::select! {
                () = invalid => LAST_ANSWERS,
                () = place.leave() => LEAVING,
            }
        };
        let ended = tokio::select! {
            ended = cork.pulled_after(connection.as_mut()) => Some(ended),
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                Some(cork.pulled_after(connection).await)
            }
            time = over => {
                connection.as_mut().graceful_shutdown();
                // Streams without an end, such as watches, are cut off after a time.
                timeout(time, cork.pulled_after(connection)).await.ok()
            }
            // Dropping the connection frees the answers.
            () = peer.unsent().overdue(self.send_timeout) => {
                metrics::unread(self.listener);
                tracing::debug!(listener = self.listener, peer = %peer.address(), "an answer was not taken in time");
                None
            }
        };
        if let Some(Err(error)) = ended {
            self.broke(&*error);
        }
    }

    /// Records a connection that broke. Peers may disconnect at any time, so this is logged at
    /// debug only.
    fn broke(&self, error: &(dyn std::error::Error + 'static)) {
        if is_flood(error) {
            metrics::connection_ended(self.listener, Ending::Flood);
        }
        tracing::debug!(error, "a connection broke");
    }
}

/// Whether a flood of frames ended the connection.
fn is_flood(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|error| {
        let io = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error.is::<Flood>() || io.is_some_and(|inner| inner.is::<Flood>())
    })
}

/// HTTP/1, and HTTP/2 with prior knowledge as gRPC uses it.
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
mod floods;
#[cfg(test)]
mod tests;
