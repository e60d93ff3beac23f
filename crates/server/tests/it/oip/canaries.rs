//! Canaries, as clients of the protocol see them.

use std::collections::BTreeMap;

use outrigger_proto::inference::{InferParameter, infer_parameter::ParameterChoice};
use tonic::metadata::MetadataMap;

use super::{signature, values};
use crate::canaries::{Fault, Tried};

/// The headers of an answer to a request with this routing key and version. Its scores are those of
/// every version.
async fn headers(tried: &Tried, key: &str, version: &str) -> MetadataMap {
    let mut request = signature();
    let key = InferParameter { parameter_choice: Some(ParameterChoice::StringParam(key.into())) };
    request.parameters.insert("routing_key".to_owned(), key);
    request.model_version = version.to_owned();
    let response = tried.stack.oip().model_infer(request).await.expect("an answer");
    let headers = response.metadata().clone();
    assert_eq!(values(&response.into_inner().raw_output_contents[0]), [3.0, 5.5]);
    headers
}

fn text(headers: &MetadataMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().expect("a text").to_owned())
}

#[tokio::test]
async fn a_canary_has_its_share_of_requests_without_a_version() {
    let tried = Tried::start(Fault::Fails).await;
    let mut digests = BTreeMap::new();
    for key in (0..64).map(|key| key.to_string()) {
        let first = headers(&tried, &key, "").await;
        let again = headers(&tried, &key, "").await;
        let arm = text(&first, "outrigger-arm").expect("an arm");
        assert_eq!(text(&again, "outrigger-arm").as_ref(), Some(&arm), "a key keeps its arm");
        digests.insert(arm, text(&first, "outrigger-digest").expect("a digest"));
        let live = headers(&tried, &key, "latest").await;
        assert_eq!(text(&live, "outrigger-arm").as_deref(), Some("live"), "it has a version");
    }
    assert_eq!(digests.keys().collect::<Vec<_>>(), ["canary", "live"]);
    assert_ne!(digests["canary"], digests["live"]);
}

#[tokio::test]
async fn live_answers_where_the_canary_fails() {
    let tried = Tried::start(Fault::Fails).await;
    let mut key = 0;
    let on_canary = loop {
        let found = headers(&tried, &key.to_string(), "").await;
        if text(&found, "outrigger-arm").as_deref() == Some("canary") {
            break key.to_string();
        }
        key += 1;
    };
    tried.break_it();
    let answered = headers(&tried, &on_canary, "").await;
    assert_eq!(text(&answered, "outrigger-arm").as_deref(), Some("live"));
    assert_eq!(text(&answered, "outrigger-degraded").as_deref(), Some("ENGINE_FAILED"));
}
