//! Resolving tags and reading images.

use std::time::Duration;

use outrigger_core::{Digest, LayerKind, Reason};
use outrigger_oci::{Client, Error, Reference};
use outrigger_testkit::registry::{Gate, LayerBlob, Registry, Rule};

use crate::support::{CONFIG, NAME, bytes, client, config, layer_of, reference, registry_with};

const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER: &str = "application/vnd.docker.distribution.manifest.v2+json";

#[tokio::test]
async fn a_tag_resolves_with_a_head_request_and_follows_the_tag() {
    let (registry, digest, _) = registry_with(b"one").await;
    let (client, reference) = (client(registry.host()), reference(registry.host(), ":latest"));
    assert_eq!(client.resolve(&reference).await.unwrap(), digest);
    assert_eq!(
        (registry.count("HEAD", "/manifests/"), registry.count("GET", "/manifests/")),
        (1, 0)
    );
    let moved = registry.push_image(NAME, "latest", &[LayerBlob::tar(&b"two"[..])], CONFIG);
    assert_ne!(moved, digest);
    assert_eq!(client.resolve(&reference).await.unwrap(), moved);
}

#[tokio::test]
async fn a_registry_without_head_or_digest_is_read_and_hashed() {
    let (registry, digest, _) = registry_with(b"one").await;
    let (client, reference) = (client(registry.host()), reference(registry.host(), ""));
    for rule in [
        Rule::head("/manifests/").status(405),
        Rule::head("/manifests/").status(404),
        Rule::head("/manifests/").no_digest_header(),
    ] {
        registry.behave();
        registry.script(rule);
        assert_eq!(client.resolve(&reference).await.unwrap(), digest);
    }
}

#[tokio::test]
async fn missing_items_have_distinct_errors() {
    let (registry, digest, _) = registry_with(b"one").await;
    let client = client(registry.host());
    let resolve = async |text: String| client.resolve(&text.parse().unwrap()).await.unwrap_err();
    let host = registry.host();
    let error = resolve(format!("{host}/{NAME}:nope")).await;
    assert!(matches!(&error, Error::TagNotFound { tag, .. } if tag == "nope"), "{error:?}");
    assert_eq!(error.reason(), Reason::TagNotFound);
    let error = resolve(format!("{host}/{NAME}@{}", Digest::of(b"x"))).await;
    assert_eq!(error.reason(), Reason::DigestNotFound);
    let error = resolve(format!("{host}/team/other:latest")).await;
    assert!(matches!(error, Error::RepositoryNotFound { .. }), "{error:?}");
    assert_eq!(error.reason(), Reason::ModelNotFound);
    let known = reference(host, &format!("@{digest}"));
    assert_eq!(client.resolve(&known).await.unwrap(), digest);
}

#[tokio::test]
async fn only_the_registrys_own_error_code_means_a_missing_tag() {
    let (registry, ..) = registry_with(b"one").await;
    let (host, client) = (registry.host(), client(registry.host()));
    let (latest, nope) = (reference(host, ":latest"), reference(host, ":nope"));
    assert!(!client.is_missing(&latest).await.unwrap());
    assert!(client.is_missing(&nope).await.unwrap());
    let other: Reference = format!("{host}/team/other:latest").parse().unwrap();
    assert!(client.is_missing(&other).await.unwrap());
    let harbor = r#"{"errors":[{"code":"NOT_FOUND","message":"tag nope not found"}]}"#;
    for (status, body, said) in [
        (404, harbor, Some(true)),
        (404, "", Some(false)),
        (404, "<html>404 page not found</html>", Some(false)),
        (404, r#"{"errors":[{"code":"DENIED","message":"no"}]}"#, Some(false)),
        (403, harbor, None),
        (429, harbor, None),
        (500, harbor, None),
        (503, "", None),
    ] {
        registry.behave();
        registry.script(Rule::get("/manifests/nope").status(status).body(body));
        let result = client.is_missing(&nope).await;
        match said {
            Some(said) => assert_eq!(result.unwrap(), said, "{status} {body}"),
            None => assert!(!result.is_ok_and(|missing| missing), "{status} {body}"),
        }
    }
}

#[tokio::test]
async fn a_tag_missing_from_a_known_repository_costs_one_request() {
    let (registry, ..) = registry_with(b"one").await;
    let client = client(registry.host());
    client.resolve(&reference(registry.host(), ":latest")).await.unwrap();
    registry.forget_requests();
    let error = client.resolve(&reference(registry.host(), ":canary")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::TagNotFound);
    assert_eq!(registry.requests().len(), 1);
}

#[tokio::test]
async fn an_image_has_its_layers_labels_and_annotations() {
    let registry = Registry::start().await;
    let layers = [
        LayerBlob::new(LayerKind::TarGzip, &b"one"[..]),
        LayerBlob::new(LayerKind::TarZstd, &b"two"[..]),
    ];
    let annotations = [("a", "annotation"), ("b", "other")];
    let digest = registry.push_image_with(NAME, "v1", &layers, CONFIG, &annotations);
    let image = client(registry.host()).image(&reference(registry.host(), ":v1")).await.unwrap();
    assert_eq!((image.digest, image.platform_digest), (digest, digest));
    assert_eq!(image.reference, reference(registry.host(), &format!("@{digest}")));
    assert_eq!(Digest::of(&image.manifest), digest);
    assert_eq!((image.label("a"), image.label("b")), (Some("label"), Some("other")));
    let kinds: Vec<_> = image.layers.iter().map(|layer| (layer.kind, layer.size)).collect();
    assert_eq!(kinds, [(LayerKind::TarGzip, 3), (LayerKind::TarZstd, 3)]);
    assert_eq!(image.packed_size(), 6);
}

#[tokio::test]
async fn docker_manifests_are_read_too() {
    let registry = Registry::start().await;
    let config = registry.push_blob(NAME, CONFIG);
    let layer = layer_of(b"one");
    registry.push_blob(NAME, &b"one"[..]);
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": DOCKER,
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json",
            "digest": config.to_string(), "size": CONFIG.len()},
        "layers": [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
            "digest": layer.digest.to_string(), "size": 3}],
    });
    let digest = registry.push_manifest(NAME, Some("v1"), DOCKER, manifest.to_string());
    let image = client(registry.host()).image(&reference(registry.host(), ":v1")).await.unwrap();
    assert_eq!(image.digest, digest);
    assert_eq!(image.layers[0].kind, LayerKind::TarGzip);
}

