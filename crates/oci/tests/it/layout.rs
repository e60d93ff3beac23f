//! Layout directories.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use outrigger_core::{Digest, Reason};
use outrigger_oci::{Error, Reference};
use tempfile::TempDir;

use crate::support::{client, image, layer_of};

fn layout() -> (TempDir, Reference) {
    let directory = tempfile::tempdir().unwrap();
    let reference = format!("oci:{}:latest", directory.path().join("models").display());
    (directory, reference.parse().unwrap())
}

#[tokio::test]
async fn a_pushed_image_is_read_again() {
    let (directory, latest) = layout();
    let client = client("unused.example");
    let image = image(&[b"one", b"two"]);
    let digest = client.push(&latest, &image).await.unwrap();
    assert_eq!(client.resolve(&latest).await.unwrap(), digest);
    let read = client.image(&latest).await.unwrap();
    assert_eq!((read.digest, &read.reference), (digest, &latest.with_digest(digest)));
    assert_eq!(read.label("a"), Some("label"));
    let dest = directory.path().join("blob");
    client.fetch_blob(&latest, &read.layers[1], &dest).await.unwrap();
    assert_eq!(fs::read(&dest).unwrap(), b"two");
    let marker = fs::read_to_string(directory.path().join("models/oci-layout")).unwrap();
    assert_eq!(marker, r#"{"imageLayoutVersion":"1.0.0"}"#);
}

#[tokio::test]
async fn a_moved_tag_leaves_the_old_digest_reachable() {
    let (_directory, latest) = layout();
    let client = client("unused.example");
    let first = client.push(&latest, &image(&[b"one"])).await.unwrap();
    let second = client.push(&latest, &image(&[b"two"])).await.unwrap();
    assert_eq!(client.resolve(&latest).await.unwrap(), second);
    assert_eq!(client.image(&latest.with_digest(first)).await.unwrap().digest, first);
    let canary = "latest_canary".parse().unwrap();
    client.tag(&latest.with_digest(first), &canary).await.unwrap();
    assert_eq!(client.resolve(&latest.with_tag(canary)).await.unwrap(), first);
    assert_eq!(client.resolve(&latest).await.unwrap(), second);
}

#[tokio::test]
async fn pruning_keeps_the_images_of_the_index_and_young_blobs() {
    let (directory, latest) = layout();
    let client = client("unused.example");
    let blobs = directory.path().join("models/blobs/sha256");
    let count = || fs::read_dir(&blobs).unwrap().count();
    let first = client.push(&latest, &image(&[b"one", b"shared"])).await.unwrap();
    let canary = latest.with_tag("canary".parse().unwrap());
    client.push(&canary, &image(&[b"two"])).await.unwrap();
    client.push(&latest, &image(&[b"three", b"shared"])).await.unwrap();
    let all = count();
    client.prune(&latest).await.unwrap();
    assert_eq!(count(), all, "all blobs are young");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for blob in fs::read_dir(&blobs).unwrap() {
        let blob = fs::File::open(blob.unwrap().path()).unwrap();
        blob.set_modified(long_ago).unwrap();
    }
    client.prune(&latest).await.unwrap();
    // The layer "one" and the manifest that names it.
    assert_eq!(count(), all - 2);
    for kept in [&latest, &canary] {
        let kept = client.image(kept).await.unwrap();
        for layer in &kept.layers {
            let dest = directory.path().join(layer.digest.hex());
            client.fetch_blob(&kept.reference, layer, &dest).await.unwrap();
        }
    }
    client.image(&latest.with_digest(first)).await.expect_err("nothing uses it");
}

#[tokio::test]
async fn missing_items_have_distinct_errors() {
    let (_directory, latest) = layout();
    let client = client("unused.example");
    let missing = client.resolve(&latest).await.unwrap_err();
    assert!(matches!(missing, Error::RepositoryNotFound { .. }), "{missing:?}");
    client.is_missing(&latest).await.expect_err("the volume may only not be there now");
    let by_digest = latest.with_digest(Digest::of(b"x"));
    let missing = client.image(&by_digest).await.unwrap_err();
    assert!(matches!(missing, Error::RepositoryNotFound { .. }), "{missing:?}");
    client.push(&latest, &image(&[b"one"])).await.unwrap();
    let tag = client.resolve(&latest.with_tag("nope".parse().unwrap())).await.unwrap_err();
    assert_eq!(tag.reason(), Reason::TagNotFound);
    assert!(client.is_missing(&latest.with_tag("nope".parse().unwrap())).await.unwrap());
    assert!(!client.is_missing(&latest).await.unwrap());
    assert_eq!(client.image(&by_digest).await.unwrap_err().reason(), Reason::DigestNotFound);
    assert_eq!(client.resolve(&by_digest).await.unwrap_err().reason(), Reason::DigestNotFound);
}

#[tokio::test]
async fn a_changed_blob_is_refused_and_not_kept() {
    let (directory, latest) = layout();
    let client = client("unused.example");
    client.push(&latest, &image(&[b"one"])).await.unwrap();
    let layer = layer_of(b"one");
    let blob = directory.path().join("models/blobs/sha256").join(layer.digest.hex());
    let dest = directory.path().join("blob");
    for (content, mismatch) in [("two", true), ("longer", false), ("s", false)] {
        fs::write(&blob, content).unwrap();
        let error = client.fetch_blob(&latest, &layer, &dest).await.unwrap_err();
        assert_eq!(matches!(error, Error::DigestMismatch { .. }), mismatch, "{error:?}");
        assert_eq!(error.reason(), Reason::ImageInvalid);
        assert!(!dest.exists());
    }
    // The copy is no link, through which later changes would show.
    fs::write(&blob, "one").unwrap();
    client.fetch_blob(&latest, &layer, &dest).await.unwrap();
    fs::write(&blob, "two").unwrap();
    assert_eq!(fs::read(&dest).unwrap(), b"one");
}

#[tokio::test]
async fn a_broken_index_is_invalid() {
    let (directory, latest) = layout();
    let client = client("unused.example");
    client.push(&latest, &image(&[b"one"])).await.unwrap();
    let index = directory.path().join("models/index.json");
    for text in [
        "",
        "{",
        r#"{"manifests": [{"digest": "x", "annotations":
        {"org.opencontainers.image.ref.name": "latest"}}]}"#,
    ] {
        fs::write(&index, text).unwrap();
        let error = client.resolve(&latest).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn pushes_at_the_same_time_lose_no_tag() {
    let (_directory, latest) = layout();
    let client = client("unused.example");
    let tags: Vec<_> = (0..8).map(|n| latest.with_tag(format!("v{n}").parse().unwrap())).collect();
    let layers: Vec<_> = (0..8_u8).map(|n| [n]).collect();
    let pushes = tags.iter().zip(&layers).map(|(reference, layer)| {
        let client = client.clone();
        async move { client.push(reference, &image(&[layer])).await.unwrap() }
    });
    let digests = futures::future::join_all(pushes).await;
    for (reference, digest) in tags.iter().zip(digests) {
        assert_eq!(client.resolve(reference).await.unwrap(), digest);
    }
}

#[tokio::test]
async fn other_entries_of_the_index_are_kept() {
    let (directory, latest) = layout();
    let client = client("unused.example");
    client.push(&latest, &image(&[b"one"])).await.unwrap();
    let index = directory.path().join("models/index.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    value["annotations"] = serde_json::json!({"kept": "yes"});
    value["manifests"][0]["platform"] = serde_json::json!({"os": "linux", "architecture": "x"});
    fs::write(&index, value.to_string()).unwrap();
    let other = latest.with_tag("other".parse().unwrap());
    client.push(&other, &image(&[b"two"])).await.unwrap();
    let after: serde_json::Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    assert_eq!(after["annotations"]["kept"], "yes");
    assert_eq!(after["manifests"][0], value["manifests"][0]);
    assert_eq!(after["manifests"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_index_that_is_none_is_refused_and_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let index = directory.path().join("index.json");
    let reference: Reference = format!("oci:{}:one", directory.path().display()).parse().unwrap();
    for text in ["[]", "7", "{}", r#"{"manifests": {}}"#, "{"] {
        fs::write(&index, text).unwrap();
        let error = client("localhost").push(&reference, &image(&[b"one"])).await.unwrap_err();
        assert_eq!(error.reason(), Reason::ImageInvalid, "{text}: {error}");
        assert!(client("localhost").resolve(&reference).await.is_err(), "{text}");
        assert_eq!(fs::read_to_string(&index).unwrap(), text);
    }
}

/// Replaces a path of the layout by a link to a copy of it outside of the layout.
fn link_outside(directory: &TempDir, path: &str) {
    let (inside, outside) = (directory.path().join("models").join(path), directory.path());
    let outside = outside.join("outside");
    fs::rename(&inside, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &inside).unwrap();
}

#[tokio::test]
async fn links_out_of_a_layout_are_not_followed() {
    for path in ["index.json", "blobs", "blobs/sha256", "blobs/sha256/{blob}"] {
        let (directory, latest) = layout();
        let client = client("unused.example");
        let image = image(&[b"one"]);
        client.push(&latest, &image).await.unwrap();
        let read = client.image(&latest).await.unwrap();
        link_outside(&directory, &path.replace("{blob}", read.layers[0].digest.hex().as_str()));
        let dest = directory.path().join("blob");
        let error = match client.image(&latest).await {
            Ok(image) => client.fetch_blob(&latest, &image.layers[0], &dest).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.reason(), Reason::ImageInvalid, "{path}: {error:?}");
        assert!(error.to_string().contains("symbolic link"), "{path}: {error}");
        assert!(!dest.exists());
        if path.starts_with("blobs") && !path.ends_with("{blob}") {
            client.push(&latest, &image).await.expect_err("it would write outside");
        }
    }
}

#[tokio::test]
async fn a_named_pipe_in_a_layout_is_refused_at_once() {
    let (directory, latest) = layout();
    let client = client("unused.example");
    client.push(&latest, &image(&[b"one"])).await.unwrap();
    let index = directory.path().join("models/index.json");
    fs::remove_file(&index).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &index, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = client.resolve(&latest).await.unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
