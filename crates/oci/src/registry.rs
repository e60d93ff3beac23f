//! Reads from a registry by the OCI distribution API.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use oci_client::manifest::OCI_IMAGE_INDEX_MEDIA_TYPE;
use outrigger_core::{Digest, Selector};
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RANGE},
};
use serde::Deserialize;

use crate::{
    Config, Error, Repository,
    auth::Scope,
    manifest,
    source::{Stored, not_found, verified},
    transport::{Body, Call, Transport},
};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// The size limit of a registry's error document, bytes.
const MAX_ERROR: u64 = 64 << 10;

/// Repositories in which a HEAD request has succeeded. A 404 to HEAD is trusted there without a
/// second request. The set grows only with repositories that exist.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashSet<Repository>>);

impl Seen {
    fn contains(&self, repository: &Repository) -> bool {
        self.lock().contains(repository)
    }

    fn insert(&self, repository: &Repository) {
        let mut seen = self.lock();
        if !seen.contains(repository) {
            seen.insert(repository.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Repository>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One repository of a registry. Reads make a single attempt; callers retry.
#[derive(Debug)]
pub(crate) struct Remote<'a> {
    pub(crate) config: &'a Config,
    pub(crate) transport: &'a Transport,
    seen: &'a Seen,
    pub(crate) repository: &'a Repository,
    pub(crate) base: Url,
    pub(crate) pull: Scope,
    pub(crate) push: Scope,
}

impl<'a> Remote<'a> {
    pub(crate) fn new(
        config: &'a Config,
        (transport, seen): (&'a Transport, &'a Seen),
        repository: &'a Repository,
        (host, path): (&str, &str),
    ) -> Result<Self, Error> {
        let base = transport.endpoint(host)?.join(&format!("{path}/"));
        let base =
            base.map_err(|error| Error::invalid(repository.to_string(), error.to_string()))?;
        let scope = |push| Scope { host: host.to_owned(), repository: path.to_owned(), push };
        Ok(Self {
            config,
            transport,
            seen,
            repository,
            base,
            pull: scope(false),
            push: scope(true),
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.pull.host
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        self.base.join(path).expect("tags, digests and fixed words join")
    }

    /// Resolves a tag or digest by HEAD. GET is used if HEAD is not supported, gives no digest, or
    /// finds nothing in a repository where HEAD has never succeeded.
    pub(crate) async fn resolve(&self, selector: &Selector) -> Result<Digest, Error> {
        let response = self.manifest_call(Method::HEAD, selector).await?;
        let status = response.status();
        if status.is_success()
            && let Some(digest) = content_digest(response.headers())
        {
            self.seen.insert(self.repository);
            return Ok(digest);
        }
        let seen = self.seen.contains(self.repository);
        if status == StatusCode::NOT_FOUND && seen {
            return Err(not_found(self.repository, selector));
        }
        match self.manifest(selector).await {
            Err(Error::TagNotFound { .. }) if !seen => Err(self.missing_error(selector).await?),
            result => result.map(|stored| stored.digest),
        }
    }

    /// The error for a missing tag. Some registries report a missing manifest although the whole
    /// repository is missing; the request for its list of tags distinguishes the two.
    async fn missing_error(&self, selector: &Selector) -> Result<Error, Error> {
        let mut url = self.url("tags/list");
        url.set_query(Some("n=1"));
        let (scope, method) = (&self.pull, Method::GET);
        let call = Call { scope, method, url, headers: Vec::new(), body: Body::Empty };
        let response = self.transport.call(&call).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(Error::RepositoryNotFound { repository: self.repository.to_string() });
        }
        Ok(not_found(self.repository, selector))
    }

    /// Returns true if the registry itself says that the tag or digest does not exist. A 404
    /// without the registry's error code may come from a proxy and does not count.
    pub(crate) async fn is_missing(&self, selector: &Selector) -> Result<bool, Error> {
        let response = self.manifest_call(Method::GET, selector).await?;
        if response.status() != StatusCode::NOT_FOUND {
            return Ok(false);
        }
        // Harbor uses NOT_FOUND for a missing repository and a missing manifest.
        let code = self.error_code(response).await;
        Ok(matches!(code.as_deref(), Some("MANIFEST_UNKNOWN" | "NAME_UNKNOWN" | "NOT_FOUND")))
    }

    pub(crate) async fn manifest(&self, selector: &Selector) -> Result<Stored, Error> {
        let response = self.manifest_call(Method::GET, selector).await?;
        let response = self.found(response, selector).await?;
        let media_type = response.headers().get(CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let what = format!("the manifest of {}{selector}", self.repository);
        let limit = self.config.limits.manifest;
        let body = self.transport.plain.read(self.host(), &what, response, limit).await?;
        verified(self.repository, selector, body, media_type)
    }

    /// Reads a blob of at most `limit` bytes into memory.
    pub(crate) async fn small_blob(
        &self,
        digest: Digest,
        what: &str,
        limit: u64,
    ) -> Result<Stored, Error> {
        let selector = Selector::Digest(digest);
        let response = self.blob(digest, 0).await?;
        let body = self.transport.plain.read(self.host(), what, response, limit).await?;
        verified(self.repository, &selector, body, None)
    }

    /// Requests a blob from `offset` on. The answer's status is 200, 206 or 416, depending on the
    /// registry's support of ranges.
    pub(crate) async fn blob(&self, digest: Digest, offset: u64) -> Result<Response, Error> {
        let mut headers = Vec::new();
        if offset > 0 {
            headers.push((RANGE, format!("bytes={offset}-")));
        }
        let url = self.url(&format!("blobs/{digest}"));
        let call = Call { scope: &self.pull, method: Method::GET, url, headers, body: Body::Empty };
        let response = self.transport.call(&call).await?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE && offset > 0 {
            return Ok(response);
        }
        self.found(response, &Selector::Digest(digest)).await
    }

    /// The registry's list of artifacts attached to `digest`; `None` if it keeps no such list.
    pub(crate) async fn referrers(&self, digest: Digest) -> Result<Option<Vec<u8>>, Error> {
        let (scope, url) = (&self.pull, self.url(&format!("referrers/{digest}")));
        let headers = vec![(ACCEPT, OCI_IMAGE_INDEX_MEDIA_TYPE.to_owned())];
        let call = Call { scope, method: Method::GET, url, headers, body: Body::Empty };
        let response = self.transport.call(&call).await?;
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let list = kind.is_some_and(|it| it.starts_with(OCI_IMAGE_INDEX_MEDIA_TYPE.as_bytes()));
        if !response.status().is_success() || !list {
            return Ok(None);
        }
        let what = format!("the referrers of {}@{digest}", self.repository);
        let limit = self.config.limits.manifest;
        self.transport.plain.read(self.host(), &what, response, limit).await.map(Some)
    }

    async fn manifest_call(&self, method: Method, selector: &Selector) -> Result<Response, Error> {
        let url = match selector {
            Selector::Tag(tag) => self.url(&format!("manifests/{tag}")),
            Selector::Digest(digest) => self.url(&format!("manifests/{digest}")),
        };
        let headers = vec![(ACCEPT, manifest::ACCEPTED.join(", "))];
        let call = Call { scope: &self.pull, method, url, headers, body: Body::Empty };
        self.transport.call(&call).await
    }

    async fn found(&self, response: Response, selector: &Selector) -> Result<Response, Error> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let code = self.error_code(response).await;
        match (status, code.as_deref()) {
            (_, Some("NAME_UNKNOWN")) => {
                Err(Error::RepositoryNotFound { repository: self.repository.to_string() })
            }
            (_, Some("UNAUTHORIZED" | "DENIED")) => {
                Err(Error::denied(self.host(), format!("{}: {status}", self.repository)))
            }
            (_, Some("TOOMANYREQUESTS")) => {
                Err(Error::unavailable(self.host(), status.to_string()))
            }
            (StatusCode::NOT_FOUND, _) => Err(not_found(self.repository, selector)),
            _ => Err(self.unexpected(status)),
        }
    }

    pub(crate) fn unexpected(&self, status: StatusCode) -> Error {
        Error::invalid(self.repository.to_string(), format!("the registry answers {status}"))
    }

    /// The first code in the registry's error document, if the body is one.
    async fn error_code(&self, response: Response) -> Option<String> {
        #[derive(Deserialize)]
        struct Document {
            errors: Vec<Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            code: String,
        }
        let body = self.transport.plain.read(self.host(), "an error", response, MAX_ERROR).await;
        let document: Document = serde_json::from_slice(&body.ok()?).ok()?;
        document.errors.into_iter().next().map(|entry| entry.code)
    }
}

fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get(CONTENT_DIGEST)?.to_str().ok()?.parse().ok()
}
