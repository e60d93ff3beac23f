//! Pushing to a registry.

use std::collections::BTreeMap;

use outrigger_core::{Digest, PackageLayout, Reason};
use outrigger_oci::{Error, build};
use outrigger_testkit::registry::{Registry, Rule};

use crate::support::{client, image, reference};

#[tokio::test]
async fn a_pushed_image_is_read_unchanged() {
    let registry = Registry::start().await;
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    let image = image(&[b"one", b"two"]);
    let digest = client.push(&latest, &image).await.unwrap();
    assert_eq!(digest, image.digest());
    let read = client.image(&latest).await.unwrap();
    assert_eq!((read.digest, read.manifest), (digest, image.manifest()));
    assert_eq!(read.annotations, image.annotations);
    assert_eq!(read.layers, image.layers.iter().map(|layer| layer.layer).collect::<Vec<_>>());
}

#[tokio::test]
async fn blobs_that_are_there_are_not_sent_again() {
    let registry = Registry::start().await;
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    client.push(&latest, &image(&[b"one", b"two"])).await.unwrap();
    registry.forget_requests();
    client.push(&latest, &image(&[b"one", b"three"])).await.unwrap();
    // Only the new layer is sent; the configuration is unchanged.
    assert_eq!(registry.count("PUT", "/blobs/uploads/"), 1);
}

#[tokio::test]
async fn the_tag_moves_last() {
    let registry = Registry::start().await;
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    let first = client.push(&latest, &image(&[b"one"])).await.unwrap();
    registry.script(Rule::on("PUT", "/blobs/uploads/").status(403));
    let error = client.push(&latest, &image(&[b"two"])).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryDenied);
    assert_eq!(client.resolve(&latest).await.unwrap(), first);
}

#[tokio::test]
async fn a_push_is_tried_again() {
    let registry = Registry::start().await;
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    registry.script(Rule::on("POST", "/uploads/").times(2).status(503));
    registry.script(Rule::on("PUT", "/uploads/").times(1).status(500));
    registry.script(Rule::on("PUT", "/manifests/").times(2).status(429));
    let image = image(&[b"one"]);
    assert_eq!(client.push(&latest, &image).await.unwrap(), image.digest());
    client.image(&latest).await.unwrap();
}

#[tokio::test]
async fn a_push_by_digest_must_name_the_images_digest() {
    let registry = Registry::start().await;
    let client = client(registry.host());
    let image = image(&[b"one"]);
    let own = reference(registry.host(), &format!("@{}", image.digest()));
    client.push(&own, &image).await.unwrap();
    let other = reference(registry.host(), &format!("@{}", Digest::of(b"x")));
    let error = client.push(&other, &image).await.unwrap_err();
    assert!(matches!(error, Error::DigestMismatch { .. }), "{error:?}");
}

#[tokio::test]
async fn a_tag_is_pointed_at_an_existing_manifest() {
    let registry = Registry::start().await;
    let (client, v1) = (client(registry.host()), reference(registry.host(), ":v1"));
    let digest = client.push(&v1, &image(&[b"one"])).await.unwrap();
    let live = "live".parse().unwrap();
    assert_eq!(client.tag(&v1.with_digest(digest), &live).await.unwrap(), digest);
    assert_eq!(client.resolve(&v1.with_tag(live.clone())).await.unwrap(), digest);
    let missing = v1.with_digest(Digest::of(b"x"));
    let error = client.tag(&missing, &live).await.unwrap_err();
    assert_eq!(error.reason(), Reason::DigestNotFound);
}

#[tokio::test]
async fn a_tag_is_moved_only_from_its_expected_digest_and_resolved_again() {
    let registry = Registry::start().await;
    let (client, live) = (client(registry.host()), reference(registry.host(), ":live"));
    let next = client.push(&live, &image(&[b"next"])).await.unwrap();
    let last = client.push(&live, &image(&[b"last"])).await.unwrap();
    let (canary, tag) = (live.with_digest(next), "live".parse().unwrap());
    let path = "/v2/team/churn/manifests/live";
    registry.forget_requests();
    assert_eq!(client.move_tag(&canary, &tag, Digest::of(b"x"), || true).await.unwrap(), last);
    assert_eq!(registry.count("PUT", path), 0, "somebody has moved it");
    assert_eq!(client.move_tag(&canary, &tag, last, || false).await.unwrap(), last);
    assert_eq!(registry.count("PUT", path), 0, "it must not be pushed");
    registry.forget_requests();
    // The registry accepts the push but does not move the tag.
    registry.script(Rule::on("PUT", path).times(1).status(201));
    assert_eq!(client.move_tag(&canary, &tag, last, || true).await.unwrap(), last);
    assert_eq!(client.move_tag(&canary, &tag, last, || true).await.unwrap(), next);
    assert_eq!(client.resolve(&live).await.unwrap(), next);
    let asked = registry.requests();
    let asked = asked.iter().filter(|it| it.path.ends_with("/live"));
    let methods: Vec<_> = asked.map(|it| it.method.as_str()).collect();
    assert_eq!(methods[..3], ["HEAD", "PUT", "HEAD"], "nothing comes between look and push");
}

#[tokio::test]
async fn a_packed_directory_is_pushed_from_its_files() {
    let registry = Registry::start().await;
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("tensorflow_serving_model/model");
    std::fs::create_dir_all(model.join("variables")).unwrap();
    std::fs::write(directory.path().join("metadata.json"), "{}").unwrap();
    std::fs::write(model.join("saved_model.pb"), "graph").unwrap();
    let layout = PackageLayout {
        directory: "tensorflow_serving_model/model",
        files: &["saved_model.pb"],
        parts: &[],
        max_file: 1 << 20,
        versioned: true,
    };
    let layouts = [("tensorflow", layout)].into_iter().collect();
    let large = vec![7; build::OWN_LAYER as usize];
    std::fs::write(model.join("variables/variables.data-00000-of-00001"), large).unwrap();
    let image = build::image_from_dir(directory.path(), BTreeMap::new(), &layouts).unwrap();
    let digest = client.push(&latest, &image).await.unwrap();
    drop(image);
    let read = client.image(&latest).await.unwrap();
    assert_eq!((read.digest, read.layers.len()), (digest, 2));
    let work = tempfile::tempdir().unwrap();
    for layer in &read.layers {
        client.fetch_blob(&latest, layer, &work.path().join(layer.digest.hex())).await.unwrap();
    }
}
