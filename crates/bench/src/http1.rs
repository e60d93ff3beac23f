//! HTTP/1.1 with one request at a time on each connection.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::sleep;

use crate::{
    client::{Answer, Protocol},
    failure::Failure,
    message::Message,
    server::Server,
    stream,
};

type Connection = SendRequest<Full<Bytes>>;

/// Connections to one server: one for each request in flight.
#[derive(Debug)]
pub(crate) struct Pool {
    server: Server,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    /// Opens this number of connections.
    ///
    /// # Errors
    /// One of the connections cannot be opened.
    pub(crate) async fn open(server: &Server, connections: usize) -> Result<Self, Failure> {
        let mut idle = Vec::with_capacity(connections);
        for _ in 0..connections {
            idle.push(stream::within_limit(connect(server)).await?);
        }
        Ok(Self { server: server.clone(), idle: Mutex::new(idle) })
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn call(&self, message: &Message) -> Result<Answer, Failure> {
        let mut connection = self.take().await?;
        let request = message.head.clone().map(|()| Full::new(message.body.clone()));
        let answer = connection.send_request(request).await.map_err(Failure::lost)?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(Failure::lost)?.to_bytes();
        self.lock().push(connection);
        match head.status {
            http::StatusCode::OK if body.is_empty() => Err(Failure::invalid("an empty answer")),
            http::StatusCode::OK => Ok(Answer { headers: head.headers, body }),
            status => Err(Failure::of_http(status, &body)),
        }
    }

    /// Takes an idle connection that is not known to be closed, or opens one.
    async fn take(&self) -> Result<Connection, Failure> {
        loop {
            let idle = self.lock().pop();
            let Some(mut connection) = idle else { return self.connect().await };
            if connection.ready().await.is_ok() {
                return Ok(connection);
            }
        }
    }

    /// Opens a connection. A failure is delayed, so that a closed loop does not spin
    /// while the server is away.
    async fn connect(&self) -> Result<Connection, Failure> {
        let connected = stream::within_limit(connect(&self.server)).await;
        if connected.is_err() {
            sleep(stream::RETRY).await;
        }
        connected
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(server: &Server) -> Result<Connection, Failure> {
    let stream = stream::connect(server, Protocol::Http1).await?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(Failure::lost)?;
    // Errors of the connection are reported by the requests on it.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}
