//! Authorization for calls to registries: HTTP basic, or a bearer token from the registry's token
//! server.

mod challenge;
mod token;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::header::HeaderValue;
use tokio::time::Instant;

pub(crate) use challenge::{Challenge, challenges};

use crate::{
    Error,
    credentials::{AccessToken, Credential, CredentialSource, Stamp, USER},
    http::Plain,
};

/// The most authorizations kept in the cache.
const MAX_KNOWN: usize = 4096;

/// The access that a request needs: to pull from a repository, or to pull and push.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub(crate) host: String,
    pub(crate) repository: String,
    pub(crate) push: bool,
}

impl Scope {
    /// The scope in the token protocol's syntax, `repository:NAME:ACTIONS`.
    fn text(&self) -> String {
        let actions = if self.push { "pull,push" } else { "pull" };
        format!("repository:{}:{actions}", self.repository)
    }
}

/// Caches the `Authorization` header of each scope, and obtains a new one when a registry answers
/// with a challenge.
#[derive(Debug)]
pub(crate) struct Authenticator {
    credentials: CredentialSource,
    /// The cache. The lock is held for look-ups and inserts only, never across an await.
    known: Mutex<HashMap<Scope, Authorization>>,
}

#[derive(Debug, Clone)]
struct Authorization {
    /// Marked sensitive, so that its `Debug` output hides the value.
    header: HeaderValue,
    expires: Option<Instant>,
    /// The state of the credentials file from which the header was made.
    stamp: Stamp,
}

impl Authenticator {
    pub(crate) fn new(credentials: CredentialSource) -> Self {
        Self { credentials, known: Mutex::default() }
    }

    /// The cached header for `scope`, unless it has expired or the credentials file has changed.
    pub(crate) fn known(&self, scope: &Scope) -> Option<HeaderValue> {
        let stamp = self.credentials.stamp();
        let mut known = self.lock();
        let now = Instant::now();
        known.retain(|_, entry| {
            entry.stamp == stamp && entry.expires.is_none_or(|expires| now < expires)
        });
        known.get(scope).map(|entry| entry.header.clone())
    }

    /// Drops the cached header for `scope`, which the registry has refused.
    pub(crate) fn forget(&self, scope: &Scope) {
        self.lock().remove(scope);
    }

    /// Answers a 401: reads the credentials again and makes the header that the registry's
    /// challenges ask for.
    pub(crate) async fn answer(
        &self,
        http: &Plain,
        scope: &Scope,
        challenges: &[Challenge],
    ) -> Result<HeaderValue, Error> {
        let stamp = self.credentials.stamp();
        let credential = self.credentials.get(&scope.host, &scope.repository).await?;
        let (header, expires) = authorize(http, scope, challenges, credential).await?;
        self.remember(scope, Authorization { header: header.clone(), expires, stamp });
        Ok(header)
    }

    fn remember(&self, scope: &Scope, authorization: Authorization) {
        let mut known = self.lock();
        // Emptied when full: callers choose the repository names, so the cache would grow without
        // bound.
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(scope.clone(), authorization);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Scope, Authorization>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Authorized = (HeaderValue, Option<Instant>);

async fn authorize(
    http: &Plain,
    scope: &Scope,
    challenges: &[Challenge],
    credential: Option<Credential>,
) -> Result<Authorized, Error> {
    if let Some(Credential::Bearer(token)) = &credential {
        return Ok((header(&scope.host, "Bearer", token.reveal())?, None));
    }
    if let Some(bearer) = challenges.iter().find(|challenge| challenge.is("bearer")) {
        return token::fetch(http, scope, bearer, credential).await;
    }
    match credential {
        Some(Credential::Password { user, password }) => {
            Ok((basic(&scope.host, &user, password.reveal())?, None))
        }
        Some(Credential::Access(AccessToken { token, expires, .. })) => {
            Ok((basic(&scope.host, USER, token.reveal())?, Some(expires)))
        }
        Some(_) => Err(Error::denied(
            &scope.host,
            "it requires a password, but only a token is configured",
        )),
        None => Err(Error::denied(&scope.host, "it requires credentials, and there are none")),
    }
}

fn basic(host: &str, user: &str, password: &str) -> Result<HeaderValue, Error> {
    header(host, "Basic", &STANDARD.encode(format!("{user}:{password}")))
}

fn header(host: &str, scheme: &str, value: &str) -> Result<HeaderValue, Error> {
    let mut header = HeaderValue::from_str(&format!("{scheme} {value}"))
        .map_err(|_| Error::invalid(host, "a token has characters that no header can carry"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, config};

    #[test]
    fn the_cache_of_authorizations_is_bounded() {
        let credentials =
            config::Credentials { docker_config: None, ..config::Credentials::default() };
        let config = Config { credentials, ..Config::default() };
        let authenticator = Authenticator::new(CredentialSource::new(&config).unwrap());
        let stamp = authenticator.credentials.stamp();
        let scope = |number: usize| Scope {
            host: "registry.example".to_owned(),
            repository: number.to_string(),
            push: false,
        };
        for number in 0..2 * MAX_KNOWN {
            let header = HeaderValue::from_static("Basic eA==");
            let authorization = Authorization { header, expires: None, stamp };
            authenticator.remember(&scope(number), authorization);
            assert!(authenticator.lock().len() <= MAX_KNOWN);
        }
        assert!(authenticator.known(&scope(2 * MAX_KNOWN - 1)).is_some());
    }
}
