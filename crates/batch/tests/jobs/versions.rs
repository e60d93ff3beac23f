//! Versions of models that jobs name.

use std::sync::{Arc, Mutex};

use outrigger_batch::{Error, Job};
use outrigger_proto::inference::ModelInferRequest;
use outrigger_testkit::oip::identity;
use prost::Message as _;

use crate::harness::{Place, expected, model, score, scored};

/// The digest that the tag stands for.
const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn job(place: &Place, (file, host): (&str, &str), version: &str) -> Job {
    let mut job = place.job(&[file], &[host]);
    job.model.version = Some(version.to_owned());
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_the_digest_that_answers_first() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let versions = Arc::clone(&asked);
    let host = model(move |seen| {
        let request = ModelInferRequest::decode(seen.body.clone()).expect("a request");
        let version = match request.model_version.as_str() {
            "latest" => DIGEST.to_owned(),
            other => other.to_owned(),
        };
        versions.lock().expect("not poisoned").push(request.model_version);
        identity::grpc_with(seen, |reply| reply.model_version.clone_from(&version))
    });
    let (place, host) = (Place::new(), host.await);
    let file = place.rows("a.parquet", 0..40);
    let job = |version: &str| job(&place, (&file, &host.address()), version);
    let manifest = score(job("latest")).await.expect("scored");
    assert_eq!(manifest.version.as_deref(), Some(DIGEST));
    assert_eq!(manifest.digest.as_deref(), Some(DIGEST));
    assert_eq!(scored(&place.output()), expected(0..40));
    // After the two requests of the start, whose outputs nobody describes, the tag is not asked for
    // again: it may be that of another version.
    let asked = std::mem::take(&mut *asked.lock().expect("not poisoned"));
    assert_eq!(asked[..2], ["latest", "latest"]);
    assert!(asked.len() > 4 && asked[2..].iter().all(|version| version == DIGEST), "{asked:?}");
    for version in ["latest", DIGEST] {
        assert_eq!(score(job(version)).await, Ok(manifest.clone()), "{version}");
    }
    let refused = score(job("stable")).await;
    assert!(
        matches!(&refused, Err(Error::Usage(it)) if it.contains("another model version")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_than_the_named_one_is_refused() {
    let other = DIGEST.replace('a', "b");
    for (named, answered) in [("3", "4"), (DIGEST, &*other), (DIGEST, "4")] {
        let version = answered.to_owned();
        let host = model(move |seen| {
            identity::grpc_with(seen, |reply| reply.model_version.clone_from(&version))
        });
        let (place, host) = (Place::new(), host.await);
        let file = place.rows("a.parquet", 0..10);
        let refused = score(job(&place, (&file, &host.address()), named)).await;
        let names = |it: &str| it.contains(answered) && it.contains(&format!("not {named}"));
        assert!(matches!(&refused, Err(Error::Failed(it)) if names(it)), "{refused:?}");
        assert!(!place.output().exists());
    }
}
