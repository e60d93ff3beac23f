//! Byte streams to a server.

use std::{future::Future, io, time::Duration};

use outrigger_rpc::Plain;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use crate::{client::Protocol, failure::Failure, server::Server};

/// A connection over TCP or a unix socket, in the clear or encrypted.
pub(crate) type Stream = Either<Plain, Box<TlsStream<Plain>>>;

/// Between two attempts to connect, when one has failed.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// Bytes of requests that the system keeps to send. By default it keeps megabytes, which
/// have left the caches when they are read: a request of half a megabyte then costs both
/// sides a fifth more.
const SEND_BUFFER: usize = 512 << 10;

/// For a connection to come about, handshakes included.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Gives `connecting` up when a server takes too long for it.
pub(crate) async fn soon<T>(
    connecting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(LIMIT, connecting).await.unwrap_or_else(|_| Err(Failure::silence(LIMIT)))
}

/// Connects to `server`, to speak `protocol` there.
pub(crate) async fn connect(server: &Server, protocol: Protocol) -> io::Result<Stream> {
    let socket = server.endpoint.connect(Some(SEND_BUFFER)).await?;
    let Some(tls) = &server.tls else { return Ok(Either::Left(socket)) };
    let connector = TlsConnector::from(tls.config.clone());
    let connector = connector.with_alpn(vec![protocol.alpn().to_vec()]);
    let stream = connector.connect(tls.name.clone(), socket).await?;
    Ok(Either::Right(Box::new(stream)))
}
