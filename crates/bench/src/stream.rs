//! Byte streams to a server.

use std::{future::Future, io, time::Duration};

use outrigger_rpc::Plain;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use crate::{client::Protocol, failure::Failure, server::Server};

/// A connection over TCP or a Unix socket, with or without TLS.
pub(crate) type Stream = Either<Plain, Box<TlsStream<Plain>>>;

/// Pause after a failed attempt to connect.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// Size of the socket's send buffer in bytes. The system's default is megabytes, which have
/// left the CPU caches by the time they are read: a request of half a megabyte then costs
/// both sides a fifth more.
const SEND_BUFFER: usize = 512 << 10;

/// Time limit for opening a connection, handshakes included.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Applies the time limit to `connecting`.
pub(crate) async fn within_limit<T>(
    connecting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(LIMIT, connecting).await.unwrap_or_else(|_| Err(Failure::silence(LIMIT)))
}

/// Connects to `server` for requests of `protocol`.
pub(crate) async fn connect(server: &Server, protocol: Protocol) -> io::Result<Stream> {
    let socket = server.endpoint.connect(Some(SEND_BUFFER)).await?;
    let Some(tls) = &server.tls else { return Ok(Either::Left(socket)) };
    let connector = TlsConnector::from(tls.config.clone());
    let connector = connector.with_alpn(vec![protocol.alpn().to_vec()]);
    let stream = connector.connect(tls.name.clone(), socket).await?;
    Ok(Either::Right(Box::new(stream)))
}
