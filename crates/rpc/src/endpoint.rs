//! The address of a server.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

/// A server's address: `unix:/path`, `host:port` or `http://host:port`, without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket, by absolute path.
    Unix(PathBuf),
    /// A TCP address; a host name is resolved again for every connection.
    Tcp {
        /// Name or address; IPv6 in brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// An endpoint that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("endpoint {0:?} is not of the form unix:/path, host:port or http://host:port")]
pub struct InvalidEndpoint(String);

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let invalid = || InvalidEndpoint(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            // gRPC's `unix:///path` has an empty authority before the path.
            let path = path.strip_prefix("//").unwrap_or(path);
            let absolute = path.starts_with('/') && path.len() > 1;
            return if absolute { Ok(Self::Unix(path.into())) } else { Err(invalid()) };
        }
        let address = text.strip_prefix("http://").unwrap_or(text);
        let address = address.strip_suffix('/').unwrap_or(address);
        let authority: http::uri::Authority = address.parse().map_err(|_| invalid())?;
        let port = authority.port_u16().filter(|&port| port != 0).ok_or_else(invalid)?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(invalid());
        }
        Ok(Self::Tcp { host: authority.host().to_owned(), port })
    }
}

impl Endpoint {
    /// Scheme and authority of the requests' URLs. A socket has no host name, and servers refuse
    /// requests without a well-formed authority, so its authority is localhost.
    pub fn origin(&self) -> http::Uri {
        let origin = match self {
            Self::Unix(_) => "http://localhost".to_owned(),
            Self::Tcp { host, port } => format!("http://{host}:{port}"),
        };
        origin.parse().expect("made of a parsed authority")
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Self::Tcp { host, port: address.port() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read() {
        let cases = [
            ("unix:/run/engine.sock", "unix:/run/engine.sock"),
            ("unix:///run/engine.sock", "unix:/run/engine.sock"),
            ("localhost:8500", "localhost:8500"),
            ("http://127.0.0.1:8500/", "127.0.0.1:8500"),
            ("[::1]:8500", "[::1]:8500"),
        ];
        for (text, shown) in cases {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.to_string(), shown);
            assert!(endpoint.origin().authority().is_some());
        }
        for address in ["127.0.0.1:8500", "[::1]:8500"] {
            let of_address = Endpoint::from(address.parse::<SocketAddr>().expect("an address"));
            assert_eq!(Ok(of_address), address.parse());
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let cases = [
            "",
            "unix:",
            "unix:/",
            "unix:run/a",
            "host",
            "host:",
            ":8500",
            "host:0",
            "host:99999",
            "https://host:1",
            "a@host:1",
            "http://host:1/path",
            "tcp://h:1",
        ];
        for text in cases {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }
}
