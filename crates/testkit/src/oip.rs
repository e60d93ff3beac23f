//! A scripted server of the Open Inference Protocol, for the quirks of known servers.
//!
//! A test gives the answer to each request. [`identity`] has the answers of a model that returns
//! its inputs, which a test then distorts.

pub mod identity;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::tls::acceptor;

/// The only protocol of a server's port, as with the known servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: the REST interface.
    Http1,
    /// HTTP/2: gRPC.
    Http2,
}

/// A request, as it was received.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Method and path, such as `POST /v2/models/m/infer`.
    pub call: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; over gRPC the message, without its prefix.
    pub body: Bytes,
}

/// An answer of the script.
#[derive(Debug, Clone)]
pub enum Answer {
    /// An answer over HTTP.
    Http(StatusCode, HeaderMap, Bytes),
    /// A message over gRPC.
    Message(Bytes),
    /// A gRPC status other than OK: its code and message.
    Status(i32, String),
    /// Another answer, after this time.
    After(Duration, Box<Self>),
    /// No answer, and an open connection.
    Never,
    /// The connection is closed.
    Close,
}

/// The time in which a client closes its side of a connection.
const PATIENCE: Duration = Duration::from_secs(20);
/// Any port of this machine.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

type Script = dyn Fn(&Seen) -> Answer + Send + Sync;

/// A server in the runtime of the test. It ends when it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    protocol: (Protocol, Option<TlsAcceptor>),
    running: Mutex<JoinHandle<()>>,
    connections: Connections,
}

/// The open connections, by number.
type Connections = Arc<Mutex<BTreeMap<usize, std::net::TcpStream>>>;

struct Shared {
    script: Mutex<Arc<Script>>,
    seen: Mutex<Vec<Seen>>,
}

impl Answer {
    /// A JSON document with this status.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::of(status, Some("application/json"), body)
    }

    /// A body with this content type, or without one.
    ///
    /// # Panics
    /// If the status or the type is not valid.
    pub fn of(status: u16, content_type: Option<&'static str>, body: impl Into<Bytes>) -> Self {
        let content_type = content_type.map(|it| (CONTENT_TYPE, HeaderValue::from_static(it)));
        let status = StatusCode::from_u16(status).expect("a status");
        Self::Http(status, content_type.into_iter().collect(), body.into())
    }

    /// The answer with another header, if it is one over HTTP.
    ///
    /// # Panics
    /// If the value is not valid.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Http(_, headers, _) = &mut self {
            headers.insert(name, value.parse().expect("the value of a header"));
        }
        self
    }
}

