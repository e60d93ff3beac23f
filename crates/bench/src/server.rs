//! Where requests go, and what it takes to be let in there.

use std::{fmt, sync::Arc};

use http::HeaderValue;
use outrigger_backend::Endpoint;
use rustls::{ClientConfig, pki_types::ServerName};

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

impl Server {
    /// The scheme of its URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// What requests name as their host. A socket has no name of its own, and servers
    /// want a well-formed one.
    pub(crate) fn authority(&self) -> String {
        match &self.endpoint {
            Endpoint::Unix(_) => "localhost".to_owned(),
            Endpoint::Tcp { .. } => self.endpoint.to_string(),
        }
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