#[tokio::test]
async fn the_platforms_image_of_an_index_keeps_the_indexs_digest() {
    let registry = Registry::start().await;
    let push = |tag: &str, layer: &'static [u8]| {
        registry.push_image(NAME, tag, &[LayerBlob::tar(layer)], CONFIG)
    };
    let (amd, arm) = (push("amd", b"amd"), push("arm", b"arm"));
    let both = [(amd, "linux/amd64"), (arm, "linux/arm64")];
    let digest = registry.push_index(NAME, "latest", &both);
    let only = registry.push_index(NAME, "only", &[(arm, "linux/arm64")]);
    for (architecture, expected) in [("amd64", amd), ("arm64", arm)] {
        let client = client_for(&registry, architecture);
        let reference = reference(registry.host(), ":latest");
        assert_eq!(client.resolve(&reference).await.unwrap(), digest);
        let image = client.image(&reference).await.unwrap();
        assert_eq!((image.digest, image.platform_digest), (digest, expected));
    }
    let odd = client_for(&registry, "riscv64");
    let image = odd.image(&reference(registry.host(), ":only")).await.unwrap();
    assert_eq!((image.digest, image.platform_digest), (only, arm));
    let error = odd.image(&reference(registry.host(), ":latest")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::ImageInvalid);
    assert!(error.to_string().contains("linux/riscv64"), "{error}");
}

fn client_for(registry: &Registry, architecture: &str) -> Client {
    let mut config = config(registry.host());
    config.platform.architecture = architecture.into();
    Client::new(config).unwrap()
}

