//! The guard, the limits and the metrics hold on its listener as on the others.

use outrigger_proto::xgboost_serving::{FeatureScore, PredictRequest};
use reqwest::Client;
use serde_json::json;
use tonic::Code;

use super::fixture::{MACHINE, Row, TREES, client, predict, request, start};
use crate::stack::{Stack, reason};

const ROWS: &[Row<'_>] = &[&[(1, 2.0), (2, 0.5)], &[(1, 4.0)]];

fn trees() -> PredictRequest {
    request(TREES, &[("xgboost_features", ROWS)])
}

async fn post(stack: &Stack, path: &str, body: String) -> (u16, String) {
    let address = stack.addresses.xgboost_serving.expect("a listener");
    let sent = Client::new().post(format!("http://{address}{path}")).body(body).send().await;
    let answer = sent.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a text"))
}

#[tokio::test]
async fn without_an_address_there_is_no_listener() {
    let stack = Stack::start().await;
    assert_eq!(stack.addresses.xgboost_serving, None);
}

#[tokio::test]
async fn callers_need_rights() {
    let stack = start(&[("auth.anonymous", "[read]")]).await;
    let status = predict(&stack, trees()).await.expect_err("no right to predict");
    assert_eq!((status.code(), &*reason(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
    let path = format!("/v1/models/{TREES}:predict");
    let (status, answer) = post(&stack, &path, json!({"xgboost_features": []}).to_string()).await;
    assert!(status == 401 && answer.contains("UNAUTHENTICATED"), "{answer}");
}

#[tokio::test]
async fn limits_hold_for_rows() {
    let stack = start(&[("server.max_treatments", "1"), ("server.max_tensors", "2KiB")]).await;
    let status = predict(&stack, trees()).await.expect_err("two rows");
    assert_eq!(reason(&status), "TOO_MANY_TREATMENTS");
    let row = json!({"feature_score": {}});
    let body = json!({"xgboost_features": [row, row]}).to_string();
    let (status, answer) = post(&stack, &format!("/v1/models/{TREES}:predict"), body).await;
    assert!(status == 400 && answer.contains("TOO_MANY_TREATMENTS"), "{answer}");

    let mut request = trees();
    let row = FeatureScore { id: vec![1; 200], score: vec![0.5; 200] };
    request.inputs.get_mut("xgboost_features").expect("rows").feature_score = vec![row];
    let status = predict(&stack, request).await.expect_err("2408 bytes");
    assert_eq!(reason(&status), "TOO_LARGE");
}

#[tokio::test]
async fn predictions_are_counted_under_both_names() {
    let stack = start(&[]).await;
    predict(&stack, trees()).await.expect("an answer");
    let machine = request(MACHINE, &[("xgboost_features", ROWS), ("fm_features", &[&[], &[]])]);
    client(&stack).predict_alphafm(machine).await.expect("an answer");
    let body = json!({"xgboost_features": [{"feature_score": {}}]}).to_string();
    post(&stack, &format!("/v1/models/{TREES}:predict"), body).await;
    let (_, text) = stack.health("/metrics").await;
    let requests = |surface: &str, model: &str| {
        format!(
            "outrigger_requests_total{{surface=\"{surface}\",method=\"predict\",\
             model=\"{model}\",arm=\"live\",reason=\"OK\"}}"
        )
    };
    let latency = |name: &str, model: &str| format!("{name}_count{{model=\"{model}\"}}");
    for series in [
        requests("xgboost_serving_grpc", TREES),
        requests("xgboost_serving_http", TREES),
        requests("xgboost_serving_grpc", MACHINE),
        latency("xgboost_serving", TREES),
        latency("xgboost_serving", MACHINE),
        latency("http_xgboost_serving", TREES),
        latency("xgboost_predict", TREES),
        latency("alphafm_predict", MACHINE),
        latency("alphafm_xgboost_predict", MACHINE),
    ] {
        // Other tests of this process count under the same names.
        assert!(text.contains(&format!("{series} ")), "{series}\n{text}");
    }
    assert!(text.contains("xgboost_predict_bucket{model=\"ads/trees\",le=\"200\"}"), "{text}");
}

#[tokio::test]
async fn a_path_of_grpc_takes_grpc() {
    let stack = start(&[]).await;
    for path in ["PredictionService/Predict", "ModelService/HandleReloadConfigRequest"] {
        let (status, answer) =
            post(&stack, &format!("/tensorflow.serving.{path}"), String::new()).await;
        assert!(status == 404 && answer.contains("METHOD_UNKNOWN"), "{answer}");
    }
}
