//! Tests with the real docker-registry, and with images made by other tools.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use outrigger_core::{LayerKind, Reason};
use outrigger_testkit::{
    registry::{docker_registry, docker_registry_with_password},
    tools::if_installed,
};

use crate::support::{NAME, bytes, client, client_with, image, login, reference};

#[tokio::test]
async fn an_image_goes_to_a_real_registry_and_back() {
    let Some(registry) = docker_registry() else { return };
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    let content = bytes(3_000_000);
    let image = image(&[&content, b"two"]);
    let digest = client.push(&latest, &image).await.unwrap();
    assert_eq!(client.push(&latest, &image).await.unwrap(), digest);
    assert_eq!(client.resolve(&latest).await.unwrap(), digest);
    let read = client.image(&latest.with_digest(digest)).await.unwrap();
    assert_eq!(read.manifest, image.manifest());
    let work = tempfile::tempdir().unwrap();
    let dest = work.path().join("blob");
    // Two thirds of the blob are in the file already.
    fs::write(&dest, &content[..2_000_000]).unwrap();
    client.fetch_blob(&latest, &read.layers[0], &dest).await.unwrap();
    assert!(fs::read(&dest).unwrap() == content);
}

#[tokio::test]
async fn a_tag_of_a_real_registry_moves_and_missing_items_have_distinct_errors() {
    let Some(registry) = docker_registry() else { return };
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    let reason = async |text: &str| {
        client.resolve(&reference(registry.host(), text)).await.unwrap_err().reason()
    };
    assert_eq!(reason(":latest").await, Reason::ModelNotFound);
    let first = client.push(&latest, &image(&[b"one"])).await.unwrap();
    let second = client.push(&latest, &image(&[b"two"])).await.unwrap();
    assert_eq!(client.resolve(&latest).await.unwrap(), second);
    client.tag(&latest.with_digest(first), &"latest".parse().unwrap()).await.unwrap();
    assert_eq!(client.resolve(&latest).await.unwrap(), first);
    assert_eq!(reason(":nope").await, Reason::TagNotFound);
    let missing = format!("@{}", outrigger_core::Digest::of(b"x"));
    assert_eq!(reason(&missing).await, Reason::DigestNotFound);
}

#[tokio::test]
async fn a_real_registry_says_that_a_tag_is_gone() {
    let Some(registry) = docker_registry() else { return };
    let (client, latest) = (client(registry.host()), reference(registry.host(), ":latest"));
    assert!(client.is_missing(&latest).await.unwrap(), "nor is there a repository");
    let digest = client.push(&latest, &image(&[b"one"])).await.unwrap();
    assert!(!client.is_missing(&latest).await.unwrap());
    registry.remove_tag(NAME, "latest");
    assert!(client.is_missing(&latest).await.unwrap());
    assert!(!client.is_missing(&latest.with_digest(digest)).await.unwrap());
}

#[tokio::test]
async fn a_real_registry_with_a_password() {
    let Some(registry) = docker_registry_with_password() else { return };
    let home = tempfile::tempdir().unwrap();
    let docker_config = home.path().join("config.json");
    let (client, latest) =
        (client_with(registry.host(), &docker_config), reference(registry.host(), ":latest"));
    let denied = client.push(&latest, &image(&[b"one"])).await.unwrap_err();
    assert_eq!(denied.reason(), Reason::RegistryDenied);
    login(&docker_config, registry.host(), "ann", "wrong");
    let denied = client.resolve(&latest).await.unwrap_err();
    assert_eq!(denied.reason(), Reason::RegistryDenied);
    login(&docker_config, registry.host(), "ann", "s3cret");
    let digest = client.push(&latest, &image(&[b"one"])).await.unwrap();
    assert_eq!(client.resolve(&latest).await.unwrap(), digest);
}

/// True if the program ran; it may not be installed.
fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let Some(output) = if_installed(program, output) else { return false };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    true
}

/// Builds an image `v1` with umoci in the layout `layout`; false if umoci is not installed.
fn built_by_umoci(layout: &str, data: &Path) -> bool {
    let image = format!("{layout}:v1");
    fs::create_dir_all(data.join("tensorflow_serving_model/model")).unwrap();
    fs::write(data.join("metadata.json"), "{}").unwrap();
    let label = "--config.label=dev.outrigger.canary=by umoci";
    run("umoci", &["init", "--layout", layout])
        && run("umoci", &["new", "--image", &image])
        && run(
            "umoci",
            &["insert", "--rootless", "--image", &image, data.to_str().unwrap(), "/data"],
        )
        && run("umoci", &["config", "--image", &image, label])
}

#[tokio::test]
async fn an_image_built_by_umoci_and_copied_by_skopeo_is_read() {
    let Some(registry) = docker_registry() else { return };
    let work = tempfile::tempdir().unwrap();
    let layout = work.path().join("layout").display().to_string();
    if !built_by_umoci(&layout, &work.path().join("data")) {
        return;
    }
    let client = client(registry.host());
    let local = client.image(&format!("oci:{layout}:v1").parse().unwrap()).await.unwrap();
    assert_eq!(local.label("dev.outrigger.canary"), Some("by umoci"));
    assert_eq!(local.layers.last().map(|layer| layer.kind), Some(LayerKind::TarGzip));

    let remote = reference(registry.host(), ":v1");
    let (from, to) = (format!("oci:{layout}:v1"), format!("docker://{remote}"));
    if !run("skopeo", &["copy", "--insecure-policy", "--dest-tls-verify=false", &from, &to]) {
        return;
    }
    let image = client.image(&remote).await.unwrap();
    assert_eq!((image.digest, &image.layers), (local.digest, &local.layers));
    let dest = work.path().join("blob");
    client.fetch_blob(&remote, &image.layers[0], &dest).await.unwrap();
}

#[tokio::test]
async fn skopeo_reads_what_we_write() {
    let work = tempfile::tempdir().unwrap();
    let latest = format!("oci:{}:latest", work.path().join("ours").display());
    let digest =
        client("unused.example").push(&latest.parse().unwrap(), &image(&[b"one"])).await.unwrap();
    let copy = format!("oci:{}:copy", work.path().join("theirs").display());
    if !run("skopeo", &["copy", "--insecure-policy", "--preserve-digests", &latest, &copy]) {
        return;
    }
    let copied = client("unused.example").resolve(&copy.parse().unwrap()).await.unwrap();
    assert_eq!(copied, digest);
}
