//! Signatures in registries and layout directories.

use std::fs;

use bytes::Bytes;
use outrigger_core::{Digest, Reason};
use outrigger_oci::{
    Artifact, Client, Error, Reference,
    signature::{Policy, PublicKey, SignatureRule, Signatures, Unverified},
};
use outrigger_testkit::registry::{Registry, Rule, Signer, docker_registry, payload, statement};
use serde_json::json;

use crate::support::{NAME, client, image, reference, registry_with};

const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

fn keys(signer: &Signer) -> Vec<PublicKey> {
    PublicKey::parse(signer.public_key().as_bytes()).unwrap()
}

/// The signatures of an image from its signature tag and from attached bundles, unverified.
pub(crate) async fn both(
    client: &Client,
    image: &Reference,
    digest: Digest,
) -> Result<Signatures, Error> {
    let mut all = client.tagged_signatures(image, digest).await?;
    all.extend(client.attached_signatures(image, digest).await?);
    Ok(all)
}

async fn verified(registry: &Registry, digest: Digest, signer: &Signer) -> Result<(), Unverified> {
    let client = client(registry.host());
    let all = both(&client, &reference(registry.host(), ""), digest).await.unwrap();
    all.verify(digest, &keys(signer)).map(drop)
}

fn reason(result: Result<(), Unverified>) -> Reason {
    result.unwrap_err().failure().reason
}

#[tokio::test]
async fn an_image_is_signed_by_its_tag_or_by_a_bundle() {
    for lists in [false, true] {
        let (registry, digest, _) = registry_with(b"layer").await;
        if lists {
            registry.list_referrers();
        }
        let signer = Signer::new();
        assert_eq!(reason(verified(&registry, digest, &signer).await), Reason::SignatureMissing);
        let bundle = signer.bundle(&statement(digest)).to_string();
        registry.attach(NAME, digest, "application/example", "something else");
        registry.attach(NAME, digest, BUNDLE, bundle);
        assert_eq!(verified(&registry, digest, &signer).await, Ok(()));
        let other = Signer::new();
        assert_eq!(reason(verified(&registry, digest, &other).await), Reason::SignatureInvalid);
        registry.sign(NAME, digest, &other);
        assert_eq!(verified(&registry, digest, &other).await, Ok(()));
    }
}

#[tokio::test]
async fn a_valid_signature_is_found_among_invalid_ones() {
    let (registry, digest, _) = registry_with(b"layer").await;
    let signer = Signer::new();
    let text = payload(digest).to_string();
    let signature = signer.sign(text.as_bytes());
    let huge = vec![b' '; 100 << 10];
    let cases: [(_, Bytes, _, _); 4] = [
        ("application/octet-stream", text.clone().into(), signature.clone(), "no payload"),
        (SIMPLE_SIGNING, huge.into(), signature.clone(), "more than 65536 bytes"),
        (SIMPLE_SIGNING, text.clone().into(), "?".to_owned(), "not base64"),
        (SIMPLE_SIGNING, "{}".into(), signer.sign(b"{}"), "payload cannot be read"),
    ];
    for (kind, payload, signature, why) in &cases {
        let bad = (*kind, payload.clone(), signature.clone());
        registry.push_signatures(NAME, digest, &[bad]);
        let error = verified(&registry, digest, &signer).await.unwrap_err();
        assert_eq!(error.failure().reason, Reason::SignatureInvalid);
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut all: Vec<_> =
        cases.iter().map(|(kind, bytes, text, _)| (*kind, bytes.clone(), text.clone())).collect();
    all.push((SIMPLE_SIGNING, text.into(), signature));
    registry.push_signatures(NAME, digest, &all);
    assert_eq!(verified(&registry, digest, &signer).await, Ok(()));
}

#[tokio::test]
async fn the_last_32_of_many_signatures_are_read() {
    let (registry, digest, _) = registry_with(b"layer").await;
    let signer = Signer::new();
    let text = payload(digest).to_string();
    let good = (SIMPLE_SIGNING, text.clone().into(), signer.sign(text.as_bytes()));
    let junk: Vec<_> =
        (0..200).map(|i| (SIMPLE_SIGNING, format!("{i}").into(), "AAAA".to_owned())).collect();
    registry.push_signatures(NAME, digest, &[&junk[..], &[good]].concat());
    registry.forget_requests();
    assert_eq!(verified(&registry, digest, &signer).await, Ok(()));
    assert_eq!(registry.count("GET", "/blobs/"), 32);
}

#[tokio::test]
async fn garbage_in_place_of_signatures_is_invalid() {
    let (registry, digest, _) = registry_with(b"layer").await;
    let signer = Signer::new();
    let index = "application/vnd.oci.image.index.v1+json";
    for garbage in ["not json", "[]", r#"{"layers": 1}"#, r#"{"manifests": []}"#] {
        let tag = format!("sha256-{}.sig", digest.hex());
        registry.push_manifest(NAME, Some(&tag), index, garbage);
        assert_eq!(reason(verified(&registry, digest, &signer).await), Reason::SignatureInvalid);
    }
    registry.remove_tag(NAME, &format!("sha256-{}.sig", digest.hex()));
    // A list that names a missing artifact and an invalid entry, and a document that is no list.
    let list = json!({"manifests": [{"digest": Digest::of(b"x"), "artifactType": BUNDLE}, 7]});
    for (garbage, expected) in
        [(list.to_string(), Reason::SignatureInvalid), ("{}".to_owned(), Reason::SignatureMissing)]
    {
        let tag = format!("sha256-{}", digest.hex());
        registry.push_manifest(NAME, Some(&tag), index, garbage);
        assert_eq!(reason(verified(&registry, digest, &signer).await), expected);
    }
    let other = registry.push_image(NAME, "other", &[], "{}");
    registry.attach(NAME, other, BUNDLE, signer.bundle(&statement(digest)).to_string());
    let tag = format!("sha256-{}", digest.hex());
    let theirs = registry.digest(NAME, &format!("sha256-{}", other.hex())).unwrap();
    registry.tag(NAME, &tag, theirs);
    let error = verified(&registry, digest, &signer).await.unwrap_err();
    assert!(error.to_string().contains("its subject is not"), "{error}");
}

#[tokio::test]
async fn an_unavailable_registry_is_not_a_missing_signature() {
    let (registry, digest, _) = registry_with(b"layer").await;
    registry.script(Rule::get(".sig").status(503));
    let client = client(registry.host());
    let error = client.tagged_signatures(&reference(registry.host(), ""), digest).await;
    assert_eq!(error.unwrap_err().reason(), Reason::RegistryUnavailable);
    registry.behave();
    registry.script(Rule::get("/referrers/").status(403));
    let error = client.attached_signatures(&reference(registry.host(), ""), digest).await;
    assert_eq!(error.unwrap_err().reason(), Reason::RegistryDenied);
}

#[tokio::test]
async fn attached_artifacts_are_found_with_and_without_the_referrers_api() {
    let work = tempfile::tempdir().unwrap();
    let (plain, modern) = (Registry::start().await, Registry::start().await);
    modern.list_referrers();
    let real = docker_registry();
    let mut places = vec![
        (client("x.example"), format!("oci:{}", work.path().join("layout").display())),
        (client(plain.host()), reference(plain.host(), "").to_string()),
        (client(modern.host()), reference(modern.host(), "").to_string()),
    ];
    if let Some(real) = &real {
        places.push((client(real.host()), reference(real.host(), "").to_string()));
    }
    for (client, place) in places {
        let place: Reference = place.parse().unwrap();
        let latest = place.with_tag("latest".parse().unwrap());
        let digest = client.push(&latest, &image(&[b"one"])).await.unwrap();
        let artifact = |document: &'static str| Artifact {
            artifact_type: "application/vnd.example.note+json",
            document: document.into(),
            annotations: [("example".to_owned(), "yes".to_owned())].into(),
        };
        for note in ["first", "second", "second"] {
            client.attach(&place, digest, &artifact(note)).await.unwrap();
        }
        let kind = "application/vnd.example.note+json";
        let read = async |limit| client.attached(&place, digest, kind, limit).await.unwrap();
        let mut notes = read(100).await.documents;
        notes.sort();
        assert_eq!(notes, ["first", "second"], "{place}");
        let cut = read(5).await;
        assert_eq!((cut.documents.len(), cut.unusable.len()), (1, 1), "{place}");
        assert!(client.attached(&place, digest, BUNDLE, 100).await.unwrap().documents.is_empty());
        // Attaching does not change the image.
        assert_eq!(client.resolve(&latest).await.unwrap(), digest);
        let list = format!("sha256-{}", digest.hex()).parse().unwrap();
        let listed = client.resolve(&place.with_tag(list)).await.is_ok();
        assert_eq!(listed, place != reference(modern.host(), ""), "{place}");
    }
}