#[tokio::test]
async fn an_image_is_told_from_an_artifact_if_the_index_names_no_platforms() {
    let registry = Registry::start().await;
    let image = registry.push_image(NAME, "image", &[LayerBlob::tar(&b"one"[..])], CONFIG);
    let arm = registry.push_image(NAME, "arm", &[LayerBlob::tar(&b"arm"[..])], CONFIG);
    let config = registry.push_blob(NAME, &b"{}"[..]);
    let artifact = serde_json::json!({
        "schemaVersion": 2, "mediaType": OCI, "artifactType": "text/spdx", "layers": [],
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": config.to_string(), "size": 2},
    });
    let artifact = registry.push_manifest(NAME, None, OCI, artifact.to_string());
    let client = client_for(&registry, "amd64");
    for (entries, expected) in [
        (vec![(image, ""), (artifact, "")], Some(image)),
        (vec![(artifact, ""), (image, "")], Some(image)),
        (vec![(arm, "linux/arm64"), (artifact, "")], Some(arm)),
        (vec![(arm, "linux/arm64"), (image, "")], Some(image)),
        (vec![(artifact, ""), (image, ""), (arm, "linux/amd64")], Some(arm)),
        (vec![(artifact, "")], Some(artifact)),
        (vec![(arm, ""), (image, "")], None),
    ] {
        let digest = registry.push_index(NAME, "latest", &entries);
        let read = client.image(&reference(registry.host(), ":latest")).await;
        match expected {
            Some(expected) => {
                let read = read.expect("an image");
                assert_eq!((read.digest, read.platform_digest), (digest, expected), "{entries:?}");
            }
            None => {
                let error = read.expect_err("both could be meant").to_string();
                assert!(error.contains("no image for linux/amd64"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_manifest_that_is_not_its_digest_is_refused() {
    let (registry, digest, _) = registry_with(b"one").await;
    let other = registry.push_manifest(NAME, None, OCI, "{}");
    let client = client(registry.host());
    // `resolve` trusts the digest header; reading by digest detects the mismatch.
    registry.script(Rule::head("/manifests/latest").digest_header(other));
    let lied = client.resolve(&reference(registry.host(), ":latest")).await.unwrap();
    assert_eq!(lied, other);
    registry.script(Rule::get(&digest.to_string()).body("{\"schemaVersion\": 2}"));
    let by_digest = reference(registry.host(), &format!("@{digest}"));
    let error = client.image(&by_digest).await.unwrap_err();
    assert!(matches!(error, Error::DigestMismatch { expected, .. } if expected == digest));
    assert_eq!(error.reason(), Reason::ImageInvalid);
}

#[tokio::test]
async fn manifests_and_configurations_are_bounded() {
    let registry = Registry::start().await;
    let big = vec![b' '; (4 << 20) + 1];
    registry.push_manifest(NAME, Some("big"), OCI, big.clone());
    registry.push_image(NAME, "config", &[], big);
    let client = client(registry.host());
    for tag in [":big", ":config"] {
        let error = client.image(&reference(registry.host(), tag)).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 4_194_304, .. }), "{error:?}");
        assert_eq!(error.reason(), Reason::ImageInvalid);
    }
}

#[tokio::test]
async fn a_document_that_is_no_image_is_refused() {
    let registry = Registry::start().await;
    for body in ["", "{}", "<html>", "{\"schemaVersion\": 1}"] {
        registry.push_manifest(NAME, Some("bad"), OCI, body);
        let bad = reference(registry.host(), ":bad");
        let error = client(registry.host()).image(&bad).await.unwrap_err();
        assert_eq!(error.reason(), Reason::ImageInvalid, "{body}");
    }
}

#[tokio::test]
async fn an_unavailable_registry_is_tried_again() {
    let (registry, digest, _) = registry_with(b"one").await;
    for rule in [
        Rule::any("/v2/").status(500),
        Rule::any("/v2/").status(503),
        Rule::any("/v2/").status(429).retry_after("0"),
        Rule::get("/v2/").cut_after(5),
    ] {
        registry.behave();
        registry.script(rule.times(3));
        let image = client(registry.host()).image(&reference(registry.host(), "")).await.unwrap();
        assert_eq!(image.digest, digest);
    }
}

#[tokio::test]
async fn retries_of_an_unavailable_registry_end_and_its_retry_delay_is_reported() {
    let (registry, ..) = registry_with(b"one").await;
    let client = client(registry.host());
    registry.script(Rule::any("/v2/").status(500).times(20));
    let error = client.resolve(&reference(registry.host(), "")).await.unwrap_err();
    assert_eq!((error.reason(), error.retry_after()), (Reason::RegistryUnavailable, None));
    assert_eq!(registry.requests().len(), 4);

    registry.behave();
    registry.forget_requests();
    registry.script(Rule::any("/v2/").status(429).retry_after("120"));
    let error = client.resolve(&reference(registry.host(), "")).await.unwrap_err();
    let failure = error.failure();
    assert_eq!(failure.reason, Reason::RegistryUnavailable);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(120)));
    assert_eq!(registry.requests().len(), 1);
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_unavailable() {
    let registry = Registry::start().await;
    let host = registry.host().to_owned();
    drop(registry);
    let error = client(&host).resolve(&reference(&host, "")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryUnavailable);
    assert!(error.failure().message.contains("cannot connect"), "{}", error.failure());
}

#[tokio::test]
async fn a_silent_registry_is_unavailable() {
    let (registry, ..) = registry_with(b"one").await;
    registry.script(Rule::get("/manifests/").pause_after(10, &Gate::new()));
    let mut config = config(registry.host());
    config.timeouts.idle = Duration::from_millis(50);
    config.retries.attempts = 2;
    let client = Client::new(config).unwrap();
    let error = client.image(&reference(registry.host(), "")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryUnavailable);
}

#[tokio::test]
async fn a_forbidden_repository_is_denied_and_not_tried_again() {
    let (registry, ..) = registry_with(b"one").await;
    registry.script(Rule::any("/v2/").status(403));
    let error = client(registry.host()).resolve(&reference(registry.host(), "")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryDenied);
    assert_eq!(registry.requests().len(), 1);
}

#[tokio::test]
async fn a_layer_of_unknown_packing_is_refused() {
    let registry = Registry::start().await;
    let layer = LayerBlob { bytes: bytes(3).into(), media_type: "text/plain".to_owned() };
    registry.push_image(NAME, "latest", &[layer], CONFIG);
    let error = client(registry.host()).image(&reference(registry.host(), "")).await.unwrap_err();
    assert!(error.to_string().contains("text/plain"), "{error}");
}

#[tokio::test]
async fn a_manifest_that_does_not_come_to_its_end_is_given_up() {
    let (registry, ..) = registry_with(b"one").await;
    // Far below the limit for silence, so that the limit for documents applies.
    let mut config = config(registry.host());
    config.timeouts.document = Duration::from_millis(20);
    config.retries.attempts = 1;
    let gate = Gate::new();
    registry.script(Rule::get("/manifests/").pause_after(10, &gate));
    let client = Client::new(config).unwrap();
    let error = client.image(&reference(registry.host(), ":latest")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryUnavailable);
    assert!(error.to_string().contains("took over 20ms"), "{error}");
    gate.open();
}
