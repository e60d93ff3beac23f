//! The server that gets the requests, with the TLS configuration and credentials.

use std::{fmt, io, sync::Arc};

use http::{HeaderValue, Uri, uri::Scheme};
use outrigger_rpc::{Dial, Endpoint};
use rustls::{ClientConfig, pki_types::ServerName};

use crate::{
    client::Protocol,
    stream::{self, Stream},
};

/// A server.
#[derive(Debug, Clone)]
pub struct Server {
    /// The server's address.
    pub endpoint: Endpoint,
    /// The TLS configuration; `None` means a connection without TLS.
    pub tls: Option<Tls>,
    /// Value of the header `authorization` in all requests.
    pub authorization: Option<HeaderValue>,
}

/// TLS configuration for a server.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Trusted authorities and the client certificate. Its ALPN protocols are replaced by
    /// the protocol of the requests.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    pub name: ServerName<'static>,
}

impl Dial for Server {
    type Stream = Stream;

    fn origin(&self) -> Uri {
        let mut origin = self.endpoint.origin().into_parts();
        if self.tls.is_some() {
            origin.scheme = Some(Scheme::HTTPS);
        }
        Uri::from_parts(origin).expect("an origin with another scheme")
    }

    async fn dial(&self) -> io::Result<Stream> {
        stream::connect(self, Protocol::Grpc).await
    }
}

impl From<Endpoint> for Server {
    /// A server without TLS and credentials.
    fn from(endpoint: Endpoint) -> Self {
        Self { endpoint, tls: None, authorization: None }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}
