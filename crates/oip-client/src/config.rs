//! The configuration of a client.

use std::{
    env, fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use outrigger_rpc::Endpoint;
use rustls::pki_types::ServerName;

use crate::policy::{Backoff, BudgetSettings, EjectionSettings};

/// The hosts, and the limits of their client.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The hosts, at least one. All have the same models.
    pub hosts: Vec<HostConfig>,
    /// A file in PEM with the certificate authorities of the hosts; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// gRPC connections to each host; at least one is made for each runtime.
    pub connections: usize,
    /// The most calls in flight at one host. The limit adapts below it.
    pub max_in_flight: usize,
    /// The largest request in bytes.
    pub max_request: usize,
    /// The largest answer in bytes, also when it is decompressed.
    pub max_answer: usize,
    /// The time limit of one attempt to connect.
    pub connect_timeout: Duration,
    /// The time after which a connection over HTTP that has no request is closed. Servers close
    /// theirs by themselves, uvicorn after 5 s: a request that crosses that is lost.
    pub idle: Duration,
    /// The time limit of one attempt, within the deadline of its call; `None`: the deadline alone.
    pub attempt_timeout: Option<Duration>,
    /// The most attempts at one message.
    pub attempts: u32,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// The budget of retries.
    pub budget: BudgetSettings,
    /// The withdrawal of hosts.
    pub ejection: EjectionSettings,
}

/// One host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostConfig {
    /// `host:port`, `http://host:port` or `https://host:port`.
    pub endpoint: String,
    /// A path before all paths of the protocol, such as `/models/churn`. gRPC has no such prefix, so
    /// a host with one is called over HTTP only.
    pub prefix: String,
    /// Headers of each request, by name.
    pub headers: Vec<(String, String)>,
    /// A file with a token. It is read again when it changes.
    pub token_file: Option<PathBuf>,
    /// The variable of the environment with such a token, in place of a file. It is read once.
    pub token_env: Option<String>,
    /// The header that has the token and nothing else; `None`: `authorization: Bearer TOKEN`.
    pub token_header: Option<String>,
    /// The address to connect to; `None`: those of the endpoint's name. Certificates and requests
    /// have the name in either case.
    pub address: Option<IpAddr>,
}

/// The configuration is not valid: the key at fault, and the problem. The values of headers are not
/// part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct InvalidConfig {
    /// The key: `endpoint`, `prefix`, `headers`, `ca` or another field of the configuration.
    pub key: &'static str,
    /// The problem with its value.
    pub problem: String,
}

/// The address of a host.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) endpoint: Endpoint,
    /// The address to connect to in place of those of the name.
    pub(crate) pinned: Option<Pinned>,
    /// The name that the host's certificate must have, for TLS.
    pub(crate) tls: Option<ServerName<'static>>,
    /// Scheme, authority and prefix: the beginning of all URLs, without a slash at its end.
    pub(crate) base: String,
    pub(crate) has_prefix: bool,
    pub(crate) headers: HeaderMap,
    pub(crate) token: TokenHeader,
}

/// The header with the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenHeader {
    pub(crate) name: HeaderName,
    /// The text before the token.
    prefix: &'static str,
}

