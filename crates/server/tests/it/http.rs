//! Predictions and model states over HTTP.

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::stack::{MODEL, Stack, request};

fn body(treatments: &Value) -> Value {
    json!({
        "model": {"name": MODEL},
        "request_id": "r1",
        "user": {"u0": 0.5},
        "treatments": treatments,
    })
}

async fn post(stack: &Stack, body: impl Into<reqwest::Body>) -> (StatusCode, Value) {
    let answer =
        Client::new().post(stack.http("/v1/predict")).body(body).send().await.expect("an answer");
    (answer.status(), answer.json().await.expect("an answer"))
}

async fn get(stack: &Stack, path: &str) -> (StatusCode, Value) {
    let answer = reqwest::get(stack.http(path)).await.expect("an answer");
    (answer.status(), answer.json().await.expect("an answer"))
}

#[tokio::test]
async fn json_gives_the_scores_that_protobuf_gives() {
    let stack = Stack::start().await;
    let treatments = json!([
        {"id": "a", "features": {"t0": 1, "t1": 2.5}},
        {"id": "b", "features": {"t0": -4, "t1": 0.1}},
    ]);
    let (status, answer) = post(&stack, body(&treatments).to_string()).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["model"]["name"], MODEL);
    assert_eq!(answer["model"]["arm"], "live");
    assert_eq!(answer["request_id"], "r1");
    assert_eq!(answer["scores"][0], json!({"id": "a", "score": 3.5}));
    let protobuf = stack.predictions().predict(request(&[(-4.0, 0.1)])).await.unwrap();
    let expected = format!("{:?}", protobuf.into_inner().output);
    let score = answer["scores"][1]["score"].as_f64().unwrap();
    assert!(expected.contains(&format!("[{score}]")), "{score} is in {expected}");
}

#[tokio::test]
async fn errors_name_their_reason_and_field() {
    let stack = Stack::start().await;
    let treatment = |value: Value| body(&json!([{"features": {"t0": value, "t1": 0}}])).to_string();
    for (text, status, reason) in [
        (treatment(json!("much")), 400, "FEATURE_TYPE"),
        (treatment(json!(null)), 400, "FEATURE_MISSING"),
        (treatment(json!([1, 2])), 400, "FEATURE_LENGTH"),
        ("{".to_owned(), 400, "REQUEST_MALFORMED"),
        ("[]".to_owned(), 400, "REQUEST_MALFORMED"),
        (String::new(), 400, "REQUEST_MALFORMED"),
        (json!({"model": MODEL}).to_string(), 400, "REQUEST_MALFORMED"),
        (treatment(json!(1)).replacen('{', "{\"request_id\":\"r\",", 1), 400, "REQUEST_MALFORMED"),
        (treatment(json!(0)).replace("\"t0\":0", "\"t0\":NaN"), 400, "REQUEST_MALFORMED"),
        (treatment(json!(0)).replace("\"t0\":0", "\"t0\":1e999"), 400, "REQUEST_MALFORMED"),
        (json!({"treatments": []}).to_string(), 400, "REQUEST_MALFORMED"),
        (json!({"model": {"name": MODEL}, "treatmens": []}).to_string(), 400, "REQUEST_MALFORMED"),
        (json!({"model": {"name": "nobody"}}).to_string(), 404, "MODEL_NOT_FOUND"),
        (json!({"model": {"name": MODEL, "tag": "v9"}}).to_string(), 404, "TAG_NOT_FOUND"),
    ] {
        let (answered, answer) = post(&stack, text.clone()).await;
        assert_eq!(
            (answered.as_u16(), &answer["error"]["reason"]),
            (status, &json!(reason)),
            "{text}"
        );
        assert!(answer["error"]["message"].is_string() && answer["error"]["details"].is_object());
    }
    let (_, answer) = post(&stack, treatment(json!("much"))).await;
    let field = &answer["error"]["details"]["violations"][0]["field"];
    assert!(field.as_str().is_some_and(|field| field.contains("t0")), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_not_utf_8_is_malformed() {
    let stack = Stack::start().await;
    let text = body(&json!([])).to_string().replace("r1", "r?");
    let bytes: Vec<u8> = text.bytes().map(|b| if b == b'?' { 0xff } else { b }).collect();
    let (status, answer) = post(&stack, bytes).await;
    assert_eq!((status.as_u16(), &answer["error"]["reason"]), (400, &json!("REQUEST_MALFORMED")));
}

#[tokio::test]
async fn unknown_paths_and_wrong_verbs_are_answered_in_json() {
    let stack = Stack::start().await;
    for (verb, path, status) in [
        (Method::GET, "/v1/predict", 405),
        (Method::GET, "/v1/explain", 405),
        (Method::POST, "/v1/models", 405),
        (Method::POST, "/openapi.json", 405),
        (Method::GET, "/v2/models", 404),
        (Method::GET, "/", 404),
    ] {
        let answer = Client::new().request(verb, stack.http(path)).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["reason"], "METHOD_UNKNOWN", "{path}");
    }
}

#[tokio::test]
async fn models_are_shown_by_names_with_slashes() {
    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (status, list) = get(&stack, "/v1/models").await;
    assert_eq!((status.as_u16(), &list["models"][0]["name"]), (200, &json!(MODEL)));
    let (status, model) = get(&stack, &format!("/v1/models/{MODEL}")).await;
    assert_eq!(status, 200);
    assert_eq!(model["tags"][0]["name"], "latest");
    let version = &model["versions"][0];
    assert_eq!(version["state"], "available");
    assert_eq!(version["digest"], model["tags"][0]["serving_digest"]);
    assert!(!version["history"].as_array().unwrap().is_empty());
    for (path, expected) in
        [("/v1/models/nobody", 404), ("/v1/models/No%20body", 400), ("/v1/models/%ff", 400)]
    {
        let (status, answer) = get(&stack, path).await;
        assert_eq!(status.as_u16(), expected, "{answer}");
        assert!(answer["error"]["reason"].is_string(), "{answer}");
    }
}
