//! A scriptable image registry in the test's process, and the real `docker-registry` as a fixture.
//!
//! ```no_run
//! # async fn example() {
//! use outrigger_testkit::registry::{LayerBlob, Registry, Rule};
//!
//! let registry = Registry::start().await;
//! let layers = [LayerBlob::tar(&b"..."[..])];
//! let digest = registry.push_image("team/churn", "latest", &layers, "{}");
//! registry.script(Rule::get("/v2/team/churn/manifests/latest").times(2).status(503));
//! // "{host}/team/churn:latest" now fails twice, and then resolves to `digest`.
//! # let _ = (registry.host(), digest);
//! # }
//! ```

mod content;
mod docker;
mod guard;
mod layer;
mod request;
mod rules;
mod serve;
mod sign;
mod tls;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::serve::Listener;
use bytes::Bytes;
use outrigger_core::Digest;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

pub use docker::{DockerRegistry, docker_registry, docker_registry_with_password};
pub use layer::LayerBlob;
pub use request::Request;
pub use rules::{Gate, Rule};
pub use sign::{Signer, payload, statement};

use content::Content;
use guard::Guard;
use layer::descriptor;

const OCI_IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A registry over plain HTTP on loopback. It stops when dropped.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
    host: String,
    authority: Option<String>,
    /// The server; aborted when the registry is dropped.
    _server: JoinSet<()>,
}

/// The state shared by the server and the test.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified of each request once it is processed.
    processed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    repositories: BTreeMap<String, Content>,
    rules: Vec<Rule>,
    guard: Guard,
    requests: Vec<Request>,
    uploads: u64,
    lists_referrers: bool,
    host: String,
}

async fn bind() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let host = listener.local_addr().expect("it is bound").to_string();
    (listener, host)
}

impl Registry {
    /// Starts an empty registry on a free port.
    pub async fn start() -> Self {
        let (listener, host) = bind().await;
        Self::over(listener, host, None)
    }

    /// Starts an empty registry over HTTPS, with a certificate by an authority of its own.
    pub async fn start_tls() -> Self {
        let (listener, host) = bind().await;
        let (listener, authority) = tls::over(listener);
        Self::over(listener, host, Some(authority))
    }

    fn over<L>(listener: L, host: String, authority: Option<String>) -> Self
    where
        L: Listener<Addr: Debug>,
    {
        let shared = Arc::new(Shared::default());
        shared.lock().host.clone_from(&host);
        let mut server = JoinSet::new();
        server.spawn(serve::run(listener, Arc::clone(&shared)));
        Self { shared, host, authority, _server: server }
    }

    /// The certificate of the authority, if the registry uses HTTPS; PEM.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// `127.0.0.1:PORT`, as in references. Clients must list it for plain HTTP.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Stores an image under `tag` and returns its digest.
    pub fn push_image(
        &self,
        name: &str,
        tag: &str,
        layers: &[LayerBlob],
        config: impl Into<Bytes>,
    ) -> Digest {
        self.push_image_with(name, tag, layers, config, &[])
    }

