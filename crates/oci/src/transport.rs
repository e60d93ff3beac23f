//! Calls to a registry, with the authorization that it requires.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_LENGTH, HeaderName, HeaderValue},
};
use tokio_util::io::ReaderStream;

use crate::{
    Config, Error,
    auth::{Authenticator, Scope, challenges},
    credentials::CredentialSource,
    http::{Plain, authority},
};

/// The slowest upload rate that does not time out, bytes a second.
const SLOWEST_UPLOAD: u64 = 256 << 10;

/// The HTTP client together with the cache of authorizations.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) plain: Plain,
    auth: Authenticator,
}

/// One call to a registry.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, String)>,
    pub(crate) body: Body,
}

/// A request's body. It can be sent again by a retry.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Empty,
    Bytes(Bytes),
    File { path: PathBuf, size: u64 },
}

impl Transport {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let credentials = CredentialSource::new(config)?;
        Ok(Self { plain: Plain::new(config)?, auth: Authenticator::new(credentials) })
    }

    /// The base URL of a registry's API. Docker Hub serves it at another host than its name says.
    pub(crate) fn endpoint(&self, host: &str) -> Result<Url, Error> {
        let server = match host {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            other => other,
        };
        let scheme = self.plain.scheme(host);
        let url = Url::parse(&format!("{scheme}://{server}/v2/"));
        url.map_err(|error| Error::invalid(host, format!("not a host: {error}")))
    }

    /// Sends the call; after a 401 it is sent once more with credentials read again. A 403 to a
    /// cached authorization is handled like a 401 first, because some registries answer so to an
    /// expired one.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Response, Error> {
        let host = &call.scope.host;
        if !self.plain.may_call(&call.url) {
            return Err(Error::invalid(host, "it points to plain HTTP at a host not listed"));
        }
        let ours = authority(&call.url) == authority(&self.endpoint(host)?);
        let known = if ours { self.auth.known(call.scope) } else { None };
        let cached = known.is_some();
        let response = match self.send(call, known).await {
            Err(Error::Denied { .. }) if cached => {
                self.auth.forget(call.scope);
                self.send(call, None).await?
            }
            other => other?,
        };
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        // A challenge counts only from the registry itself: another host, also one that the
        // registry redirected to, would choose who gets the credentials.
        let answered_by = authority(response.url());
        if !ours || answered_by != authority(&call.url) {
            return Err(Error::denied(&answered_by, "401 Unauthorized"));
        }
        self.auth.forget(call.scope);
        let challenges = challenges(response.headers());
        drop(response);
        let answer = self.auth.answer(&self.plain, call.scope, &challenges).await?;
        let response = self.send(call, Some(answer)).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        self.auth.forget(call.scope);
        Err(Error::denied(host, "401 Unauthorized, with the credentials that are configured"))
    }

    async fn send(&self, call: &Call<'_>, auth: Option<HeaderValue>) -> Result<Response, Error> {
        let mut request = self.plain.request(call.method.clone(), call.url.clone());
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        if let Some(auth) = auth {
            request = request.header(AUTHORIZATION, auth);
        }
        let host = &call.scope.host;
        match &call.body {
            Body::Empty => self.plain.send(host, request).await,
            body => {
                let (request, size) = with_body(request, body).await?;
                let limit = Duration::from_secs(60 + size / SLOWEST_UPLOAD);
                self.plain.upload(host, request, limit).await
            }
        }
    }
}

async fn with_body(request: RequestBuilder, body: &Body) -> Result<(RequestBuilder, u64), Error> {
    match body {
        Body::Empty => Ok((request, 0)),
        Body::Bytes(bytes) => Ok((request.body(bytes.clone()), bytes.len() as u64)),
        Body::File { path, size } => {
            let file = tokio::fs::File::open(path).await.map_err(Error::io(path))?;
            let stream = reqwest::Body::wrap_stream(ReaderStream::with_capacity(file, 256 << 10));
            Ok((request.header(CONTENT_LENGTH, *size).body(stream), *size))
        }
    }
}
