//! The identity that a cloud attests to this machine or pod: access tokens from the metadata server
//! of Google Cloud, as <https://cloud.google.com/compute/docs/access/authenticate-workloads> describes
//! it.

use std::{sync::Arc, time::Duration};

use reqwest::{Method, StatusCode, Url, header::HeaderName};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    Config, Error, config,
    http::{Plain, authority},
    secret::Secret,
};

/// The user that goes with an access token in place of a password, as Google's registries define it.
pub(crate) const USER: &str = "oauth2accesstoken";
/// The path of the token of the machine's or pod's service account.
const PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// The header by which the metadata server tells its clients from programs that were tricked into
/// calling it, and by which clients recognise it.
const FLAVOR: HeaderName = HeaderName::from_static("metadata-flavor");
const GOOGLE: &str = "Google";
/// A token counts as expired this long before it is, so that none expires on the way. The metadata
/// server replaces a token five minutes before its end.
const MARGIN: Duration = Duration::from_secs(60);
/// A longer life is not believed.
const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);
const MAX_ANSWER: u64 = 64 << 10;

/// The registries that may have the tokens of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registries(Arc<[String]>);

/// An access token of the machine or pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessToken {
    pub(crate) token: Secret,
    pub(crate) expires: Instant,
    /// The hosts that may have it. A token service of a registry must be one of them, too.
    pub(crate) registries: Registries,
}

/// The source of access tokens.
#[derive(Debug)]
pub(crate) struct Identity {
    http: Plain,
    url: Url,
    registries: Registries,
}

/// The metadata server's answer. It holds a secret, so it has no `Debug`.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: u64,
}

impl Registries {
    pub(crate) fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().map(|pattern| pattern.to_ascii_lowercase()).collect())
    }

    /// True if `host`, with its port if it has one, is among them.
    pub(crate) fn contain(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.0.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some(domain) => host.strip_suffix(domain).is_some_and(|name| !name.is_empty()),
            None => host == *pattern,
        })
    }
}

impl Identity {
    pub(crate) fn new(config: &Config, identity: &config::Identity) -> Result<Self, Error> {
        let url = Url::parse(&format!("http://{}{PATH}", identity.metadata_server));
        let problem = format!("{:?} is no address of a metadata server", identity.metadata_server);
        let url = url.map_err(|error| Error::Config { problem, source: Some(error.into()) })?;
        let registries = Registries::new(&identity.registries);
        Ok(Self { http: Plain::direct(config)?, url, registries })
    }

    /// A token for `host`; `None` if its registry may not have one. The metadata server keeps
    /// tokens and replaces them in time, so it is asked each time.
    pub(crate) async fn token(&self, host: &str) -> Result<Option<AccessToken>, Error> {
        if !self.registries.contain(host) {
            return Ok(None);
        }
        let server = authority(&self.url);
        let request = self.http.request(Method::GET, self.url.clone()).header(FLAVOR, GOOGLE);
        let response = self.http.send(&server, request).await?;
        match response.status() {
            StatusCode::NOT_FOUND => {
                return Err(Error::denied(&server, "the pod or machine has no service account"));
            }
            status if !status.is_success() => {
                return Err(Error::unavailable(&server, format!("it answers {status}")));
            }
            _ => {}
        }
        if response.headers().get(FLAVOR).is_none_or(|flavor| flavor != GOOGLE) {
            return Err(Error::denied(&server, "it is not the metadata server of Google Cloud"));
        }
        let body = self.http.read(&server, "the access token", response, MAX_ANSWER).await?;
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| Error::unavailable(&server, "its answer is no access token"))?;
        let life = Duration::from_secs(answer.expires_in).min(MAX_LIFE);
        Ok(Some(AccessToken {
            token: Secret::new(answer.access_token),
            expires: Instant::now() + life.saturating_sub(MARGIN),
            registries: self.registries.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_registries_of_google_may_have_a_token_by_default() {
        let registries = Registries::new(&config::Identity::gcp().registries);
        for host in ["gcr.io", "eu.gcr.io", "europe-west1-docker.pkg.dev", "US.gcr.io"] {
            assert!(registries.contain(host), "{host}");
        }
        for host in [
            "gcr.io.evil.example",
            "evilgcr.io",
            "pkg.dev",
            ".pkg.dev",
            "gcr.io:5000",
            "registry.example",
            "docker.io",
            "",
        ] {
            assert!(!registries.contain(host), "{host}");
        }
        let mirror = Registries::new(&["Mirror.example:5000".to_owned()]);
        assert!(mirror.contain("mirror.example:5000") && !mirror.contain("mirror.example"));
    }
}
