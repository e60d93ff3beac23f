//! Contributions of features to scores, in explanations.

mod sparse;

use outrigger_proto::outrigger::v1::{
    ContributingFeature, Contributions, PredictRequest, ResponseOptions,
};
use outrigger_testkit::package::{Framework, Package};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::stack::{MODEL, Stack, reason, request_for};

/// A tree model whose score is 3 and the sum of a treatment's features.
const TREE: &str = "tree";

async fn start() -> Stack {
    let stack = Stack::start().await;
    let package = Package { framework: Framework::Xgboost, bias: 3, ..Package::default() };
    stack.publish_package(TREE, "latest", package).await;
    stack
}

fn asked(model: &str, treatments: &[(f32, f32)]) -> PredictRequest {
    let options = ResponseOptions { contributions: true, ..ResponseOptions::default() };
    PredictRequest { options: Some(options), ..request_for(model, treatments) }
}

async fn explain(stack: &Stack, request: PredictRequest) -> Result<Option<Contributions>, Status> {
    Ok(stack.predictions().explain(request).await?.into_inner().contributions)
}

#[tokio::test]
async fn contributions_to_the_score_of_a_tree_model_add_up_to_it() {
    let stack = start().await;
    let explained = explain(&stack, asked(TREE, &[(1.0, 2.0), (-0.5, 4.25)])).await;
    let explained = explained.expect("explained").expect("contributions");
    let feature = |(offset, (entity, feature)): (u32, (&str, &str))| ContributingFeature {
        feature: feature.to_owned(),
        entity: entity.to_owned(),
        offset,
        length: 1,
    };
    let features = [("user", "u0"), ("treatment", "t0"), ("treatment", "t1")];
    assert_eq!(explained.features, (0..).zip(features).map(feature).collect::<Vec<_>>());
    assert_eq!(explained.margins, 1);
    // The mean of all leaves of a tree is -1/8.
    let expected = [0.0, 1.125, 2.125, 2.75, 0.0, -0.375, 4.375, 2.75];
    assert_eq!(explained.values.len(), expected.len());
    let near = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-5;
    assert!(explained.values.iter().zip(&expected).all(near), "{:?}", explained.values);
}

#[tokio::test]
async fn contributions_are_computed_only_if_they_are_asked_for() {
    let stack = start().await;
    let explained = explain(&stack, request_for(TREE, &[(1.0, 2.0)])).await;
    assert_eq!(explained.expect("explained"), None);
    let nothing = explain(&stack, asked(TREE, &[])).await.expect("explained");
    let nothing = nothing.expect("contributions");
    assert_eq!((nothing.features.len(), nothing.margins, nothing.values.len()), (3, 1, 0));
}

#[tokio::test]
async fn contributions_that_cannot_be_computed_are_refused() {
    let stack = start().await;
    let many = [(1.0, 2.0); 101];
    for (request, code, expected) in [
        (asked(MODEL, &many[..1]), Code::Unimplemented, "CONTRIBUTIONS_UNSUPPORTED"),
        (asked(TREE, &many), Code::InvalidArgument, "TOO_MANY_TREATMENTS"),
    ] {
        let status = explain(&stack, request).await.expect_err(expected);
        assert_eq!((status.code(), &*reason(&status)), (code, expected));
    }
    explain(&stack, asked(TREE, &many[..100])).await.expect("a hundred are explained");
    let status = stack.predictions().predict(asked(TREE, &many[..1])).await.expect_err("scores");
    assert_eq!(reason(&status), "REQUEST_MALFORMED");
}

/// Asks for contributions over HTTP.
async fn post(stack: &Stack, model: &str, treatments: Value) -> (u16, Value) {
    let body = json!({"model": {"name": model}, "treatments": treatments, "request_id": "r1"});
    let call = reqwest::Client::new().post(stack.http("/v1/explain")).body(body.to_string());
    let answer = call.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

#[tokio::test]
async fn contributions_have_a_json_form() {
    let stack = start().await;
    let treatments = json!([
        {"id": "a", "features": {"t0": 1, "t1": 2}},
        {"features": {"t0": -0.5, "t1": 4.25}},
    ]);
    let (status, answer) = post(&stack, TREE, treatments).await;
    assert_eq!(status, 200, "{answer}");
    let margin = |contributions: [f64; 3]| json!([{"base": 2.75, "contributions": contributions}]);
    let treatments = json!([
        {"id": "a", "margins": margin([0.0, 1.125, 2.125])},
        {"margins": margin([0.0, -0.375, 4.375])},
    ]);
    assert_eq!(answer["treatments"], treatments);
    let feature = json!({"entity": "treatment", "feature": "t1", "length": 1, "offset": 2});
    assert_eq!(answer["features"][2], feature);
    assert_eq!((&answer["request_id"], &answer["model"]["arm"]), (&json!("r1"), &json!("live")));
    let (status, answer) = post(&stack, MODEL, json!([])).await;
    assert_eq!((status, &answer["error"]["reason"]), (501, &json!("CONTRIBUTIONS_UNSUPPORTED")));
    let (status, answer) = post(&stack, "nobody", json!([])).await;
    assert_eq!((status, &answer["error"]["reason"]), (404, &json!("MODEL_NOT_FOUND")));
}
