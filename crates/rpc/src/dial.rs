//! The byte stream below a connection.

use std::{io, time::Duration};

use http::Uri;
use outrigger_net::ReadAhead;
use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_send_buffer_size, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, ToSocketAddrs, UnixStream},
};
use tokio_util::either::Either;

use crate::Endpoint;

/// The time without traffic after which the kernel asks whether a TCP peer is still there, the
/// interval of further questions, and the number of questions without an answer after which the
/// connection is broken. This detects a host that vanished in the middle of a call of hours, where
/// pings of HTTP/2 must be rare, and keeps such a connection in the tables of firewalls on the way.
/// It does not ask while data is unacknowledged; a ping of HTTP/2 detects that the peer has gone then.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

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
                let stream = connect_tcp((host, *port)).await?;
                if let Some(bytes) = send_buffer {
                    set_socket_send_buffer_size(&stream, bytes)?;
                }
                Ok(Either::Left(ReadAhead::new(stream)))
            }
        }
    }
}

async fn connect_tcp(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Requests are written whole, so Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    let (idle, interval, count) = KEEPALIVE;
    set_tcp_keepidle(&stream, idle)?;
    set_tcp_keepintvl(&stream, interval)?;
    set_tcp_keepcnt(&stream, count)?;
    set_socket_keepalive(&stream, true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_detects_a_peer_that_vanished_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("an address");
        let stream = connect_tcp(address).await.expect("connected");
        assert!(socket_keepalive(&stream).expect("an option"));
        let idle = tcp_keepidle(&stream).expect("an option");
        let rest = tcp_keepintvl(&stream).expect("an option") * tcp_keepcnt(&stream).expect("one");
        assert_eq!(idle + rest, Duration::from_secs(60));
    }
}