impl Server {
    /// Starts a server of one protocol, whose answers are those of `script`.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start(
        protocol: Protocol,
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::listen(ANY, (protocol, None), Arc::new(script)).await
    }

    /// As [`Self::start`], at the same port of another address of this machine.
    ///
    /// # Panics
    /// If the port is not free there.
    pub async fn start_beside(
        &self,
        address: IpAddr,
        protocol: Protocol,
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let address = SocketAddr::new(address, self.address.port());
        Self::listen(address, (protocol, None), Arc::new(script)).await
    }

    /// As [`Self::start`], with TLS; returns the certificate of its authority too, PEM.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start_tls(
        protocol: Protocol,
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> (Self, String) {
        let name: &[u8] = match protocol {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        };
        let (acceptor, authority) = acceptor(&[name]);
        (Self::listen(ANY, (protocol, Some(acceptor)), Arc::new(script)).await, authority)
    }

    async fn listen(
        at: SocketAddr,
        (protocol, tls): (Protocol, Option<TlsAcceptor>),
        script: Arc<Script>,
    ) -> Self {
        let listener = TcpListener::bind(at).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared { script: Mutex::new(script), seen: Mutex::default() });
        let connections = Connections::default();
        let how = (protocol, tls.clone());
        let running = serve(listener, how, Arc::clone(&shared), Arc::clone(&connections));
        let running = Mutex::new(tokio::spawn(running));
        Self { address, shared, protocol: (protocol, tls), running, connections }
    }

    /// Ends the server: connections break, and nothing listens. Returns once its clients have noticed
    /// it, so that none sends a request that is lost.
    ///
    /// # Panics
    /// If a client keeps its connection.
    pub async fn stop(&self) {
        let ended = std::mem::replace(&mut *lock(&self.running), tokio::spawn(async {}));
        ended.abort();
        ended.await.ok();
        let open = std::mem::take(&mut *lock(&self.connections));
        for stream in open.into_values() {
            stream.shutdown(Shutdown::Write).ok();
            let mut stream = TcpStream::from_std(stream).expect("a socket");
            let mut rest = tokio::io::sink();
            let closed = tokio::io::copy(&mut stream, &mut rest);
            timeout(PATIENCE, closed).await.expect("the client closes the connection").ok();
        }
    }

    /// Starts the server again at the same address.
    ///
    /// # Panics
    /// If the port is not free any more.
    pub async fn resume(&self) {
        let listener = TcpListener::bind(self.address).await.expect("the port is free");
        let shared = Arc::clone(&self.shared);
        let connections = Arc::clone(&self.connections);
        let running = serve(listener, self.protocol.clone(), shared, connections);
        *lock(&self.running) = tokio::spawn(running);
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address, `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Replaces the script.
    pub fn script(&self, script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) {
        *lock(&self.shared.script) = Arc::new(script);
    }

    /// All requests so far, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// The number of requests so far whose path ends so.
    pub fn count(&self, end: &str) -> usize {
        lock(&self.shared.seen).iter().filter(|seen| seen.call.ends_with(end)).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        lock(&self.running).abort();
    }
}

async fn serve(
    listener: TcpListener,
    (protocol, tls): (Protocol, Option<TlsAcceptor>),
    shared: Arc<Shared>,
    open: Connections,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("the listener works until it is dropped");
                let stream = stream.into_std().expect("a socket");
                lock(&open).insert(number, stream.try_clone().expect("a socket"));
                let stream = TcpStream::from_std(stream).expect("a socket");
                let (tls, shared) = (tls.clone(), Arc::clone(&shared));
                let open = Arc::clone(&open);
                connections.spawn(async move {
                    match tls {
                        None => converse(stream, protocol, shared).await,
                        // A client that does not trust the authority ends the handshake.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                converse(stream, protocol, shared).await;
                            }
                        }
                    }
                    lock(&open).remove(&number);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. An error means that the client has gone, or speaks another protocol.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    protocol: Protocol,
    shared: Arc<Shared>,
) {
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    let stream = TokioIo::new(stream);
    match protocol {
        Protocol::Http1 => {
            let builder = hyper::server::conn::http1::Builder::new();
            builder.serve_connection(stream, service).await.ok();
        }
        Protocol::Http2 => {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.serve_connection(stream, service).await.ok();
        }
    }
}

/// The script closes the connection.
#[derive(Debug, thiserror::Error)]
#[error("the script closes the connection")]
struct Closed;

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Closed> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let is_grpc = head.headers.get(CONTENT_TYPE).is_some_and(|it| it == GRPC);
    let body = if is_grpc { body.slice(5.min(body.len())..) } else { body };
    let call = format!("{} {}", head.method, head.uri.path());
    let seen = Seen { call, headers: head.headers, body };
    lock(&shared.seen).push(seen.clone());
    let script = Arc::clone(&lock(&shared.script));
    respond(script(&seen)).await
}

async fn respond(answer: Answer) -> Result<Response<BoxBody<Bytes, Infallible>>, Closed> {
    match answer {
        Answer::Http(status, headers, body) => {
            let mut response = Response::new(Full::new(body).boxed());
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            Ok(response)
        }
        Answer::Message(message) => {
            let mut framed = vec![0];
            let length = u32::try_from(message.len()).expect("a short message");
            framed.extend(length.to_be_bytes());
            framed.extend_from_slice(&message);
            Ok(grpc(framed.into(), "0", ""))
        }
        Answer::Status(code, message) => Ok(grpc(Bytes::new(), &code.to_string(), &message)),
        Answer::After(time, then) => {
            sleep(time).await;
            Box::pin(respond(*then)).await
        }
        Answer::Never => pending().await,
        Answer::Close => Err(Closed),
    }
}

const GRPC: &str = "application/grpc";

/// An answer over gRPC, with the status in its trailers.
fn grpc(body: Bytes, code: &str, message: &str) -> Response<BoxBody<Bytes, Infallible>> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.parse().expect("a number"));
    trailers.insert("grpc-message", message.parse().expect("plain text"));
    let trailers = std::future::ready(Some(Ok(trailers)));
    let mut response = Response::new(Full::new(body).with_trailers(trailers).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