#[test]
fn the_longest_prefix_decides_and_keys_are_read_again() {
    let work = tempfile::tempdir().unwrap();
    let (old, new) = (Signer::new(), Signer::new());
    let file = work.path().join("cosign.pub");
    fs::write(&file, old.public_key()).unwrap();
    let rule = |prefix: &str, keys: &[&std::path::Path]| SignatureRule {
        prefix: prefix.parse().unwrap(),
        keys: keys.iter().map(|path| path.to_path_buf()).collect(),
    };
    let policy = Policy::new(vec![
        rule("registry.example", &[&file]),
        rule("registry.example/team/free", &[]),
        rule("oci:/models", &[&file]),
    ])
    .unwrap();
    let required = |text: &str| policy.rule(&text.parse().unwrap()).is_some();
    assert!(required("registry.example/team/churn:latest"));
    assert!(required("registry.example/team/freedom"));
    assert!(!required("registry.example/team/free/churn"));
    assert!(!required("registry.example:5000/team/churn"));
    assert!(required("oci:/models/churn:latest") && !required("oci:/other/churn"));

    let digest = Digest::of(b"image");
    let rule = policy.rule(&"oci:/models/churn".parse().unwrap()).unwrap();
    let signed = |signer: &Signer| -> Signatures {
        let bundle = signer.bundle(&statement(digest));
        let payload = &bundle["dsseEnvelope"]["payload"];
        let signature = &bundle["dsseEnvelope"]["signatures"][0]["sig"];
        let signed = json!({"form": "in_toto", "payload": payload, "signature": signature});
        serde_json::from_value(json!({"signed": [signed]})).unwrap()
    };
    assert!(rule.verify(digest, &signed(&old)).is_ok());
    assert!(rule.verify(digest, &signed(&new)).is_err());
    // Replace the file as a mounted Secret is replaced.
    let next = work.path().join("next");
    fs::write(&next, new.public_key()).unwrap();
    fs::rename(&next, &file).unwrap();
    assert!(rule.verify(digest, &signed(&old)).is_err());
    assert!(rule.verify(digest, &signed(&new)).is_ok());
    // A file without a valid key leaves the previous keys in force.
    fs::write(&file, "oops").unwrap();
    assert!(rule.verify(digest, &signed(&new)).is_ok());
    fs::remove_file(&file).unwrap();
    assert!(rule.verify(digest, &signed(&new)).is_ok());
}
