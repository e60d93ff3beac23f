//! The server's side of the OCI distribution API.

use std::{collections::BTreeMap, fmt::Debug, io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request as Incoming, State as Extract},
    http::{HeaderMap, Method, StatusCode, Uri, request::Parts},
    response::Response,
    serve::Listener,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use outrigger_core::Digest;
use serde_json::{Value, json};

use super::{
    OCI_INDEX, Request, Shared, State, content::Content, layer::descriptor, rules::Effect,
};

/// The size limit of a request's body, bytes.
const MAX_BODY: usize = 1 << 30;

/// An answer before rules change it.
struct Answer {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

pub(super) async fn run(listener: impl Listener<Addr: Debug>, shared: Arc<Shared>) {
    let router = Router::new().fallback(handle).with_state(shared);
    axum::serve(listener, router).await.expect("a listener on loopback does not fail");
}

async fn handle(Extract(shared): Extract<Arc<Shared>>, request: Incoming) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return Response::new(Body::empty());
    };
    let (answer, effect) = shared.lock().take(&head, body);
    shared.processed.send_replace(());
    if let Some(gate) = &effect.answered_after {
        gate.pass().await;
    }
    answer.respond(&head.method, &head.headers, effect)
}

fn recorded(method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Request {
    let headers = headers.iter().map(|(name, value)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let is_form = uri.path() == "/token";
    Request {
        method: method.to_string(),
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        form: if is_form { String::from_utf8_lossy(body).into_owned() } else { String::new() },
    }
}

impl State {
    /// Records the request and processes it, unless a rule answers it.
    fn take(&mut self, head: &Parts, body: Bytes) -> (Answer, Effect) {
        let Parts { method, uri, headers, .. } = head;
        self.requests.push(recorded(method, uri, headers, &body));
        let rule = self
            .rules
            .iter_mut()
            .find_map(|rule| rule.take(method.as_str(), uri.path()).then(|| rule.effect.clone()));
        let effect = rule.unwrap_or_default();
        let answer = match effect.status {
            Some(status) => Answer::status(status),
            None => self.answer(method, uri, headers, body),
        };
        let answer = effect.reported_status.map_or(answer, Answer::status);
        (answer, effect)
    }

    fn answer(&mut self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Answer {
        if uri.path() == "/token" {
            return self.token(uri, headers, &body);
        }
        let Some((name, kind, reference)) = route(uri.path()) else {
            return Answer::status(404);
        };
        let writes = !matches!(*method, Method::GET | Method::HEAD);
        if let Err(challenge) = self.guard.check(&self.host, name, writes, headers) {
            return Answer::error(401, "UNAUTHORIZED").with("www-authenticate", challenge);
        }
        match (method.as_str(), kind) {
            ("GET" | "HEAD", "manifests") => self.get_manifest(name, reference),
            ("GET", "tags") => self.list_tags(name),
            ("GET", "referrers") if self.lists_referrers => self.referrers(name, reference),
            (_, "referrers") => Answer::status(404),
            ("GET" | "HEAD", "blobs") => self.get_blob(name, reference),
            ("POST", "uploads") => self.start_upload(name),
            ("PUT", "uploads") => self.finish_upload(name, uri, body),
            ("PUT", "manifests") => self.put_manifest(name, reference, headers, body),
            _ => Answer::status(405),
        }
    }

    fn token(&mut self, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Answer {
        let mut parameters = pairs(uri.query().unwrap_or_default());
        parameters.extend(pairs(&String::from_utf8_lossy(body)));
        let life = self.guard.life;
        match self.guard.issue(headers, &parameters) {
            Some(token) => Answer::json(200, json!({"token": token, "expires_in": life})),
            None => Answer::error(401, "UNAUTHORIZED"),
        }
    }

    fn get_manifest(&self, name: &str, reference: &str) -> Answer {
        let Some(content) = self.repositories.get(name) else {
            return Answer::error(404, "NAME_UNKNOWN");
        };
        match content.find(reference) {
            Some(manifest) => Answer::content(manifest.body.clone())
                .with("content-type", manifest.media_type.clone())
                .with("docker-content-digest", manifest.digest.to_string()),
            None => Answer::error(404, "MANIFEST_UNKNOWN"),
        }
    }

    fn list_tags(&self, name: &str) -> Answer {
        match self.repositories.get(name) {
            Some(content) => Answer::json(200, json!({"name": name, "tags": content.tags()})),
            None => Answer::error(404, "NAME_UNKNOWN"),
        }
    }

    fn get_blob(&self, name: &str, digest: &str) -> Answer {
        let content = self.repositories.get(name);
        let digest: Option<Digest> = digest.parse().ok();
        match content.zip(digest).and_then(|(content, digest)| content.blob(&digest)) {
            Some(blob) => Answer::content(blob).with("accept-ranges", "bytes".to_owned()),
            None => Answer::error(404, "BLOB_UNKNOWN"),
        }
    }

    fn start_upload(&mut self, name: &str) -> Answer {
        self.uploads += 1;
        let place = format!("/v2/{name}/blobs/uploads/{}?state=x", self.uploads);
        Answer::status(202).with("location", place)
    }

    fn finish_upload(&mut self, name: &str, uri: &Uri, body: Bytes) -> Answer {
        let digest = pairs(uri.query().unwrap_or_default()).remove("digest");
        let digest: Option<Digest> = digest.and_then(|digest| digest.parse().ok());
        match digest {
            Some(digest) if digest == Digest::of(&body) => {
                self.repository(name).put_blob(digest, body);
                Answer::status(201)
            }
            _ => Answer::error(400, "DIGEST_INVALID"),
        }
    }

    fn put_manifest(
        &mut self,
        name: &str,
        reference: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Answer {
        let media_type = headers.get("content-type").and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let tag = reference.parse::<Digest>().is_err().then_some(reference);
        let subject = subject(&body).filter(|_| self.lists_referrers);
        let digest = self.repository(name).put_manifest(tag, &media_type, body);
        let answer = Answer::status(201).with("docker-content-digest", digest.to_string());
        match subject {
            Some(subject) => answer.with("oci-subject", subject),
            None => answer,
        }
    }

    fn referrers(&self, name: &str, reference: &str) -> Answer {
        let manifests = self.repositories.get(name).into_iter().flat_map(Content::manifests);
        let theirs = manifests.filter(|it| subject(&it.body).as_deref() == Some(reference));
        let entries = theirs.map(|manifest| {
            let read: Value = serde_json::from_slice(&manifest.body).unwrap_or_default();
            let mut entry = descriptor(&manifest.media_type, &manifest.body);
            entry["artifactType"] = read["artifactType"].clone();
            entry["annotations"] = read["annotations"].clone();
            entry
        });
        let entries: Vec<_> = entries.collect();
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
        Answer::content(index.to_string().into()).with("content-type", OCI_INDEX.to_owned())
    }
}

/// The digest of a manifest's subject.
fn subject(manifest: &[u8]) -> Option<String> {
    let manifest: Value = serde_json::from_slice(manifest).ok()?;
    Some(manifest["subject"]["digest"].as_str()?.to_owned())
}

/// `/v2/NAME/KIND/REFERENCE`; the kind of `blobs/uploads/` is `uploads`.
fn route(path: &str) -> Option<(&str, &str, &str)> {
    let path = path.strip_prefix("/v2/")?;
    if let Some((name, upload)) = path.split_once("/blobs/uploads/") {
        return Some((name, "uploads", upload));
    }
    let (rest, reference) = path.rsplit_once('/')?;
    let (name, kind) = rest.rsplit_once('/')?;
    Some((name, kind, reference))
}

fn pairs(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

/// Decodes percent encoding.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(if first == b'+' { b' ' } else { first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Answer {
    fn status(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("a status");
        Self { status, headers: Vec::new(), body: Bytes::new() }
    }

    fn content(body: Bytes) -> Self {
        Self { body, ..Self::status(200) }
    }

    fn json(status: u16, value: serde_json::Value) -> Self {
        Self { body: value.to_string().into(), ..Self::status(status) }
            .with("content-type", "application/json".to_owned())
    }

    fn error(status: u16, code: &str) -> Self {
        Self::json(status, json!({"errors": [{"code": code, "message": "no"}]}))
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    fn respond(mut self, method: &Method, headers: &HeaderMap, effect: Effect) -> Response {
        if let Some(body) = effect.body {
            self.body = body;
        }
        if let Some(digest) = effect.digest_header {
            self.headers.retain(|(name, _)| *name != "docker-content-digest");
            self.headers.extend(digest.map(|digest| ("docker-content-digest", digest)));
        }
        if !effect.ignore_range {
            self.cut_range(headers);
        }
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(*name, value);
        }
        for (name, value) in &effect.headers {
            response = response.header(name, value);
        }
        response = response.header("content-length", self.body.len());
        let body = match (effect.drip, effect.cut_after, effect.pause) {
            _ if *method == Method::HEAD => Body::empty(),
            (Some(interval), ..) => dripping(self.body, interval),
            (None, None, None) => Body::from(self.body),
            (None, Some(at), _) => cut(self.body, at),
            (None, None, Some((at, gate))) => paused(self.body, at, gate),
        };
        response.body(body).expect("valid headers")
    }

    /// Serves `bytes=N-` of a blob.
    fn cut_range(&mut self, headers: &HeaderMap) {
        let ranges = self.headers.iter().any(|(name, _)| *name == "accept-ranges");
        let range = headers.get("range").and_then(|value| value.to_str().ok());
        let start = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        let Some(start) = start.filter(|_| ranges && self.status == StatusCode::OK) else { return };
        let start: usize = start.parse().unwrap_or(usize::MAX);
        let length = self.body.len();
        if start >= length {
            *self = Self::status(416);
            return;
        }
        self.status = StatusCode::PARTIAL_CONTENT;
        self.body = self.body.slice(start..);
        self.headers.push(("content-range", format!("bytes {start}-{}/{length}", length - 1)));
    }
}

fn cut(body: Bytes, at: usize) -> Body {
    let first = body.slice(..at.min(body.len()));
    let broken = io::Error::other("cut by a rule");
    Body::from_stream(stream::iter([Ok(first), Err(broken)]))
}

fn dripping(body: Bytes, interval: Duration) -> Body {
    let bytes = stream::unfold(body, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(interval).await;
        Some((Ok::<_, io::Error>(rest.split_to(1)), rest))
    });
    Body::from_stream(bytes)
}

fn paused(body: Bytes, at: usize, gate: super::Gate) -> Body {
    let at = at.min(body.len());
    let (first, rest) = (body.slice(..at), body.slice(at..));
    let rest = stream::once(async move {
        gate.pass().await;
        Ok::<_, io::Error>(rest)
    });
    Body::from_stream(stream::iter([Ok(first)]).chain(rest))
}
