//! The byte stream below a connection.

use std::io;

use http::Uri;
use outrigger_net::ReadAhead;
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_util::either::Either;

use crate::Endpoint;

/// TCP or a Unix socket, without TLS.
pub type Plain = Either<ReadAhead<TcpStream>, ReadAhead<UnixStream>>;

/// Makes the byte streams that connections use. An implementation for TLS wraps a [`Plain`] stream.
pub trait Dial: Clone + Send + Sync + 'static {
    /// A stream to the server.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Scheme and authority of the requests' URLs.
    fn origin(&self) -> Uri;

    /// Connects, including any handshake below HTTP/2.
    fn dial(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Dial for Endpoint {
    type Stream = Plain;

    fn origin(&self) -> Uri {
        Self::origin(self)
    }

    async fn dial(&self) -> io::Result<Plain> {
        self.connect(None).await
    }
}

impl Endpoint {
    /// Connects. `send_buffer` bounds the bytes that the kernel buffers for sending over TCP;
    /// without it the kernel chooses the size.
    ///
    /// # Errors
    /// If the name does not resolve, or nothing accepts the connection.
    pub async fn connect(&self, send_buffer: Option<usize>) -> io::Result<Plain> {
        match self {
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                Ok(Either::Right(ReadAhead::new(stream)))
            }
            Self::Tcp { host, port } => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let stream = TcpStream::connect((host, *port)).await?;
                // Requests are written whole, so Nagle's algorithm would only delay them.
                stream.set_nodelay(true)?;
                if let Some(bytes) = send_buffer {
                    set_socket_send_buffer_size(&stream, bytes)?;
                }
                Ok(Either::Left(ReadAhead::new(stream)))
            }
        }
    }
}
