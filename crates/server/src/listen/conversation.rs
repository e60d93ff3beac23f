//! One connection of a listener, from its handshake to its end.

use std::{
    convert::Infallible,
    future::pending,
    io::{self, Cursor},
    net::SocketAddr,
    pin::Pin,
    time::Duration,
};

use axum::{
    BoxError,
    body::Bytes,
    http::{Request, Response, Version},
};
use bytes::BytesMut;
use h2::server::SendResponse;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use outrigger_net::{Cork, Corked};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader},
    net::TcpStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    App, Arriving, HEADERS_TIMEOUT, LAST_ANSWERS, LEAVING,
    bodies::Bodies,
    direct::{Direct, is_http2},
    endings::Endings,
    frames::{Frames, Unpaid},
    places::Place,
    respond::respond,
    unread::Unread,
    with_windows,
};
use crate::{
    caller::Peer,
    metrics,
    tls::{Acceptor, Vouched},
};

/// The state that a listener shares with each of its connections.
#[derive(Clone)]
pub(super) struct Conversation<A> {
    pub(super) listener: &'static str,
    pub(super) app: A,
    pub(super) tls: Option<Acceptor>,
    pub(super) send_timeout: Duration,
    pub(super) builder: Builder<TokioExecutor>,
    pub(super) unread: Unread,
    pub(super) endings: Endings,
    pub(super) stop: CancellationToken,
}

/// The two ends of a connection.
struct Ends<'a> {
    /// That of the socket.
    cork: &'a Cork<TcpStream>,
    peer: Peer,
    vouched: Option<Vouched>,
    place: &'a Place,
}

impl<A: App> Conversation<A> {
    /// Serves one connection as long as it may keep its place.
    pub(super) async fn hold(self, stream: TcpStream, from: SocketAddr, place: &Place) {
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
                let peer = Peer::new(from, None);
                self.converse(socket, Ends { cork: &cork, peer, vouched: None, place }).await;
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
            let peer = Peer::new(from, identity);
            self.converse(stream, Ends { cork: &cork, peer, vouched, place }).await;
        }
    }

    /// Records a failed handshake. Any peer can cause one, so it increments a counter and is logged
    /// at debug only.
    fn unshaken(&self, from: SocketAddr, error: &io::Error) {
        metrics::handshake_failed(self.listener);
        tracing::debug!(listener = self.listener, peer = %from, %error, "a handshake failed");
    }

    /// Serves the requests on `stream`, by the protocol that it begins with.
    async fn converse<S>(&self, mut stream: S, ends: Ends<'_>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        ends.place.begins(&ends.peer);
        if !A::IS_DIRECT {
            return self.by_hyper(stream, ends).await;
        }
        let mut first = BytesMut::new();
        let reading = timeout(HEADERS_TIMEOUT, is_http2(&mut stream, &mut first));
        match self.stop.run_until_cancelled(reading).await {
            Some(Ok(Ok(true))) => self.directly(stream, first, ends).await,
            Some(Ok(Ok(false))) => {
                let (reader, writer) = tokio::io::split(stream);
                let reader = Cursor::new(first).chain(reader);
                self.by_hyper(tokio::io::join(reader, writer), ends).await;
            }
            _ => {}
        }
    }

    async fn by_hyper<S>(&self, stream: S, ends: Ends<'_>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = Frames::new(stream);
        let unpaid = stream.unpaid();
        let (peer, place) = (ends.peer.clone(), ends.place);
        let (_member, share) = (self.unread.enter(), self.unread.share());
        let builder = with_windows(self.builder.clone(), share);
        let service = service_fn(|request: Request<Incoming>| {
            let shares = request.version() == Version::HTTP_2;
            let request = request.map(|body| Arriving::new(body, shares));
            let answer = self.answer(request, &peer, place, &unpaid);
            async { Ok::<_, Infallible>(answer.await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        self.attend(connection, |connection| connection.graceful_shutdown(), ends).await;
    }

    async fn directly<S>(&self, stream: S, first: BytesMut, ends: Ends<'_>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, place) = (ends.peer.clone(), ends.place);
        let handler = |unpaid: Unpaid| {
            move |request: Request<Arriving>, response: SendResponse<Bytes>| {
                let answer = self.answer(request, &peer, place, &unpaid);
                tokio::spawn(respond(answer, response));
            }
        };
        let bodies = Bodies::new(&self.unread, ends.peer.unsent());
        let connection = Direct::new(stream, first, bodies, handler);
        self.attend(connection, |connection| connection.get_mut().leave(), ends).await;
    }

    /// Answers a request. The answer pays for frames in vain.
    fn answer(
        &self,
        request: Request<Arriving>,
        peer: &Peer,
        place: &Place,
        unpaid: &Unpaid,
    ) -> Pin<Box<impl Future<Output = Response<A::Body>> + Send + 'static + use<A>>> {
        let (answering, unpaid) = (place.answering(), unpaid.clone());
        let answer = self.app.clone().answer(peer.clone(), request);
        // The future has kilobytes, and it is moved a dozen times, so it is boxed.
        Box::pin(async move {
            let _answering = answering;
            let answer = answer.await;
            unpaid.answered();
            answer
        })
    }

    /// Drives a connection until it ends, the caller's certificate becomes invalid, or it has to
    /// give up its place. `leave` lets the peer send no more requests.
    async fn attend<C>(&self, connection: C, leave: impl Fn(Pin<&mut C>), ends: Ends<'_>)
    where
        C: Future<Output = Result<(), BoxError>>,
    {
        let Ends { cork, peer, vouched, place } = ends;
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = cork.pulled_after(connection.as_mut()) => Some(ended),
            () = self.stop.cancelled() => {
                leave(connection.as_mut());
                Some(cork.pulled_after(connection).await)
            }
            time = over(vouched, place) => {
                leave(connection.as_mut());
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
            self.endings.record(peer.address(), &*error);
        }
    }
}

/// Waits until the caller's certificate has become invalid or the connection has to give up its
/// place. Returns the time that requests in flight get.
async fn over(vouched: Option<Vouched>, place: &Place) -> Duration {
    let invalid = async {
        match vouched {
            Some(vouched) => vouched.over().await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = invalid => LAST_ANSWERS,
        () = place.leave() => LEAVING,
    }
}
