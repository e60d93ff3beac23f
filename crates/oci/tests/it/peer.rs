//! Images that oci-client's own `Client` and ours exchange through the real docker-registry.

use std::{collections::BTreeMap, fs};

use bytes::Bytes;
use oci_client::{
    client::{ClientConfig, ClientProtocol, Config, ImageLayer},
    manifest::{IMAGE_LAYER_GZIP_MEDIA_TYPE, IMAGE_LAYER_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE},
    secrets::RegistryAuth,
};
use outrigger_core::{Digest, LayerKind};
use outrigger_oci::{ImageToPush, LayerToPush};
use outrigger_testkit::registry::{docker_registry, docker_registry_with_password};

use crate::support::{CONFIG, bytes, client, client_with, login, reference};

/// oci-client's, for plain HTTP to `host`.
fn peer(host: &str, use_monolithic_push: bool) -> oci_client::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let protocol = ClientProtocol::HttpsExcept(vec![host.to_owned()]);
    let config = ClientConfig { protocol, use_monolithic_push, ..ClientConfig::default() };
    oci_client::Client::try_from(config).unwrap()
}

/// The same reference, in oci-client's type.
fn theirs(reference: &outrigger_oci::Reference) -> oci_client::Reference {
    reference.to_string().parse().unwrap()
}

/// Layers of several megabytes and of few bytes, by media type.
fn layers() -> [(LayerKind, &'static str, Vec<u8>); 2] {
    [
        (LayerKind::Tar, IMAGE_LAYER_MEDIA_TYPE, bytes(5_000_000)),
        (LayerKind::TarGzip, IMAGE_LAYER_GZIP_MEDIA_TYPE, b"small".to_vec()),
    ]
}

fn annotations() -> BTreeMap<String, String> {
    [("org.opencontainers.image.title".to_owned(), "churn".to_owned())].into()
}

fn image() -> ImageToPush {
    let layers = layers().map(|(kind, _, bytes)| LayerToPush::from_bytes(kind, bytes));
    ImageToPush {
        layers: layers.into(),
        config: Bytes::from_static(CONFIG),
        annotations: annotations(),
        original: None,
    }
}

/// The image that oci-client pulls for [`image`].
async fn pulls_our_image(
    peer: &oci_client::Client,
    from: &oci_client::Reference,
    auth: &RegistryAuth,
    digest: Digest,
) {
    let accepted = layers().map(|(_, media_type, _)| media_type);
    let pulled = peer.pull(from, auth, accepted.to_vec()).await.unwrap();
    assert_eq!(pulled.digest, Some(digest.to_string()));
    assert_eq!(&pulled.config.data[..], CONFIG);
    let manifest = pulled.manifest.unwrap();
    assert_eq!(manifest.media_type.as_deref(), Some(OCI_IMAGE_MEDIA_TYPE));
    assert_eq!(manifest.annotations, Some(annotations()));
    // Layers arrive in the order in which their transfers end.
    for (_, media_type, bytes) in layers() {
        let layer = pulled.layers.iter().find(|layer| layer.media_type == media_type).unwrap();
        assert!(layer.data == bytes, "{media_type}");
    }
    assert_eq!(pulled.layers.len(), layers().len());
    assert_eq!(peer.fetch_manifest_digest(from, auth).await.unwrap(), digest.to_string());
}

#[tokio::test]
async fn oci_client_pulls_what_we_push() {
    let Some(registry) = docker_registry() else { return };
    let latest = reference(registry.host(), ":latest");
    let digest = client(registry.host()).push(&latest, &image()).await.unwrap();
    let peer = peer(registry.host(), true);
    pulls_our_image(&peer, &theirs(&latest), &RegistryAuth::Anonymous, digest).await;
    let pinned = theirs(&latest.with_digest(digest));
    pulls_our_image(&peer, &pinned, &RegistryAuth::Anonymous, digest).await;
}

#[tokio::test]
async fn oci_client_pulls_with_the_password_that_we_push_with() {
    let Some(registry) = docker_registry_with_password() else { return };
    let home = tempfile::tempdir().unwrap();
    let docker_config = home.path().join("config.json");
    login(&docker_config, registry.host(), "ann", "s3cret");
    let latest = reference(registry.host(), ":latest");
    let ours = client_with(registry.host(), &docker_config);
    let digest = ours.push(&latest, &image()).await.unwrap();
    let auth = RegistryAuth::Basic("ann".to_owned(), "s3cret".to_owned());
    pulls_our_image(&peer(registry.host(), true), &theirs(&latest), &auth, digest).await;
}

/// Pushes with oci-client, in one piece or in several, and pulls with ours.
async fn is_pulled_by_us(in_one_piece: bool) {
    let Some(registry) = docker_registry() else { return };
    let latest = reference(registry.host(), ":latest");
    let layers = layers();
    let pushed = layers.each_ref().map(|(_, media_type, bytes)| {
        ImageLayer::new(bytes.clone(), (*media_type).to_owned(), None)
    });
    let config = Config::oci_v1(CONFIG, None);
    let peer = peer(registry.host(), in_one_piece);
    let (to, auth) = (theirs(&latest), RegistryAuth::Anonymous);
    peer.push(&to, &pushed, config, &auth, None).await.unwrap();

    let ours = client(registry.host());
    let digest = ours.resolve(&latest).await.unwrap();
    assert_eq!(peer.fetch_manifest_digest(&to, &auth).await.unwrap(), digest.to_string());
    let image = ours.image(&latest.with_digest(digest)).await.unwrap();
    assert_eq!(image.label("a"), Some("label"));
    assert_eq!(image.layers.len(), layers.len());
    let work = tempfile::tempdir().unwrap();
    for (layer, (kind, _, bytes)) in image.layers.iter().zip(&layers) {
        assert_eq!((layer.kind, layer.size), (*kind, bytes.len() as u64));
        let dest = work.path().join(layer.digest.to_string());
        ours.fetch_blob(&latest, layer, &dest).await.unwrap();
        assert!(fs::read(&dest).unwrap() == *bytes, "{kind:?}");
    }
}

#[tokio::test]
async fn we_pull_what_oci_client_pushes_in_one_piece() {
    is_pulled_by_us(true).await;
}

#[tokio::test]
async fn we_pull_what_oci_client_pushes_in_several_pieces() {
    is_pulled_by_us(false).await;
}
