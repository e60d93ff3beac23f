//! The connections of one thread.

use bytes::Bytes;

use crate::{failure::Failure, grpc::Connection, http1::Pool, message::Message, server::Server};

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http1,
}

impl Protocol {
    /// Its name in TLS handshakes.
    pub(crate) const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"h2",
            Self::Http1 => b"http/1.1",
        }
    }
}

/// Connections to one server.
#[derive(Debug)]
pub(crate) enum Client {
    Grpc(Vec<Connection>),
    Http1(Pool),
}

impl Client {
    /// Opens so many connections.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub(crate) async fn open(
        server: &Server,
        protocol: Protocol,
        connections: usize,
    ) -> Result<Self, Failure> {
        if protocol == Protocol::Http1 {
            return Pool::open(server, connections).await.map(Self::Http1);
        }
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(server).await?);
        }
        Ok(Self::Grpc(open))
    }

    /// Sends a message, the connections taking turns, and waits for its answer.
    pub(crate) async fn call(&self, turn: usize, message: &Message) -> Result<Bytes, Failure> {
        match self {
            Self::Grpc(connections) => connections[turn % connections.len()].call(message).await,
            Self::Http1(pool) => pool.call(message).await,
        }
    }
}
