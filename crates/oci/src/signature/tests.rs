//! Tests of verification: valid, foreign, altered and malformed signatures.

use outrigger_testkit::registry::{Signer, payload, statement};
use serde_json::{Value, json};

use super::*;

fn image() -> Digest {
    Digest::of(b"image")
}

fn keys(signers: &[&Signer]) -> Vec<PublicKey> {
    let pem: String = signers.iter().map(|signer| signer.public_key()).collect();
    PublicKey::parse(pem.as_bytes()).expect("public keys")
}

fn simple(signer: &Signer, payload: &[u8]) -> Signed {
    let signature = signer.sign(payload);
    Signed { form: Form::SimpleSigning, payload: BASE64_STANDARD.encode(payload), signature }
}

fn in_toto(signer: &Signer, statement: &Value) -> Signed {
    bundle::read(signer.bundle(statement).to_string().as_bytes()).expect("a bundle")
}

fn verify(signed: Signed, signers: &[&Signer]) -> Result<(), Unverified> {
    let signatures = Signatures { signed: vec![signed], unusable: Vec::new() };
    signatures.verify(image(), &keys(signers)).map(drop)
}

#[track_caller]
fn refused(signed: Signed, signer: &Signer, why: &str) {
    let error = verify(signed, &[signer]).expect_err("it must not count");
    assert_eq!(error.failure().reason, Reason::SignatureInvalid);
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn each_kind_of_key_signs_in_both_forms() {
    for signer in [Signer::new(), Signer::p384(), Signer::ed25519()] {
        let payload = payload(image()).to_string();
        assert_eq!(verify(simple(&signer, payload.as_bytes()), &[&signer]), Ok(()));
        assert_eq!(verify(in_toto(&signer, &statement(image())), &[&signer]), Ok(()));
    }
}

#[test]
fn rsa_keys_count_as_well() {
    let read = |file| std::fs::read(format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR")));
    let keys = PublicKey::parse(&read("rsa.pub").expect("a key")).expect("an RSA key");
    let message = read("rsa.message").expect("a message");
    let signature = read("rsa.sig").expect("a signature");
    let signature = BASE64_STANDARD.decode(signature.trim_ascii()).expect("base64");
    assert!(keys[0].verifies(&message, &signature));
    assert!(!keys[0].verifies(&message[1..], &signature));
}

#[test]
fn any_of_the_keys_verifies_and_is_returned() {
    let (first, second) = (Signer::new(), Signer::ed25519());
    let signed = vec![
        simple(&Signer::new(), payload(image()).to_string().as_bytes()),
        simple(&second, payload(image()).to_string().as_bytes()),
    ];
    let (signatures, keys) =
        (Signatures { signed, unusable: Vec::new() }, keys(&[&first, &second]));
    assert_eq!(signatures.verify(image(), &keys), Ok(&keys[1]));
    assert_ne!(keys[0].fingerprint(), keys[1].fingerprint());
}

#[test]
fn no_signature_is_missing_and_an_unreadable_one_is_invalid() {
    let keys = keys(&[&Signer::new()]);
    let none = Signatures::default().verify(image(), &keys).expect_err("none");
    assert_eq!(none.failure().reason, Reason::SignatureMissing);
    let broken = Signatures { signed: Vec::new(), unusable: vec!["it is broken".to_owned()] };
    let broken = broken.verify(image(), &keys).expect_err("none");
    assert_eq!(broken.failure().reason, Reason::SignatureInvalid);
    assert!(broken.to_string().contains("it is broken"));
}

#[test]
fn foreign_keys_and_signatures_of_other_bytes_do_not_count() {
    let (signer, stranger) = (Signer::new(), Signer::new());
    let payload = payload(image()).to_string();
    refused(simple(&stranger, payload.as_bytes()), &signer, "made with another key");
    refused(in_toto(&stranger, &statement(image())), &signer, "made with another key");

    let mut altered = simple(&signer, payload.as_bytes());
    altered.payload = BASE64_STANDARD.encode(payload.replace("churn", "chorn"));
    refused(altered, &signer, "made with another key");

    // A statement signed as a simple payload must not pass as a bundle.
    let mut confused = simple(&signer, statement(image()).to_string().as_bytes());
    confused.form = Form::InToto;
    refused(confused, &signer, "made with another key");
}

#[test]
fn a_truncated_signature_does_not_count() {
    let signer = Signer::new();
    let whole = simple(&signer, payload(image()).to_string().as_bytes());
    let bytes = BASE64_STANDARD.decode(&whole.signature).expect("base64");
    for length in 0..bytes.len() {
        let signature = BASE64_STANDARD.encode(&bytes[..length]);
        let cut = Signed { signature, ..whole.clone() };
        refused(cut, &signer, "made with another key");
    }
    let text = whole.signature[..whole.signature.len() - 3].to_owned();
    refused(Signed { signature: text, ..whole }, &signer, "not base64");
}

#[test]
fn the_claims_of_a_payload_are_checked() {
    let signer = Signer::new();
    let changed = |change: fn(&mut Value)| {
        let mut payload = payload(image());
        change(&mut payload);
        simple(&signer, payload.to_string().as_bytes())
    };
    let other = changed(|it| {
        it["critical"]["image"]["docker-manifest-digest"] = json!(Digest::of(b"other").to_string());
    });
    refused(other, &signer, &Digest::of(b"other").to_string());
    let kind = changed(|it| it["critical"]["type"] = json!("atomic container signature"));
    refused(kind, &signer, "another type");
    refused(changed(|it| it["critical"] = json!({})), &signer, "payload cannot be read");
    refused(simple(&signer, b"hello"), &signer, "payload cannot be read");
}

#[test]
fn the_claims_of_a_statement_are_checked() {
    let signer = Signer::new();
    let changed = |change: fn(&mut Value)| {
        let mut statement = statement(image());
        change(&mut statement);
        in_toto(&signer, &statement)
    };
    let other = changed(|it| it["subject"][0]["digest"]["sha256"] = json!("0".repeat(64)));
    refused(other, &signer, "another digest");
    let provenance = changed(|it| it["predicateType"] = json!("https://slsa.dev/provenance/v1"));
    refused(provenance, &signer, "attestation of another kind");
    refused(changed(|it| it["subject"] = json!([])), &signer, "another digest");
    refused(changed(|it| it["_type"] = json!("x")), &signer, "no in-toto statement");
}

#[test]
fn an_invalid_bundle_is_refused_with_its_problem() {
    let changed = |change: fn(&mut Value)| {
        let mut bundle = Signer::new().bundle(&statement(image()));
        change(&mut bundle);
        bundle::read(bundle.to_string().as_bytes()).expect_err("it must not be read")
    };
    assert!(changed(|it| it["mediaType"] = json!("x")).contains("version"));
    assert!(changed(|it| it["dsseEnvelope"] = Value::Null).contains("no DSSE envelope"));
    assert!(changed(|it| it["dsseEnvelope"]["payloadType"] = json!("x")).contains("in-toto"));
    assert!(changed(|it| it["dsseEnvelope"]["signatures"] = json!([])).contains("0 signatures"));
    assert!(changed(|it| *it = json!([1])).contains("cannot be read"));
}

#[test]
fn stored_signatures_verify_like_those_just_read() {
    let signer = Signer::new();
    let signed = vec![
        simple(&signer, payload(image()).to_string().as_bytes()),
        in_toto(&signer, &statement(image())),
    ];
    let read = Signatures { signed, unusable: vec!["and another".to_owned()] };
    let kept: Signatures =
        serde_json::from_slice(&serde_json::to_vec(&read).expect("JSON")).expect("the same");
    assert_eq!(kept.signed, read.signed);
    assert!(kept.verify(image(), &keys(&[&signer])).is_ok());
}

#[test]
fn files_without_a_usable_key_have_distinct_errors() {
    let parse = |pem: &str| PublicKey::parse(pem.as_bytes()).expect_err("no key");
    assert!(matches!(parse(""), InvalidKey::Empty));
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(matches!(parse(private), InvalidKey::Empty));
    let garbage = "-----BEGIN PUBLIC KEY-----\n!!!!\n-----END PUBLIC KEY-----\n";
    assert!(matches!(parse(garbage), InvalidKey::Pem(_)));
    let short = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert!(matches!(parse(short), InvalidKey::Unsupported(1)));
    let second = Signer::new().public_key() + short;
    assert!(matches!(parse(&second), InvalidKey::Unsupported(2)));
}