    /// Like [`Registry::push_image`], with annotations.
    pub fn push_image_with(
        &self,
        name: &str,
        tag: &str,
        layers: &[LayerBlob],
        config: impl Into<Bytes>,
        annotations: &[(&str, &str)],
    ) -> Digest {
        let config = config.into();
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI_IMAGE,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers.iter().map(LayerBlob::descriptor).collect::<Vec<_>>(),
            "annotations": annotations,
        });
        self.push_blob(name, config);
        for layer in layers {
            self.push_blob(name, layer.bytes.clone());
        }
        self.push_manifest(name, Some(tag), OCI_IMAGE, manifest.to_string())
    }

    /// Stores an index of stored images, each with its platform as `os/architecture`, and returns
    /// its digest.
    pub fn push_index(&self, name: &str, tag: &str, images: &[(Digest, &str)]) -> Digest {
        let entries: Vec<_> = images.iter().map(|image| self.index_entry(name, image)).collect();
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
        self.push_manifest(name, Some(tag), OCI_INDEX, index.to_string())
    }

    fn index_entry(&self, name: &str, (digest, platform): &(Digest, &str)) -> Value {
        let state = self.shared.lock();
        let manifest = state.repositories.get(name).and_then(|all| all.manifest(digest));
        let size = manifest.map_or(0, |manifest| manifest.body.len());
        let mut entry = json!({"mediaType": OCI_IMAGE, "digest": digest.to_string(), "size": size});
        if let Some((os, architecture)) = platform.split_once('/') {
            entry["platform"] = json!({"os": os, "architecture": architecture});
        }
        entry
    }

    /// Stores a blob.
    pub fn push_blob(&self, name: &str, bytes: impl Into<Bytes>) -> Digest {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes);
        self.shared.lock().repository(name).put_blob(digest, bytes);
        digest
    }

    /// Stores any manifest, valid or not.
    pub fn push_manifest(
        &self,
        name: &str,
        tag: Option<&str>,
        media_type: &str,
        body: impl Into<Bytes>,
    ) -> Digest {
        self.shared.lock().repository(name).put_manifest(tag, media_type, body.into())
    }

    /// Replaces a blob's bytes but keeps it under its old digest.
    pub fn corrupt_blob(&self, name: &str, digest: Digest, bytes: impl Into<Bytes>) {
        self.shared.lock().repository(name).put_blob(digest, bytes.into());
    }

    /// Points a tag at a stored manifest.
    pub fn tag(&self, name: &str, tag: &str, digest: Digest) {
        self.shared.lock().repository(name).tag(tag, digest);
    }

    /// Removes a tag.
    pub fn remove_tag(&self, name: &str, tag: &str) {
        self.shared.lock().repository(name).remove_tag(tag);
    }

    /// The digest that a tag names now.
    pub fn digest(&self, name: &str, tag: &str) -> Option<Digest> {
        self.shared.lock().repositories.get(name)?.tagged(tag)
    }

    /// Adds a rule. The first rule that matches a request and is not used up applies; without one
    /// the registry answers correctly.
    pub fn script(&self, rule: Rule) {
        self.shared.lock().rules.push(rule);
    }

    /// Removes all rules.
    pub fn behave(&self) {
        self.shared.lock().rules.clear();
    }

    /// Turns the referrers API of OCI 1.1 on.
    pub fn list_referrers(&self) {
        self.shared.lock().lists_referrers = true;
    }

    /// Requires this user and password (basic authorization).
    pub fn require_password(&self, user: &str, password: &str) {
        self.shared.lock().guard = Guard::password(user, password);
    }

    /// Requires a bearer token of the token server at `/token`. That requires this user and
    /// password, or `password` as a refresh token.
    pub fn require_token(&self, user: &str, password: &str) {
        self.shared.lock().guard = Guard::token(Some((user, password)));
    }

    /// Like [`Registry::require_token`], but the token server requires no credentials.
    pub fn require_anonymous_token(&self) {
        self.shared.lock().guard = Guard::token(None);
    }

    /// Sets the life that the token server states for new tokens, seconds.
    pub fn token_life(&self, seconds: u64) {
        self.shared.lock().guard.life = seconds;
    }

    /// Revokes all tokens issued so far.
    pub fn revoke_tokens(&self) {
        self.shared.lock().guard.revoke();
    }

    /// All requests received so far, refused ones included.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The number of requests with `method` and a path that contains `path`.
    pub fn count(&self, method: &str, path: &str) -> usize {
        let wanted = |r: &&Request| r.method == method && r.path.contains(path);
        self.shared.lock().requests.iter().filter(wanted).count()
    }

    /// Waits until `condition` holds. It is examined now, and after each request.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let mut processed = self.shared.processed.subscribe();
        let holds = processed.wait_for(|()| condition(self)).await;
        drop(holds.expect("the registry keeps its own sender"));
    }

    /// Clears the record of requests.
    pub fn forget_requests(&self) {
        self.shared.lock().requests.clear();
    }
}

impl Shared {
    /// Locks the state, never across an await.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn repository(&mut self, name: &str) -> &mut Content {
        self.repositories.entry(name.to_owned()).or_default()
    }
}