impl TokenHeader {
    /// The value for a token; `None` if it is not valid in a header.
    pub(crate) fn value(&self, token: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("{}{}", self.prefix, token.trim())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// A name that is not looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

impl Config {
    /// The default configuration for these hosts.
    pub fn new(hosts: Vec<HostConfig>) -> Self {
        Self {
            hosts,
            ca: None,
            connections: 1,
            max_in_flight: 128,
            max_request: 64 << 20,
            max_answer: 64 << 20,
            connect_timeout: Duration::from_secs(1),
            idle: Duration::from_secs(3),
            attempt_timeout: None,
            attempts: 4,
            backoff: Backoff::default(),
            budget: BudgetSettings::default(),
            ejection: EjectionSettings::default(),
        }
    }

    /// Checks everything that can be checked without a connection or a file.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        self.addresses().map(drop)
    }

    pub(crate) fn addresses(&self) -> Result<Vec<Address>, InvalidConfig> {
        let positive = [
            ("hosts", self.hosts.len()),
            ("connections", self.connections),
            ("max_in_flight", self.max_in_flight),
            ("max_request", self.max_request),
            ("max_answer", self.max_answer),
            ("attempts", self.attempts as usize),
        ];
        if let Some((key, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(invalid(key, "must be at least 1"));
        }
        self.hosts.iter().map(HostConfig::address).collect()
    }
}

impl HostConfig {
    /// The host at this endpoint, without a prefix, headers and a token.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), ..Self::default() }
    }

    /// The name in the endpoint, which stands for the addresses that it has in the DNS; `None` if the
    /// endpoint has an address.
    ///
    /// # Errors
    /// The endpoint is not valid.
    pub fn name(&self) -> Result<Option<String>, InvalidConfig> {
        let Endpoint::Tcp { host, .. } = self.address()?.endpoint else { return Ok(None) };
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        Ok((!is_address).then_some(host))
    }

    /// The header with the token of the environment.
    pub(crate) fn token_of_environment(
        &self,
        header: &TokenHeader,
    ) -> Result<Option<HeaderValue>, InvalidConfig> {
        let Some(name) = &self.token_env else { return Ok(None) };
        let unusable = |problem: &str| invalid("token_env", &format!("{name} {problem}"));
        let token = env::var(name).map_err(|_| unusable("is not set in the environment"))?;
        header.value(&token).map(Some).ok_or_else(|| unusable("is not valid in a header"))
    }

    fn address(&self) -> Result<Address, InvalidConfig> {
        let (is_tls, rest) = match self.endpoint.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, self.endpoint.strip_prefix("http://").unwrap_or(&self.endpoint)),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let default = format!("{rest}:{}", if is_tls { 443 } else { 80 });
        let parsed = rest.parse::<Endpoint>().or_else(|error| default.parse().map_err(|_| error));
        let endpoint: Endpoint = parsed.map_err(|_| {
            invalid("endpoint", "must be host:port, http://host:port or https://host:port")
        })?;
        let Endpoint::Tcp { host, port } = &endpoint else {
            return Err(invalid("endpoint", "must not be a Unix socket"));
        };
        let name = host.trim_matches(['[', ']']).to_owned();
        let pinned = self.address.map(|address| Pinned {
            name: name.to_ascii_lowercase(),
            address: SocketAddr::new(address, *port),
        });
        let tls = is_tls.then(|| ServerName::try_from(name)).transpose();
        let tls = tls.map_err(|_| invalid("endpoint", "is not a name of a certificate"))?;
        let scheme = if is_tls { "https" } else { "http" };
        let prefix = self.prefix()?;
        let base = format!("{scheme}://{host}:{port}{prefix}");
        Ok(Address {
            has_prefix: !prefix.is_empty(),
            endpoint,
            pinned,
            tls,
            base,
            headers: self.header_map()?,
            token: self.token()?,
        })
    }

    /// The prefix, with a slash at its beginning and none at its end.
    fn prefix(&self) -> Result<String, InvalidConfig> {
        let prefix = self.prefix.trim_matches('/');
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~-".contains(&byte);
        let is_up = prefix.split('/').any(|part| part == ".." || part == ".");
        match prefix {
            "" => Ok(String::new()),
            _ if prefix.bytes().all(plain) && !is_up => Ok(format!("/{prefix}")),
            _ => Err(invalid("prefix", "must be a path of letters, digits, '.', '_', '~' and '-'")),
        }
    }

    fn token(&self) -> Result<TokenHeader, InvalidConfig> {
        let Some(name) = &self.token_header else {
            return Ok(TokenHeader { name: AUTHORIZATION, prefix: "Bearer " });
        };
        Ok(TokenHeader { name: header_name("token_header", name)?, prefix: "" })
    }

    fn header_map(&self) -> Result<HeaderMap, InvalidConfig> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name = header_name("headers", name)?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| invalid("headers", &format!("{name} is not valid")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// The endpoint, and the address if it is set.
impl fmt::Display for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => f.write_str(&self.endpoint),
            Some(address) => write!(f, "{} at {address}", self.endpoint),
        }
    }
}

/// The name of a header that is not the client's own.
fn header_name(key: &'static str, name: &str) -> Result<HeaderName, InvalidConfig> {
    let parsed = name.parse::<HeaderName>();
    let parsed = parsed.map_err(|_| invalid(key, &format!("{name} is not valid")))?;
    if OURS.contains(&parsed.as_str()) {
        return Err(invalid(key, &format!("{name} is set by the client")));
    }
    Ok(parsed)
}

