//! Tests of images that must be signed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use outrigger_core::{Digest, Failure, LayerKind, Reason, Stage};
use outrigger_lifecycle::{Engines, Handle, ModelEntry, Signed};
use outrigger_testkit::{
    layers::package_layer,
    registry::{LayerBlob, Rule, Signer},
};

use crate::rig::{Rig, acquire, model, name, stage, until, version};

/// A rig with `churn:latest` in the registry, which must be signed by the key in the file.
async fn rig() -> (Rig, Signer, PathBuf, Digest) {
    let mut rig = Rig::new().await;
    let (signer, file) = (Signer::new(), rig.dir.path().join("cosign.pub"));
    fs::write(&file, signer.public_key()).expect("a file");
    require(&mut rig, &file);
    let digest = rig.push("churn", "latest", &model(1));
    (rig, signer, file, digest)
}

fn require(rig: &mut Rig, file: &Path) {
    let prefix = format!("{}/team", rig.registry.host());
    rig.config.images.signatures = vec![Signed { prefix, keys: vec![file.to_owned()] }];
}

async fn refused(handle: &Handle) -> Failure {
    acquire(handle, "churn").await.expect_err("it must not be served")
}

#[tokio::test]
async fn an_image_is_served_once_it_is_signed_and_not_pulled_before() {
    let (mut rig, signer, _, digest) = rig().await;
    let handle = rig.start();
    assert_eq!(refused(&handle).await.reason, Reason::SignatureMissing);
    assert_eq!(rig.registry.count("GET", "/blobs/"), 0, "no layer, and no configuration");
    rig.registry.sign("team/churn", digest, &signer);
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    acquire(&handle, "churn").await.expect("signed");
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn foreign_signatures_are_refused_until_a_valid_one_is_pushed() {
    let (mut rig, signer, _, digest) = rig().await;
    rig.registry.sign("team/churn", digest, &Signer::new());
    let handle = rig.start();
    assert_eq!(refused(&handle).await.reason, Reason::SignatureInvalid);
    // The signature of another image is attached under this image's tag.
    let other = rig.push("churn", "other", &model(2));
    rig.registry.sign("team/churn", other, &signer);
    let tag = |digest: Digest| format!("sha256-{}.sig", digest.hex());
    let theirs = rig.registry.digest("team/churn", &tag(other)).expect("signed");
    rig.registry.tag("team/churn", &tag(digest), theirs);
    let says_other = |it: &outrigger_lifecycle::Snapshot| {
        let failure = version(it, "churn", digest).and_then(|it| it.failure);
        failure.is_some_and(|it| it.failure.message.contains(&other.to_string()))
    };
    until(&handle, says_other).await;
    assert_eq!(refused(&handle).await.reason, Reason::SignatureInvalid);
    rig.registry.sign("team/churn", digest, &signer);
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
}

#[tokio::test]
async fn an_index_needs_a_signature_of_its_own() {
    let (mut rig, signer, _, image) = rig().await;
    let index = rig.registry.push_index("team/churn", "latest", &[(image, "linux/amd64")]);
    rig.registry.sign("team/churn", image, &signer);
    let handle = rig.start();
    assert_eq!(refused(&handle).await.reason, Reason::SignatureMissing);
    rig.registry.sign("team/churn", index, &signer);
    until(&handle, |it| stage(it, "churn", index) == Some(Stage::Available)).await;
}

#[tokio::test]
async fn verified_versions_are_served_without_the_registry() {
    let (mut rig, signer, _, digest) = rig().await;
    rig.registry.sign("team/churn", digest, &signer);
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("signed");
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    drop(handle);
    rig.stop().await;
    rig.engine.restart().await.expect("it comes back");
    rig.registry.script(Rule::any("/v2/").status(503));
    let handle = rig.start();
    assert_eq!(acquire(&handle, "churn").await.expect("kept").key.digest, digest);
}

#[tokio::test]
async fn a_model_from_before_the_policy_is_not_served_until_it_is_signed() {
    let mut rig = Rig::new().await;
    let digest = rig.push("churn", "latest", &model(1));
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("nobody has to sign it");
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    drop(handle);
    rig.stop().await;

    // The engine of the earlier process still has the version.
    let (signer, file) = (Signer::new(), rig.dir.path().join("cosign.pub"));
    fs::write(&file, signer.public_key()).expect("a file");
    require(&mut rig, &file);
    rig.registry.script(Rule::any("/v2/").status(503));
    let handle = rig.start();
    let time = std::time::Duration::from_secs(1);
    let failure = crate::rig::acquire_within(&handle, "churn", time).await;
    assert_eq!(failure.expect_err("not verified").reason, Reason::RegistryUnavailable);
    rig.registry.behave();
    let missing = |it: &outrigger_lifecycle::Snapshot| {
        let failure = version(it, "churn", digest).and_then(|it| it.failure);
        failure.is_some_and(|it| it.failure.reason == Reason::SignatureMissing)
    };
    until(&handle, missing).await;
    assert_eq!(refused(&handle).await.reason, Reason::SignatureMissing);
    rig.registry.sign("team/churn", digest, &signer);
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_key_that_is_replaced_takes_its_models_down_until_they_are_signed_anew() {
    let (mut rig, signer, file, digest) = rig().await;
    rig.registry.sign("team/churn", digest, &signer);
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("signed");
    let next = Signer::new();
    fs::write(&file, next.public_key()).expect("a file");
    let revoked =
        |it: &outrigger_lifecycle::Snapshot| stage(it, "churn", digest) == Some(Stage::Downloaded);
    until(&handle, revoked).await;
    for _ in 0..20 {
        assert_eq!(refused(&handle).await.reason, Reason::SignatureInvalid);
    }
    rig.registry.sign("team/churn", digest, &next);
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    acquire(&handle, "churn").await.expect("signed anew");
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn each_repository_is_verified_by_its_own_rule() {
    let (mut rig, ..) = rig().await;
    let host = rig.registry.host().to_owned();
    rig.config.images.signatures.push(Signed { prefix: format!("{host}/team/free"), keys: vec![] });
    rig.config.tunables.models = vec![ModelEntry {
        name: name("free"),
        image: Some(format!("{host}/team/free/churn")),
        directory: None,
        preload: false,
        tag: None,
        digest: None,
        engine: None,
        rollover: Default::default(),
    }];
    // Both repositories hold the same image.
    let model = model(1);
    let layer = package_layer(model.metadata.to_string().as_bytes(), &model.encode());
    let layer = LayerBlob::tar(layer.build(LayerKind::Tar).bytes);
    let layers = [layer];
    let push = |name| rig.registry.push_image(name, "latest", &layers, "{}");
    let digest = push("team/churn");
    assert_eq!(push("team/free/churn"), digest);
    let handle = rig.start();
    let (free, churn) = tokio::join!(acquire(&handle, "free"), acquire(&handle, "churn"));
    assert_eq!(free.expect("nobody has to sign it").key.digest, digest);
    assert_eq!(churn.expect_err("not signed").reason, Reason::SignatureMissing);
    // The files are in the store by now, and the signature is still required.
    assert_eq!(refused(&handle).await.reason, Reason::SignatureMissing);
}

#[tokio::test]
async fn a_rule_that_cannot_be_used_is_named_at_the_start() {
    let (mut rig, _, file, _) = rig().await;
    fs::write(&file, "oops").expect("a file");
    let store = outrigger_store::Store::open(outrigger_store::Config::new(rig.store_path()));
    let client = outrigger_oci::Client::new(outrigger_oci::Config::default());
    let (store, client) = (store.expect("a store"), client.expect("a client"));
    let start = |config: &outrigger_lifecycle::Config| {
        let parts = (config.clone(), client.clone(), store.clone(), Engines::new());
        let started = outrigger_lifecycle::start(parts.0, parts.1, parts.2, parts.3);
        started.map(drop).expect_err("a bad rule").to_string()
    };
    assert!(start(&rig.config).starts_with("images.signatures[0].keys[0]: "));
    rig.config.images.signatures[0].keys.clear();
    let twice = rig.config.images.signatures[0].prefix.clone() + "/";
    rig.config.images.signatures.push(Signed { prefix: twice, keys: vec![] });
    assert!(start(&rig.config).starts_with("images.signatures[1].prefix: "));
}
