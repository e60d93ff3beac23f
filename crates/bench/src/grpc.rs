//! gRPC over HTTP/2, as thin as it gets: h2's streams, one chunk a request, and
//! of the answer only what tells whether it is one.

mod link;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream};
use http::Response;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use self::link::{Driver, Link};
use crate::{failure::Failure, message::Message, server::Server, stream};

/// A connection that comes back by itself.
#[derive(Debug)]
pub(crate) struct Connection {
    current: Arc<Current>,
}

/// The link that new requests go to, with its number; none while it is being made.
type Current = watch::Sender<Option<(u64, Link)>>;

impl Connection {
    /// Connects, and keeps connected for as long as the runtime lives.
    ///
    /// # Errors
    /// The first attempt failed.
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        let (link, driver) = stream::soon(Link::open(server)).await?;
        let current = Arc::new(Current::new(None));
        begin(&current, 0, link, driver);
        tokio::spawn(keep(server.clone(), Arc::clone(&current)));
        Ok(Self { current })
    }

    /// Sends a request and waits for its answer's message, without its frame.
    /// Waits as well while the connection is being made again. A request that a server
    /// which shuts down has not looked at goes to the next one, as with all gRPC clients.
    pub(crate) async fn call(&self, message: &Message) -> Result<Bytes, Failure> {
        loop {
            let (number, mut link) = self.link().await;
            match link.send(message).await {
                Ok(answer) => return read(answer).await,
                Err(error) if is_farewell(&error) => end(&self.current, number),
                Err(error) => return Err(Failure::of_stream(error)),
            }
        }
    }

    async fn link(&self) -> (u64, Link) {
        if let Some(link) = &*self.current.borrow() {
            return link.clone();
        }
        let mut current = self.current.subscribe();
        let link = current.wait_for(Option::is_some).await.expect("its sender is here");
        link.clone().expect("just waited for")
    }
}

/// Whether a server took no more requests when this one came.
fn is_farewell(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
}

/// Makes a link the current one. It answers what was sent on it also when it is that
/// no more.
fn begin(current: &Arc<Current>, number: u64, link: Link, driver: Driver) {
    current.send_replace(Some((number, link)));
    let current = Arc::clone(current);
    tokio::spawn(async move {
        driver.await;
        end(&current, number);
    });
}

/// Takes no more requests for a link.
fn end(current: &Current, number: u64) {
    current.send_if_modified(|link| link.take_if(|(other, _)| *other == number).is_some());
}

/// Makes a new link whenever there is none.
async fn keep(server: Server, current: Arc<Current>) {
    let mut watched = current.subscribe();
    for number in 1.. {
        let begun = Instant::now();
        drop(watched.wait_for(Option::is_none).await);
        // None that ends at once is made over and over.
        sleep_until(begun + stream::RETRY).await;
        if let Ok((link, driver)) = stream::soon(Link::open(&server)).await {
            begin(&current, number, link, driver);
        }
    }
}

async fn read(answer: Response<RecvStream>) -> Result<Bytes, Failure> {
    let (head, body) = answer.into_parts();
    if head.status != http::StatusCode::OK {
        return Err(Failure::of_http(head.status, b""));
    }
    if head.headers.contains_key("grpc-status") {
        let failure = Failure::of_grpc(&head.headers);
        return Err(failure.unwrap_or_else(|| Failure::invalid("an answer without a message")));
    }
    receive(body).await
}

async fn receive(mut body: RecvStream) -> Result<Bytes, Failure> {
    let mut message = Bytes::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(Failure::of_stream)?;
        body.flow_control().release_capacity(chunk.len()).map_err(Failure::of_stream)?;
        message = if message.is_empty() { chunk } else { joined(message, &chunk) };
    }
    let trailers = body.trailers().await.map_err(Failure::of_stream)?;
    if let Some(failure) = Failure::of_grpc(&trailers.unwrap_or_default()) {
        return Err(failure);
    }
    unframed(message)
}

fn joined(message: Bytes, chunk: &[u8]) -> Bytes {
    let mut message = BytesMut::from(message);
    message.extend_from_slice(chunk);
    message.freeze()
}

/// The one message of an answer that is not compressed.
fn unframed(mut body: Bytes) -> Result<Bytes, Failure> {
    match body.split_first_chunk::<5>() {
        Some(([0, length @ ..], rest)) if u32::from_be_bytes(*length) as usize == rest.len() => {
            Ok(body.split_off(5))
        }
        _ => Err(Failure::invalid("an answer that is not one plain message")),
    }
}
