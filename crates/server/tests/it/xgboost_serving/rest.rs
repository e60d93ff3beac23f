//! Its REST interface.

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use super::fixture::{BIAS, MACHINE, ONE, TREES, start};
use crate::stack::Stack;

fn url(stack: &Stack, path: &str) -> String {
    format!("http://{}{path}", stack.addresses.xgboost_serving.expect("a listener"))
}

async fn post(stack: &Stack, path: &str, body: impl Into<reqwest::Body>) -> (StatusCode, Value) {
    let answer = Client::new().post(url(stack, path)).body(body).send().await.expect("an answer");
    (answer.status(), answer.json().await.expect("a document"))
}

fn row(ids: &[u64], scores: &[f32]) -> Value {
    json!({"feature_score": {"id": ids, "score": scores}})
}

#[tokio::test]
async fn the_verbs_score_rows() {
    let stack = start(&[]).await;
    let rows = json!([row(&[1, 2], &[2.0, 0.5]), row(&[2, 1], &[-1.0, 4.0])]);
    let values = [2.5, 3.0].map(|sum| sum + f64::from(BIAS));
    for (path, body, outputs) in [
        (format!("/v1/models/{TREES}:predict"), json!({"xgboost_features": rows}), json!(values)),
        (
            format!("/V1/models/{TREES}/versions/7:Predict"),
            json!({"xgboost_features": rows, "option_mask": 1, "ntree_limit": 0}),
            json!(values),
        ),
        (
            format!("/v1/models/{TREES}:predict"),
            json!({"xgboost_features": [rows[0]], "option_mask": 2}),
            json!([103, 97]),
        ),
        (format!("/v1/models/{TREES}:predict"), json!({"xgboost_features": []}), json!([])),
        (
            format!("/v1/models/{}:predict", TREES.to_ascii_uppercase()),
            json!({"xgboost_features": rows}),
            json!(values),
        ),
    ] {
        let (status, answer) = post(&stack, &path, body.to_string()).await;
        assert_eq!((status, &answer), (StatusCode::OK, &json!({"outputs": outputs})), "{path}");
    }
    let machine =
        json!({"xgboost_features": rows, "fm_features": [row(&[ONE], &[2.0]), row(&[], &[])]});
    let path = format!("/v1/models/{MACHINE}:predict_alphafm");
    let (status, scores) = post(&stack, &path, machine.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{scores}");
    for (score, margin) in scores["outputs"].as_array().unwrap().iter().zip([7.5, 6.0]) {
        let expected = 1.0 / (1.0 + f64::exp(-margin));
        assert!((score.as_f64().unwrap() - expected).abs() < 1e-6, "{score}");
    }
    let path = format!("/v1/models/{MACHINE}:predict_softmax");
    let (status, refused) = post(&stack, &path, machine.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    let error = refused["error"].as_str().expect("a text");
    assert!(error.contains("the method is PredictAlphafm (:predict_alphafm)"), "{error}");
}

#[tokio::test]
async fn failures_are_documents_in_its_form() {
    let stack = start(&[]).await;
    let predict = format!("/v1/models/{TREES}:predict");
    for (path, body, status, reason) in [
        (&*predict, "{", 400, "REQUEST_MALFORMED"),
        (&*predict, r#"{"xgboost_features": 7}"#, 400, "REQUEST_MALFORMED"),
        (&*predict, r#"{"xgboost_features": [], "option_mask": {}}"#, 400, "REQUEST_MALFORMED"),
        (&*predict, "{}", 400, "REQUEST_MALFORMED"),
        ("/v1/models/unknown:predict", r#"{"xgboost_features": []}"#, 404, "MODEL_NOT_FOUND"),
        ("/v1/models/a%20b:predict", r#"{"xgboost_features": []}"#, 400, "REQUEST_MALFORMED"),
        ("/v1/models/ads:classify", "{}", 404, "METHOD_UNKNOWN"),
        ("/v1/models/ads/metadata:predict", "{}", 400, "REQUEST_MALFORMED"),
        ("/v1/models/ads", "{}", 405, "METHOD_UNKNOWN"),
        ("/", "{}", 404, "METHOD_UNKNOWN"),
    ] {
        let (found, answer) = post(&stack, path, body).await;
        assert_eq!((found.as_u16(), &answer["reason"]), (status, &json!(reason)), "{path} {body}");
        assert!(answer["error"].is_string(), "{answer}");
    }
}

#[tokio::test]
async fn the_states_of_versions_are_a_document() {
    let stack = start(&[]).await;
    let get = async |path: String| {
        let answer = reqwest::get(url(&stack, &path)).await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("a document"))
    };
    let (status, answer) = get(format!("/v1/models/{TREES}")).await;
    assert_eq!((status, &answer["reason"]), (404, &json!("MODEL_NOT_FOUND")));
    let body = json!({"xgboost_features": []}).to_string();
    post(&stack, &format!("/v1/models/{TREES}:predict"), body).await;
    let expected = json!({"model_version_status": [{
        "version": "7", "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }]});
    assert_eq!(get(format!("/v1/models/{TREES}")).await, (200, expected.clone()));
    let capitals = format!("/v1/models/{}", TREES.to_ascii_uppercase());
    assert_eq!(get(capitals).await, (200, expected.clone()));
    assert_eq!(get(format!("/v1/models/{TREES}/versions/7")).await, (200, expected));
    assert_eq!(get(format!("/v1/models/{TREES}/versions/8")).await.0, 404);
}
