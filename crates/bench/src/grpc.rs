//! gRPC over HTTP/2, as thin as it gets: h2's streams, one chunk a request, and
//! of the answer only what tells whether it is one.

use bytes::{Bytes, BytesMut};
use h2::{
    RecvStream,
    client::{self, SendRequest},
};
use tokio::{sync::watch, time::sleep};

use crate::{client::Protocol, failure::Failure, message::Message, server::Server, stream};

/// Windows hold several megabyte answers, so that none waits for an update.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
const FRAME: u32 = 1 << 20;

type Sender = SendRequest<Bytes>;

/// A connection that comes back by itself.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: watch::Receiver<Option<Sender>>,
}

impl Connection {
    /// Connects, and keeps connected for as long as the runtime lives.
    ///
    /// # Errors
    /// The first attempt failed.
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        let (sender, driver) = connect(server).await?;
        let (publish, receiver) = watch::channel(Some(sender));
        tokio::spawn(keep(server.clone(), driver, publish));
        Ok(Self { sender: receiver })
    }

    /// Sends a request and waits for its answer's message, without its frame.
    /// Waits as well while the connection is being made again.
    pub(crate) async fn call(&self, message: &Message) -> Result<Bytes, Failure> {
        let mut sender = self.sender().await?;
        let (answer, mut body) =
            sender.send_request(message.head.clone(), false).map_err(Failure::of_stream)?;
        body.send_data(message.body.clone(), true).map_err(Failure::of_stream)?;
        let (head, body) = answer.await.map_err(Failure::of_stream)?.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(Failure::of_http(head.status, b""));
        }
        if head.headers.contains_key("grpc-status") {
            let failure = Failure::of_grpc(&head.headers);
            return Err(failure.unwrap_or_else(|| Failure::invalid("an answer without a message")));
        }
        receive(body).await
    }

    async fn sender(&self) -> Result<Sender, Failure> {
        if let Some(sender) = &*self.sender.borrow() {
            return Ok(sender.clone());
        }
        let mut receiver = self.sender.clone();
        let sender = receiver.wait_for(Option::is_some).await.map_err(Failure::lost)?;
        Ok(sender.clone().expect("just waited for"))
    }
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

type Driver = futures::future::BoxFuture<'static, ()>;

/// Drives a connection, and the ones after it.
async fn keep(server: Server, driver: Driver, publish: watch::Sender<Option<Sender>>) {
    driver.await;
    publish.send_replace(None);
    loop {
        if let Ok((sender, driver)) = connect(&server).await {
            publish.send_replace(Some(sender));
            driver.await;
            publish.send_replace(None);
        }
        sleep(stream::RETRY).await;
    }
}

async fn connect(server: &Server) -> Result<(Sender, Driver), Failure> {
    let stream = stream::connect(server, Protocol::Grpc).await?;
    let mut builder = client::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .enable_push(false);
    let (sender, connection) = builder.handshake(stream).await.map_err(Failure::of_stream)?;
    // How it ends, the requests on it tell.
    Ok((sender, Box::pin(async { drop(connection.await) })))
}
