//! Health, metadata, the index and statistics.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn s1_to_s4_health_has_both_keys() {
    let stack = start().await;
    while get(&stack, "/v2/health/ready").await.status != 200 {
        // The engine has not answered yet.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/health/live/"] {
        let answer = get(&stack, path).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"live": true, "ready": true})));
    }
}

#[tokio::test]
async fn s4_a_server_without_its_engine_is_live_and_not_ready() {
    let stack = start().await;
    stack.engine.stop().await;
    while get(&stack, "/v2/health/ready").await.status == 200 {
        // The server has not noticed yet.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = get(&stack, "/v2/health/ready").await;
    assert_eq!((answer.status, &answer.json()["ready"]), (503, &json!(false)));
    answer.error();
    assert_eq!(get(&stack, "/v2/health/live").await.status, 200);
}

#[tokio::test]
async fn s5_to_s7_a_model_is_ready_when_it_answers() {
    let stack = start().await;
    let path = "/v2/models/identity/ready";
    let answer = get(&stack, path).await;
    assert_eq!(answer.status, 404, "nobody has asked for it yet");
    answer.error();
    assert_eq!(infer(&stack, x(json!([1, 1]), json!([1])).to_string()).await.status, 200);
    let answer = get(&stack, path).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"name": IDENTITY, "ready": true})));
    assert_eq!(get(&stack, "/v2/models/nobody/ready").await.status, 404);
    stack.engine.on_predict(|_| Predicting::Outputs(Vec::new()));
    for _ in 0..8 {
        assert_eq!(infer(&stack, x(json!([1, 1]), json!([1])).to_string()).await.status, 500);
    }
    let answer = get(&stack, path).await;
    assert_eq!((answer.status, &answer.json()["ready"]), (503, &json!(false)));
}

#[tokio::test]
async fn s8_s9_s10_the_server_names_its_extensions() {
    let stack = start().await;
    for path in ["/v2", "/v2/"] {
        let answer = get(&stack, path).await;
        let json = answer.json();
        assert_eq!((answer.status, &json["name"]), (200, &json!("outrigger")));
        let extensions = json!(["binary_tensor_data", "model_repository", "statistics"]);
        assert_eq!(json["extensions"], extensions);
        assert!(json["version"].is_string());
    }
}

#[tokio::test]
async fn s11_s12_metadata_are_those_of_the_signature() {
    let stack = start().await;
    let answer = get(&stack, &format!("/v2/models/{MODEL}")).await;
    let json = answer.json();
    assert_eq!((answer.status, &json["name"]), (200, &json!(MODEL)), "{json}");
    assert_eq!(json["platform"], "tensorflow");
    let digest = json["versions"][0].as_str().expect("a digest");
    let tensor = |name: &str, datatype: &str, shape: Value| json!({"name": name, "datatype": datatype, "shape": shape});
    let inputs = json!([
        tensor("treatment", "FP32", json!([-1, -1, 2])),
        tensor("treatment_counts", "INT32", json!([-1])),
        tensor("user", "FP32", json!([-1, 1])),
    ]);
    assert_eq!(json["inputs"], inputs);
    assert_eq!(json["outputs"], json!([tensor("scores", "FP32", json!([-1, -1]))]));
    let versioned = get(&stack, &format!("/v2/models/{MODEL}/versions/{digest}")).await;
    assert_eq!((versioned.status, versioned.json()), (200, json));
}

#[tokio::test]
async fn s13_to_s16_unknown_names_paths_and_methods_are_errors_in_json() {
    let stack = start().await;
    for (method, path, status) in [
        (Method::GET, "/v2/models/nobody", 404),
        (Method::GET, "/v2/models/identity/versions/v9", 404),
        (Method::GET, "/v2/models", 404),
        (Method::GET, "/v2/other", 404),
        (Method::GET, "/", 404),
        (Method::POST, "/v2", 405),
        (Method::GET, "/v2/models/identity/infer", 405),
        (Method::DELETE, "/v2/models/identity", 405),
    ] {
        let answer = send(request(&stack, method.clone(), path)).await;
        assert_eq!(answer.status, status, "{method} {path}");
        answer.error();
    }
    let answer = get(&stack, "/v2/models/identity/infer").await;
    assert_eq!(answer.headers["allow"], "POST");
}

#[tokio::test]
async fn s88_the_index_lists_models_and_changes_belong_to_the_admin_listener() {
    let stack = loaded().await;
    for body in ["", "{}", r#"{"ready":true}"#] {
        let answer = send(request(&stack, Method::POST, "/v2/repository/index").body(body)).await;
        let json = answer.json();
        let entry = &json[0];
        assert_eq!((answer.status, &entry["name"]), (200, &json!(IDENTITY)), "{json}");
        assert_eq!(entry["state"], "READY");
        assert!(entry["version"].as_str().is_some_and(|it| it.starts_with("sha256:")), "{json}");
    }
    let answer = send(request(&stack, Method::POST, "/v2/repository/index").body("[")).await;
    assert_eq!(answer.status, 400);
    for verb in ["load", "unload"] {
        let path = format!("/v2/repository/models/identity/{verb}");
        let answer = send(request(&stack, Method::POST, &path)).await;
        assert_eq!(answer.status, 405);
        assert!(answer.error().contains("server.admin"), "{}", answer.error());
    }
}

#[tokio::test]
async fn statistics_count_requests_and_rows() {
    let stack = start().await;
    for rows in [1, 2] {
        let body = x(json!([rows, 1]), json!(vec![1; rows]));
        assert_eq!(infer(&stack, body.to_string()).await.status, 200);
    }
    for path in ["/v2/models/identity/stats", "/v2/models/stats"] {
        let answer = get(&stack, path).await;
        let json = answer.json();
        let model = &json["model_stats"][0];
        assert_eq!((answer.status, &model["name"]), (200, &json!(IDENTITY)), "{json}");
        assert_eq!(model["inference_count"], 3);
        assert_eq!(model["inference_stats"]["success"]["count"], 2);
    }
    assert_eq!(get(&stack, "/v2/models/nobody/stats").await.status, 404);
}

#[tokio::test]
async fn callers_need_rights() {
    let stack = with(&[("auth.anonymous", "[read]")]).await;
    assert_eq!(get(&stack, "/v2/health/live").await.status, 200);
    assert_eq!(get(&stack, "/v2").await.status, 200);
    let answer = infer(&stack, x(json!([1, 1]), json!([1])).to_string()).await;
    assert_eq!(answer.status, 401, "{:?}", answer.body);
    answer.error();
    assert_eq!(get(&stack, "/v2/models/identity").await.status, 401, "it may load the model");
    assert_eq!(get(&stack, "/v2/models/identity/ready").await.status, 404);
}
