//! Rules that make the registry answer incorrectly.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use outrigger_core::Digest;
use tokio::sync::Semaphore;

/// A change of the answers to some requests: first the requests that match, then the effect, as in
/// `Rule::get("/v2/a/manifests/x").times(2).status(429)`.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<String>,
    path: String,
    remaining: Option<u32>,
    pub(super) effect: Effect,
}

/// The effect of a rule on the answer; unset fields change nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    pub(super) status: Option<u16>,
    pub(super) reported_status: Option<u16>,
    pub(super) answered_after: Option<Gate>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Bytes>,
    pub(super) cut_after: Option<usize>,
    pub(super) pause: Option<(usize, Gate)>,
    pub(super) drip: Option<Duration>,
    pub(super) ignore_range: bool,
    pub(super) digest_header: Option<Option<String>>,
}

/// A gate that holds an answer back until it is opened.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate, for all present and later waiters.
    pub fn open(&self) {
        self.0.close();
    }

    pub(super) async fn pass(&self) {
        // The semaphore never has permits; closing it wakes all waiters with an error.
        let _ = self.0.acquire().await;
    }
}

impl Rule {
    /// Matches requests of any method whose path contains `path`.
    pub fn any(path: &str) -> Self {
        Self { method: None, path: path.to_owned(), remaining: None, effect: Effect::default() }
    }

    /// Matches requests of this method whose path contains `path`.
    pub fn on(method: &str, path: &str) -> Self {
        Self { method: Some(method.to_owned()), ..Self::any(path) }
    }

    /// Matches GET requests whose path contains `path`.
    pub fn get(path: &str) -> Self {
        Self::on("GET", path)
    }

    /// Matches HEAD requests whose path contains `path`.
    pub fn head(path: &str) -> Self {
        Self::on("HEAD", path)
    }

    /// Limits the rule to that many requests.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.remaining = Some(count);
        self
    }

    /// Answers with this status and no content, without processing the request.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.effect.status = Some(status);
        self
    }

    /// Processes the request, but answers with this status.
    #[must_use]
    pub fn processed_but_answers(mut self, status: u16) -> Self {
        self.effect.reported_status = Some(status);
        self
    }

    /// Processes the request, and answers when the gate opens.
    #[must_use]
    pub fn answered_after(mut self, gate: &Gate) -> Self {
        self.effect.answered_after = Some(gate.clone());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.effect.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds `Retry-After`: seconds or a date.
    #[must_use]
    pub fn retry_after(self, value: &str) -> Self {
        self.header("retry-after", value)
    }

    /// Answers with this body instead.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.effect.body = Some(body.into());
        self
    }

    /// Breaks the connection after that many bytes of the body.
    #[must_use]
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.effect.cut_after = Some(bytes);
        self
    }

    /// Pauses after that many bytes of the body until the gate opens.
    #[must_use]
    pub fn pause_after(mut self, bytes: usize, gate: &Gate) -> Self {
        self.effect.pause = Some((bytes, gate.clone()));
        self
    }

    /// Sends the body one byte at a time, one in each `interval`.
    #[must_use]
    pub fn drip(mut self, interval: Duration) -> Self {
        self.effect.drip = Some(interval);
        self
    }

    /// Answers a range request with the whole content.
    #[must_use]
    pub fn ignore_range(mut self) -> Self {
        self.effect.ignore_range = true;
        self
    }

    /// Sends another digest in `Docker-Content-Digest`.
    #[must_use]
    pub fn digest_header(mut self, digest: Digest) -> Self {
        self.effect.digest_header = Some(Some(digest.to_string()));
        self
    }

    /// Sends no `Docker-Content-Digest`.
    #[must_use]
    pub fn no_digest_header(mut self) -> Self {
        self.effect.digest_header = Some(None);
        self
    }

    /// Whether the rule matches this request; a match uses the rule once.
    pub(super) fn take(&mut self, method: &str, path: &str) -> bool {
        let ours = self.method.as_deref().is_none_or(|wanted| wanted == method);
        if !ours || !path.contains(&self.path) || self.remaining == Some(0) {
            return false;
        }
        self.remaining = self.remaining.map(|count| count - 1);
        true
    }
}
