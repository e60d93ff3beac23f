//! Checks that the number of series stays bounded, however many names callers make up. The test has
//! a process of its own, because it counts all series of the process.

use std::collections::BTreeSet;

use outrigger_proto::outrigger::v1::{
    GetModelRequest, ModelSelector, PredictRequest, model_selector::Version,
    prediction_service_client::PredictionServiceClient,
};
use tonic::{Request, transport::Channel};

// This test uses only a part of the module.
#[allow(dead_code)]
#[path = "it/stack.rs"]
mod stack;

use stack::{MODEL, Stack, by_name, linear, request};

type Client = PredictionServiceClient<Channel>;

const NAMES: usize = 3000;
const MODELS: usize = 2;

/// The names and labels of all series, without their values.
async fn series(stack: &Stack) -> BTreeSet<String> {
    let (_, text) = stack.health("/metrics").await;
    let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    samples.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

/// Sends every kind of text that a caller can make up: names, tags, digests, paths, headers.
async fn make_up(stack: &Stack, mut client: Client, http: &reqwest::Client, number: usize) {
    let name = format!("made-up/{number}");
    let selectors = [
        by_name(&name),
        ModelSelector { name: MODEL.to_owned(), version: Some(Version::Tag(format!("t{number}"))) },
        ModelSelector {
            name: MODEL.to_owned(),
            version: Some(Version::Digest(format!("sha256:{number:064x}"))),
        },
    ];
    // Each number uses one of the three selectors; none of them exists.
    let model = Some(selectors[number % selectors.len()].clone());
    let mut message = Request::new(PredictRequest { model, ..request(&[(1.0, 1.0)]) });
    message.set_timeout(std::time::Duration::from_millis(200));
    message.metadata_mut().insert("outrigger-model", name.parse().expect("a header"));
    client.predict(message).await.expect_err("it is made up");
    if number.is_multiple_of(10) {
        let path = stack.http(&format!("/v1/{name}?feature={number}"));
        http.delete(path).send().await.expect("an answer");
        let get = GetModelRequest { name };
        // A query may return the record of an earlier request for this name.
        let _ = stack.models().get_model(get).await;
    }
}

#[tokio::test]
async fn names_that_callers_make_up_make_no_series() {
    let stack = Stack::with(&[("metrics.max_models", &MODELS.to_string())]).await;
    // Each one reads the system's certificates.
    let http = reqwest::Client::new();
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    // Real models have a label each up to the limit; all others share one.
    for number in 0..2 * MODELS {
        let name = format!("real/{number}");
        stack.publish(&name, &linear(0.0)).await;
        let message = PredictRequest { model: Some(by_name(&name)), ..request(&[(1.0, 1.0)]) };
        client.predict(message).await.unwrap();
    }
    // These requests cause every kind of failure once, which registers its series.
    for number in 0..60 {
        make_up(&stack, client.clone(), &http, number).await;
    }
    let before = series(&stack).await;
    for batch in 0..NAMES / 50 {
        let numbers = (batch * 50..(batch + 1) * 50).map(|number| 100 + number);
        let flood = numbers.map(|number| make_up(&stack, client.clone(), &http, number));
        futures::future::join_all(flood).await;
    }
    let after = series(&stack).await;
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.len() < 50, "{} new series, such as {:?}", new.len(), &new[..20.min(new.len())]);
    assert!(!after.iter().any(|series| series.contains("made-up")));
    let labels: BTreeSet<_> = after.iter().filter_map(|series| model(series)).collect();
    assert_eq!(labels, [MODEL, "other", "real/0", ""].map(str::to_owned).into());
}

/// The value of a series' `model` label.
fn model(series: &str) -> Option<String> {
    let (_, rest) = series.split_once("model=\"")?;
    Some(rest.split_once('"')?.0.to_owned())
}
