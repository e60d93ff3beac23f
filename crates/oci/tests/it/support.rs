//! Clients and content for the tests.

use std::{fs, path::Path, time::Duration};

use bytes::Bytes;
use outrigger_core::{Digest, LayerKind};
use outrigger_oci::{
    Client, Config, Credentials, ImageToPush, Layer, LayerToPush, Reference, Retries,
};
use outrigger_testkit::registry::{LayerBlob, Registry};

pub(crate) const NAME: &str = "team/churn";

/// A configuration with short delays; a `Retry-After` of a second or more is returned to the
/// caller.
pub(crate) fn config(host: &str) -> Config {
    // Only the first installation in a process succeeds; the result does not matter.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Config {
        plain_http: vec![host.to_owned()],
        credentials: Credentials { docker_config: None, ..Credentials::default() },
        retries: Retries {
            attempts: 4,
            first_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(5),
            max_retry_after: Duration::from_millis(10),
        },
        ..Config::default()
    }
}

pub(crate) fn client(host: &str) -> Client {
    Client::new(config(host)).unwrap()
}

/// A client that reads its credentials from this configuration file.
pub(crate) fn client_with(host: &str, docker_config: &Path) -> Client {
    let mut config = config(host);
    config.credentials.docker_config = Some(docker_config.to_owned());
    Client::new(config).unwrap()
}

pub(crate) fn reference(host: &str, version: &str) -> Reference {
    format!("{host}/{NAME}{version}").parse().unwrap()
}

/// `count` pseudo-random bytes, so that a shift is noticed.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

pub(crate) const CONFIG: &[u8] = br#"{"config": {"Labels": {"a": "label"}}}"#;

/// A registry with one image: its only layer is `layer`.
pub(crate) async fn registry_with(layer: &[u8]) -> (Registry, Digest, Layer) {
    let registry = Registry::start().await;
    let layers = [LayerBlob::tar(layer.to_vec())];
    let digest = registry.push_image(NAME, "latest", &layers, CONFIG);
    (registry, digest, layer_of(layer))
}

pub(crate) fn layer_of(bytes: &[u8]) -> Layer {
    Layer { digest: Digest::of(bytes), size: bytes.len() as u64, kind: LayerKind::Tar }
}

pub(crate) fn image(layers: &[&[u8]]) -> ImageToPush {
    let layer = |bytes: &&[u8]| LayerToPush::from_bytes(LayerKind::Tar, bytes.to_vec());
    ImageToPush {
        layers: layers.iter().map(layer).collect(),
        config: Bytes::from_static(CONFIG),
        annotations: [("a".to_owned(), "label".to_owned())].into(),
        original: None,
    }
}

/// Writes a Docker configuration with one entry for `host`.
pub(crate) fn login(path: &Path, host: &str, user: &str, password: &str) {
    let auths = serde_json::json!({
        "auths": { host: { "username": user, "password": password } }
    });
    fs::write(path, auths.to_string()).unwrap();
}
