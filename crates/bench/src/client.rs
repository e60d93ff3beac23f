//! The connections of one thread.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::timeout;

use crate::{failure::Failure, grpc::Connection, http1::Pool, message::Message, server::Server};

/// Added to the timeout that the server gets, so that the server's own timeout error
/// arrives first.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(200);

/// The protocol of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http1,
}

impl Protocol {
    /// The protocol's name in TLS handshakes (ALPN).
    pub(crate) const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"h2",
            Self::Http1 => b"http/1.1",
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The headers over HTTP; none over gRPC.
    pub(crate) headers: HeaderMap,
    /// The body; over gRPC the message without its prefix.
    pub(crate) body: Bytes,
}

/// Connections to one server.
#[derive(Debug)]
pub(crate) enum Client {
    Grpc(Vec<Connection>),
    Http1(Pool),
}

impl Client {
    /// Opens this number of connections. Over gRPC requests are sent in frames of `frame`
    /// bytes.
    ///
    /// # Errors
    /// One of the connections cannot be opened.
    pub(crate) async fn open(
        server: &Server,
        protocol: Protocol,
        connections: usize,
        frame: usize,
    ) -> Result<Self, Failure> {
        if protocol == Protocol::Http1 {
            return Pool::open(server, connections).await.map(Self::Http1);
        }
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(server, frame).await?);
        }
        Ok(Self::Grpc(open))
    }

    /// Sends a message on the connection of this turn and waits for the answer, slightly
    /// longer than the `server_timeout`, which the server got.
    pub(crate) async fn call(
        &self,
        turn: usize,
        message: &Message,
        server_timeout: Duration,
    ) -> Result<Answer, Failure> {
        let answer = timeout(server_timeout + TIMEOUT_MARGIN, self.exchange(turn, message)).await;
        answer.unwrap_or_else(|_| Err(Failure::timeout()))
    }

    async fn exchange(&self, turn: usize, message: &Message) -> Result<Answer, Failure> {
        match self {
            Self::Grpc(connections) => {
                let body = connections[turn % connections.len()].call(message).await?;
                Ok(Answer { headers: HeaderMap::new(), body })
            }
            Self::Http1(pool) => pool.call(message).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use outrigger_rpc::Endpoint;

    use super::*;

    const FRAME: usize = 16 << 10;

    /// A listener whose connections the system accepts but no server answers.
    fn mute() -> (TcpListener, Server) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address.parse::<Endpoint>().unwrap().into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_no_handshake_is_reported_as_lost() {
        let (_listener, server) = mute();
        let failure = Client::open(&server, Protocol::Grpc, 1, FRAME).await.unwrap_err();
        assert_eq!(failure.to_string(), "CONNECTION_LOST: no reply within 5s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_no_request_times_out() {
        let (_listener, server) = mute();
        let client = Client::open(&server, Protocol::Http1, 1, FRAME).await.unwrap();
        let limit = Duration::from_secs(60);
        let message = Message::get(&server, limit, http::Uri::from_static("/"));
        let failure = client.call(0, &message, limit).await.unwrap_err();
        assert_eq!(failure, Failure::timeout());
    }
}
