//! How a registry is told to misbehave.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_core::Digest;
use tokio::sync::Semaphore;

/// One way to misbehave, for some requests. Made from what it matches, then
/// what it does: `Rule::get("/v2/a/manifests/x").times(2).status(429)`.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<String>,
    path: String,
    left: Option<u32>,
    pub(super) effect: Effect,
}

/// What a rule does to the answer; unset fields leave it alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    pub(super) status: Option<u16>,
    pub(super) said: Option<u16>,
    pub(super) answered_after: Option<Gate>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Bytes>,
    pub(super) cut_after: Option<usize>,
    pub(super) pause: Option<(usize, Gate)>,
    pub(super) ignore_range: bool,
    pub(super) digest_header: Option<Option<String>>,
}

/// Holds an answer back until it is opened.
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

    /// Lets everything through, now and later.
    pub fn open(&self) {
        self.0.close();
    }

    pub(super) async fn passed(&self) {
        // Only ever closed, never given permits: an error is the signal.
        let _ = self.0.acquire().await;
    }
}

impl Rule {
    /// For requests of any method whose path contains `path`.
    pub fn any(path: &str) -> Self {
        Self { method: None, path: path.to_owned(), left: None, effect: Effect::default() }
    }

    /// For requests of this method whose path contains `path`.
    pub fn on(method: &str, path: &str) -> Self {
        Self { method: Some(method.to_owned()), ..Self::any(path) }
    }

    /// For GET requests whose path contains `path`.
    pub fn get(path: &str) -> Self {
        Self::on("GET", path)
    }

    /// For HEAD requests whose path contains `path`.
    pub fn head(path: &str) -> Self {
        Self::on("HEAD", path)
    }

    /// Only for that many requests.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.left = Some(count);
        self
    }

    /// Answers this status, without content.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.effect.status = Some(status);
        self
    }

    /// Does what it is asked, and answers this status all the same.
    #[must_use]
    pub fn done_but_says(mut self, status: u16) -> Self {
        self.effect.said = Some(status);
        self
    }

    /// Does what it is asked, and answers once the gate opens.
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

    /// Answers a request for a range with all of the content.
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

    /// Whether it is for this request; counts it then.
    pub(super) fn take(&mut self, method: &str, path: &str) -> bool {
        let ours = self.method.as_deref().is_none_or(|wanted| wanted == method);
        if !ours || !path.contains(&self.path) || self.left == Some(0) {
            return false;
        }
        self.left = self.left.map(|left| left - 1);
        true
    }
}
