//! TLS: the certificate authorities that the client trusts.

use outrigger_core::Reason;
use outrigger_oci::{Client, Error};
use outrigger_testkit::registry::{LayerBlob, Registry};

use crate::support::{CONFIG, NAME, config, image, reference};

#[tokio::test]
async fn a_host_that_is_not_listed_gets_no_plain_http() {
    let registry = Registry::start().await;
    let mut config = config(registry.host());
    config.plain_http.clear();
    config.retries.attempts = 1;
    let client = Client::new(config).unwrap();
    let error = client.resolve(&reference(registry.host(), "")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryUnavailable);
    let failure = error.failure();
    for option in ["speaks plain HTTP", "images.plain_http", "--plain-http"] {
        assert!(failure.message.contains(option), "{failure}");
    }
    assert!(registry.requests().is_empty());
}

#[tokio::test]
async fn https_works_with_the_registrys_authority_and_only_with_it() {
    let registry = Registry::start_tls().await;
    let layers = [LayerBlob::tar(&b"one"[..])];
    let digest = registry.push_image(NAME, "latest", &layers, CONFIG);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, registry.authority().unwrap()).unwrap();
    let latest = reference(registry.host(), ":latest");

    let mut config = config("unused.example");
    config.retries.attempts = 1;
    let stranger = Client::new(config.clone()).unwrap();
    let error = stranger.resolve(&latest).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryUnavailable);
    assert!(error.failure().message.contains("certificate"), "{}", error.failure());

    config.ca = Some(file);
    let client = Client::new(config).unwrap();
    assert_eq!(client.image(&latest).await.unwrap().digest, digest);
    let other = latest.with_tag("other".parse().unwrap());
    let pushed = client.push(&other, &image(&[b"two"])).await.unwrap();
    assert_eq!(client.resolve(&other).await.unwrap(), pushed);
}

#[test]
fn a_file_of_authorities_must_hold_some() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let refusal = || {
        let mut config = config("unused.example");
        config.ca = Some(file.clone());
        Client::new(config).unwrap_err()
    };
    assert!(matches!(refusal(), Error::Io { .. }), "it is not there");
    for text in ["", "no pem", "-----BEGIN CERTIFICATE-----\n####\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&file, text).unwrap();
        let error = refusal();
        assert!(matches!(error, Error::Config { .. }), "{text:?}: {error:?}");
        assert!(error.to_string().contains("ca.pem"), "{error}");
    }
}
