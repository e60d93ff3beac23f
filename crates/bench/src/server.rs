//! Where requests go, and what it takes to be let in there.

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
    /// Where it listens.
    pub endpoint: Endpoint,
    /// How handshakes are made; none: it is spoken to without TLS.
    pub tls: Option<Tls>,
    /// The header `authorization` of all requests.
    pub authorization: Option<HeaderValue>,
}

/// TLS with a server.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Whom to trust and what certificate to show. Its protocols are not used: they are
    /// those of the requests.
    pub config: Arc<ClientConfig>,
    /// Whom the server's certificate must name.
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
    /// One that anybody may ask, without TLS.
    fn from(endpoint: Endpoint) -> Self {
        Self { endpoint, tls: None, authorization: None }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}
