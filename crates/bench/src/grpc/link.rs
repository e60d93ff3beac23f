//! One HTTP/2 connection.

use std::io;

use bytes::Bytes;
use futures::future::BoxFuture;
use h2::{
    Ping, RecvStream,
    client::{self, SendRequest},
};
use http::Response;

use crate::{client::Protocol, failure::Failure, message::Message, server::Server, stream};

/// Windows hold several megabyte answers, so that none waits for an update.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
const FRAME: u32 = 1 << 20;

/// What requests are sent with.
#[derive(Debug, Clone)]
pub(super) struct Link(SendRequest<Bytes>);

/// Moves a connection's frames, until it ends.
pub(super) type Driver = BoxFuture<'static, ()>;

impl Link {
    /// Connects to a server that answers.
    pub(super) async fn open(server: &Server) -> Result<(Self, Driver), Failure> {
        let stream = stream::connect(server, Protocol::Grpc).await?;
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
            .enable_push(false);
        let (sender, mut connection) =
            builder.handshake(stream).await.map_err(Failure::of_stream)?;
        // The handshake waits for nothing, and the socket of a server that has gone may
        // still take connections.
        let mut pings = connection.ping_pong().expect("not taken before");
        tokio::select! {
            pong = pings.ping(Ping::opaque()) => pong.map_err(Failure::of_stream)?,
            ended = &mut connection => {
                ended.map_err(Failure::of_stream)?;
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        };
        // How it ends, the requests on it tell.
        Ok((Self(sender), Box::pin(async { drop(connection.await) })))
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        message: &Message,
    ) -> Result<Response<RecvStream>, h2::Error> {
        let (answer, mut body) = self.0.send_request(message.head.clone(), false)?;
        body.send_data(message.body.clone(), true)?;
        answer.await
    }
}
