//! Binary tensors.

use super::*;

/// A request with the JSON and the bytes behind it, and the header with this value.
async fn post(stack: &Stack, json: &Value, behind: &[u8], header: Option<&str>) -> Answer {
    let call = request(stack, Method::POST, "/v2/models/identity/infer");
    let call = header.into_iter().fold(call, |call, header| call.header(HEADER_LENGTH, header));
    send(call.body([json.to_string().as_bytes(), behind].concat())).await
}

/// As [`post`], with the length of the JSON.
async fn mixed(stack: &Stack, json: &Value, behind: &[u8]) -> Answer {
    post(stack, json, behind, Some(&json.to_string().len().to_string())).await
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn binary(rows: usize, size: usize) -> Value {
    json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 1],
        "parameters": {"binary_data_size": size}}]})
}

#[tokio::test]
async fn s66_a_binary_request_is_answered_in_json() {
    let stack = start().await;
    let answer = mixed(&stack, &binary(2, 8), &bytes(&[1.0, 2.5])).await;
    assert_eq!(answer.json()["outputs"][0]["data"], json!([1.0, 2.5]));
    assert!(!answer.headers.contains_key(HEADER_LENGTH));
}

#[tokio::test]
async fn s67_to_s70_outputs_are_binary_where_that_is_asked_for() {
    let stack = start().await;
    for (all, own, is_binary) in [
        (None, Some(true), true),
        (Some(true), None, true),
        (Some(true), Some(false), false),
        (Some(false), Some(true), true),
        (None, None, false),
    ] {
        let mut body = x(json!([2, 1]), json!([1, 2.5]));
        body["outputs"] = json!([{"name": "y"}]);
        if let Some(all) = all {
            body["parameters"] = json!({"binary_data_output": all});
        }
        if let Some(own) = own {
            body["outputs"][0]["parameters"] = json!({"binary_data": own});
        }
        let answer = infer(&stack, body.to_string()).await;
        if is_binary {
            let (json, data) = answer.parts();
            let output = json!({"name": "y", "datatype": "FP32", "shape": [2, 1],
                "parameters": {"binary_data_size": 8}});
            assert_eq!((&json["outputs"][0], data), (&output, bytes(&[1.0, 2.5]).into()));
        } else {
            assert_eq!(answer.json()["outputs"][0]["data"], json!([1.0, 2.5]), "{body}");
        }
    }
    let mut body = x(json!([1, 1]), json!([1]));
    body["parameters"] = json!({"binary_data_output": true});
    assert_eq!(infer(&stack, body.to_string()).await.parts().1, bytes(&[1.0]));
}

#[tokio::test]
async fn s77_an_empty_binary_output_has_the_header() {
    let stack = start().await;
    let mut body = x(json!([0, 1]), json!([]));
    body["parameters"] = json!({"binary_data_output": true});
    let (json, data) = infer(&stack, body.to_string()).await.parts();
    assert_eq!(json["outputs"][0]["parameters"], json!({"binary_data_size": 0}));
    assert!(data.is_empty());
}

#[tokio::test]
async fn s72_to_s74_sizes_that_lie_are_refused() {
    let stack = start().await;
    let data = bytes(&[1.0, 2.5]);
    for (json, behind) in [
        (binary(2, 8), &data[..7]),
        (binary(2, 8), &[&data[..], b"z"].concat()[..]),
        (binary(2, 7), &data[..7]),
        (binary(3, 8), &data[..]),
        (binary(2, usize::MAX), &data[..]),
    ] {
        let answer = mixed(&stack, &json, behind).await;
        assert_eq!(answer.status, 400, "{json} {}", behind.len());
        answer.error();
    }
    let mut both = binary(2, 8);
    both["inputs"][0]["data"] = json!([1, 2]);
    assert_eq!(mixed(&stack, &both, &data).await.status, 400);
    for header in [None, Some("-1"), Some("abc"), Some("99999"), Some("4294967296"), Some("1.5")] {
        let answer = post(&stack, &binary(2, 8), &data, header).await;
        assert_eq!(answer.status, 400, "{header:?}");
        answer.error();
    }
    assert_eq!(mixed(&stack, &binary(2, 8), &data).await.status, 200, "the server goes on");
}

#[tokio::test]
async fn s76_a_body_may_be_the_data_of_the_only_input() {
    let stack = start().await;
    let raw = async |model: &str, body: Vec<u8>| {
        let call = request(&stack, Method::POST, &format!("/v2/models/{model}/infer"));
        send(call.header(HEADER_LENGTH, "0").body(body)).await
    };
    let answer = raw(IDENTITY, bytes(&[1.0, 2.5])).await;
    let (json, data) = answer.parts();
    assert_eq!((&json["outputs"][0]["shape"], data), (&json!([2, 1]), bytes(&[1.0, 2.5]).into()));
    let answer = raw(IDENTITY, vec![0; 7]).await;
    assert_eq!(answer.status, 400);
    let answer = raw(MODEL, bytes(&[1.0])).await;
    assert_eq!(answer.status, 400);
    assert!(answer.error().contains("the only input"), "{}", answer.error());
}

#[tokio::test]
async fn a_compressed_response_counts_its_json_uncompressed() {
    let stack = with(&[("server.compression", "both")]).await;
    let zeros = vec![0; 1000];
    let mut body = x(json!([1000, 1]), json!(zeros));
    body["parameters"] = json!({"binary_data_output": true});
    let call = request(&stack, Method::POST, "/v2/models/identity/infer");
    let answer = send(call.header("accept-encoding", "deflate").body(body.to_string())).await;
    assert_eq!(answer.headers["content-encoding"], "deflate");
    let mut whole = Vec::new();
    let mut decompressor = outrigger_compression::Decompressor::new(
        outrigger_compression::Encoding::Deflate,
        answer.body.clone(),
        1 << 20,
    );
    while !decompressor.step(|_| Ok(())).expect("a stream") {}
    whole.extend_from_slice(&decompressor.finish());
    let length: usize = answer.headers[HEADER_LENGTH].to_str().unwrap().parse().unwrap();
    assert_eq!(whole.len(), length + 4000);
    assert!(serde_json::from_slice::<Value>(&whole[..length]).is_ok());
}
