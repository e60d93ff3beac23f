//! HTTP with time limits, size limits and typed errors.

use std::{
    collections::HashSet,
    error, io, iter,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use outrigger_resilience::retry_after;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response, StatusCode, Url, redirect};
use rustls::InvalidMessage;

use crate::{Config, Error, registry_host};

const USER_AGENT: &str = concat!("outrigger/", env!("CARGO_PKG_VERSION"));
const MAX_REDIRECTS: usize = 5;
/// The longest pause that a registry may ask for.
const MOST_ASKED: Duration = Duration::from_secs(24 * 3600);

/// The HTTP client, without authorization.
#[derive(Debug)]
pub(crate) struct Plain {
    client: Client,
    hosts: Arc<PlainHosts>,
    /// The time limit for the head of an answer, connecting included.
    head: Duration,
    /// The time limit between two pieces of an answer's body.
    idle: Duration,
    /// The time limit for an answer that is read as a whole.
    document: Duration,
}

/// The hosts that may be called without TLS, `host` or `host:port`.
#[derive(Debug)]
struct PlainHosts(HashSet<String>);

impl PlainHosts {
    fn admit(&self, url: &Url) -> bool {
        let host = authority(url);
        // A parsed URL drops HTTP's default port 80; a listed host may include it.
        let listed = || self.0.contains(&host) || self.0.contains(&format!("{host}:80"));
        url.scheme() == "https" || (url.scheme() == "http" && listed())
    }
}

/// The URL's `host` or `host:port`, spelled as in a reference.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

impl Plain {
    /// A client that takes proxies from the environment and follows redirects.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let hosts = config.plain_http.iter().map(|host| registry_host(host));
        let hosts = hosts
            .collect::<Result<_, _>>()
            .map_err(|error| Error::Config { problem: error.to_string(), source: None })?;
        let hosts = Arc::new(PlainHosts(hosts));
        let followed = Arc::clone(&hosts);
        Self::of(config, hosts, |builder| builder.redirect(redirects(Arc::clone(&followed))))
    }

    /// A client that calls hosts directly and follows no redirect.
    pub(crate) fn direct(config: &Config) -> Result<Self, Error> {
        let direct = |builder: ClientBuilder| builder.no_proxy().redirect(redirect::Policy::none());
        Self::of(config, Arc::new(PlainHosts(HashSet::new())), direct)
    }

    fn of(
        config: &Config,
        hosts: Arc<PlainHosts>,
        settings: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, Error> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let problem = "no TLS provider is installed in this process".to_owned();
            return Err(Error::Config { problem, source: None });
        }
        let client = client(config, settings)?;
        let head = config.timeouts.connect + config.timeouts.idle;
        let (idle, document) = (config.timeouts.idle, config.timeouts.document);
        Ok(Self { client, hosts, head, idle, document })
    }

    /// True if `url` may be called: it is HTTPS, or its host is listed for plain HTTP.
    pub(crate) fn may_call(&self, url: &Url) -> bool {
        self.hosts.admit(url)
    }

    /// The scheme for calls to `host`: `http` if it is listed, else `https`.
    pub(crate) fn scheme(&self, host: &str) -> &'static str {
        if self.hosts.0.contains(host) { "http" } else { "https" }
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Sends a request and waits for the head of the answer. Status 403 is `Denied`; 408, 429 and
    /// 5xx are `Unavailable`; 401 is left to the caller.
    pub(crate) async fn send(
        &self,
        host: &str,
        request: RequestBuilder,
    ) -> Result<Response, Error> {
        let sent = tokio::time::timeout(self.head, request.send()).await;
        let silent = |_| Error::unavailable(host, format!("no answer within {:?}", self.head));
        classify_status(host, sent.map_err(silent)?.map_err(|error| call_failed(host, error))?)
    }

    /// Sends a request with a large body; `limit` is the time until the head of the answer.
    pub(crate) async fn upload(
        &self,
        host: &str,
        request: RequestBuilder,
        limit: Duration,
    ) -> Result<Response, Error> {
        let sent = request.timeout(limit).send().await;
        classify_status(host, sent.map_err(|error| call_failed(host, error))?)
    }

    /// The next piece of an answer's body; `None` at its end.
    pub(crate) async fn chunk(
        &self,
        host: &str,
        response: &mut Response,
    ) -> Result<Option<Bytes>, Error> {
        let chunk = tokio::time::timeout(self.idle, response.chunk()).await;
        let silent = |_| Error::unavailable(host, format!("silent for {:?}", self.idle));
        chunk.map_err(silent)?.map_err(|error| call_failed(host, error))
    }

    /// Reads an answer's whole body, of at most `limit` bytes, within the time limit for documents.
    pub(crate) async fn read(
        &self,
        host: &str,
        what: &str,
        response: Response,
        limit: u64,
    ) -> Result<Vec<u8>, Error> {
        let read = tokio::time::timeout(self.document, self.collect(host, what, response, limit));
        let slow = |_| Error::unavailable(host, format!("{what} took over {:?}", self.document));
        read.await.map_err(slow)?
    }

    async fn collect(
        &self,
        host: &str,
        what: &str,
        mut response: Response,
        limit: u64,
    ) -> Result<Vec<u8>, Error> {
        let too_large = || Error::TooLarge { what: what.to_owned(), limit };
        if response.content_length().is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(host, &mut response).await? {
            if (body.len() + chunk.len()) as u64 > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn client(
    config: &Config,
    settings: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, Error> {
    let builder = || {
        let builder = Client::builder().user_agent(USER_AGENT);
        settings(builder.connect_timeout(config.timeouts.connect))
    };
    let problem = |error: reqwest::Error| Error::Config {
        problem: "the HTTP client cannot be made".to_owned(),
        source: Some(error.without_url().into()),
    };
    if let Some(path) = &config.ca {
        return builder().tls_certs_merge(authorities(path)?).build().map_err(problem);
    }
    // A container without certificate authorities may still use layout directories and listed
    // hosts; HTTPS calls fail then, because no authority is trusted.
    builder().build().or_else(|error| {
        tracing::warn!(error = %error.without_url(), "no certificate authorities, https will fail");
        builder().tls_certs_only([]).build().map_err(problem)
    })
}

fn authorities(path: &std::path::Path) -> Result<Vec<reqwest::Certificate>, Error> {
    let unusable = |source: Option<crate::Cause>| Error::Config {
        problem: format!("{} holds no certificates in PEM", path.display()),
        source,
    };
    let text = std::fs::read(path).map_err(Error::io(path))?;
    let found = reqwest::Certificate::from_pem_bundle(&text);
    let found = found.map_err(|error| unusable(Some(error.into())))?;
    if found.is_empty() { Err(unusable(None)) } else { Ok(found) }
}

/// Follows redirects, but never to plain HTTP at a host that is not listed for it.
fn redirects(hosts: Arc<PlainHosts>) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error("too many redirects");
        }
        if hosts.admit(attempt.url()) {
            return attempt.follow();
        }
        attempt.error("redirected to plain HTTP")
    })
}