/// Headers that belong to the protocols.
const OURS: [&str; 9] = [
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "grpc-timeout",
    "host",
    "inference-header-content-length",
    "te",
    "transfer-encoding",
];

pub(crate) fn invalid(key: &'static str, problem: &str) -> InvalidConfig {
    InvalidConfig { key, problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(endpoint: &str, prefix: &str) -> Result<String, &'static str> {
        let host = HostConfig { prefix: prefix.to_owned(), ..HostConfig::new(endpoint) };
        host.address().map(|address| address.base).map_err(|error| error.key)
    }

    #[test]
    fn addresses_have_a_scheme_and_a_prefix() {
        assert_eq!(base("triton:8000", "").as_deref(), Ok("http://triton:8000"));
        assert_eq!(base("http://[::1]:80/", "/").as_deref(), Ok("http://[::1]:80"));
        assert_eq!(
            base("https://api.example", "a/b/").as_deref(),
            Ok("https://api.example:443/a/b")
        );
        for wrong in ["", "unix:/a", "ftp://a:1", "a:0", "https://a@b:1", "a b:1", "a:1/b"] {
            assert_eq!(base(wrong, ""), Err("endpoint"), "{wrong:?}");
        }
        for wrong in ["a b", "../b", "a?b", "a%2e"] {
            assert_eq!(base("a:1", wrong), Err("prefix"), "{wrong:?}");
        }
    }

    #[test]
    fn the_name_of_an_endpoint_is_no_address() {
        let name = |endpoint: &str| HostConfig::new(endpoint).name().expect(endpoint);
        for endpoint in ["triton:8001", "http://triton:8001", "https://triton"] {
            assert_eq!(name(endpoint).as_deref(), Some("triton"), "{endpoint}");
        }
        for endpoint in ["10.0.0.1:8001", "http://[::1]:80"] {
            assert_eq!(name(endpoint), None, "{endpoint}");
        }
        assert!(HostConfig::new("").name().is_err());
        let address = Some("10.0.0.1".parse().expect("an address"));
        let pinned = HostConfig { address, ..HostConfig::new("https://Triton") };
        assert_eq!(pinned.to_string(), "https://Triton at 10.0.0.1");
        let resolved = pinned.address().expect("valid");
        let socket = "10.0.0.1:443".parse().expect("an address");
        assert_eq!(resolved.pinned, Some(Pinned { name: "triton".to_owned(), address: socket }));
        assert_eq!(resolved.base, "https://Triton:443");
    }

    #[test]
    fn headers_are_secret_and_not_the_client_s_own() {
        let host = |name: &str, value: &str| HostConfig {
            headers: vec![(name.to_owned(), value.to_owned())],
            ..HostConfig::new("a:1")
        };
        let address = host("x-key", "secret").address().expect("valid");
        assert!(!format!("{address:?}").contains("secret"));
        for (name, value) in [("Content-Type", "a"), ("a b", "c"), ("x-key", "secret\n")] {
            let error = host(name, value).address().expect_err("refused");
            assert!(error.key == "headers" && !error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_token_may_have_a_header_of_its_own() {
        let token = |header: Option<&str>| {
            let token_header = header.map(ToOwned::to_owned);
            HostConfig { token_header, ..HostConfig::new("a:1") }.address().map(|it| it.token)
        };
        let value = |header| token(header).expect("valid").value(" s3cret\n").expect("valid");
        assert_eq!(value(None), "Bearer s3cret");
        assert_eq!(value(Some("X-Api-Key")), "s3cret");
        assert!(!format!("{:?}", value(Some("x-api-key"))).contains("s3cret"));
        assert_eq!(token(Some("X-Api-Key")).expect("valid").name, "x-api-key");
        for wrong in ["host", "a b", ""] {
            assert_eq!(token(Some(wrong)).expect_err(wrong).key, "token_header");
        }
    }

    #[test]
    fn numbers_are_at_least_one() {
        let config = Config::new(Vec::new());
        assert_eq!(config.check().map_err(|error| error.key), Err("hosts"));
        let config = Config { attempts: 0, ..Config::new(vec![HostConfig::new("a:1")]) };
        assert_eq!(config.check().map_err(|error| error.key), Err("attempts"));
    }
}
