//! Byte streams to a server.

use std::{io, time::Duration};

use outrigger_backend::Endpoint;
use tokio::net::{TcpStream, UnixStream};
use tokio_util::either::Either;

/// A connection over TCP or a unix socket.
pub(crate) type Stream = Either<TcpStream, UnixStream>;

/// Between two attempts to connect, when one has failed.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// Connects to `server`.
pub(crate) async fn connect(server: &Endpoint) -> io::Result<Stream> {
    match server {
        Endpoint::Unix(path) => UnixStream::connect(path).await.map(Either::Right),
        Endpoint::Tcp { host, port } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, *port)).await?;
            // Requests are written whole: waiting for more would only delay them.
            stream.set_nodelay(true)?;
            Ok(Either::Left(stream))
        }
    }
}