fn classify_status(host: &str, response: Response) -> Result<Response, Error> {
    let status = response.status();
    match status {
        StatusCode::FORBIDDEN => Err(Error::denied(host, status.to_string())),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Err(unavailable(host, &response))
        }
        _ if status.is_server_error() => Err(unavailable(host, &response)),
        _ => Ok(response),
    }
}

fn unavailable(host: &str, response: &Response) -> Error {
    Error::Unavailable {
        registry: host.to_owned(),
        detail: response.status().to_string(),
        retry_after: retry_after(response.headers(), SystemTime::now(), MOST_ASKED),
        source: None,
    }
}

/// The error of a call that failed without an answer. The URL is left out of it: after a redirect
/// it may be signed.
fn call_failed(host: &str, error: reqwest::Error) -> Error {
    let error = error.without_url();
    if error.is_redirect() {
        let mut problem = "a redirect cannot be followed".to_owned();
        if let Some(cause) = std::error::Error::source(&error) {
            problem = format!("{problem}: {cause}");
        }
        return Error::invalid(host, problem);
    }
    if is_answered_without_tls(&error) {
        return Error::unavailable(
            host,
            "it speaks plain HTTP, which only listed hosts may: the setting images.plain_http, or \
             the option --plain-http of commands",
        );
    }
    let detail = match () {
        () if error.is_timeout() => "no answer in time",
        () if error.is_connect() => "cannot connect",
        () => "the connection broke",
    };
    Error::Unavailable {
        registry: host.to_owned(),
        detail: detail.to_owned(),
        retry_after: None,
        source: Some(error.into()),
    }
}

/// True if the peer answered the beginning of TLS with something else.
fn is_answered_without_tls(error: &(dyn error::Error + 'static)) -> bool {
    let is_cause = |mut cause: &(dyn error::Error + 'static)| {
        // The error in an error of input and output is not its source, and may be one itself.
        while let Some(inner) = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            cause = inner;
        }
        let expected = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        cause.downcast_ref::<rustls::Error>().is_some_and(|error| *error == expected)
    };
    iter::successors(Some(error), |error| error.source()).any(is_cause)
}
