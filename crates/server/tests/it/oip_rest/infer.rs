//! Requests and responses in JSON.

use std::time::Duration;

use futures::stream;
use outrigger_compression::{Encoding, Level, compress};
use outrigger_core::{Content, DType, Tensor};
use outrigger_testkit::engine::{Gate, Predicting, floats};
use reqwest::Body;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

#[tokio::test]
async fn s17_s18_s23_flat_nested_and_empty_data_are_read() {
    let stack = start().await;
    for (shape, data, expected) in [
        (json!([2, 1]), json!([1, 2.5]), json!([1.0, 2.5])),
        (json!([2, 1]), json!([[1], [2.5]]), json!([1.0, 2.5])),
        (json!([0, 1]), json!([]), json!([])),
    ] {
        let answer = infer(&stack, x(shape.clone(), data).to_string()).await;
        let output = &answer.json()["outputs"][0];
        assert_eq!((answer.status, &output["shape"]), (200, &shape));
        assert_eq!(output["data"], expected);
    }
}

/// The faults of requests in `{"inputs": [{FIELDS}]}` to [`IDENTITY`].
const FAULTS: [(&str, &str); 16] = [
    // s19, s20, s21, s22, s24
    (r#""name":"x","datatype":"FP32","shape":[2,1],"data":[[1,2]]"#, "nested"),
    (r#""name":"x","datatype":"FP32","shape":[2,1],"data":[1]"#, "fewer elements"),
    (r#""name":"x","datatype":"FP32","shape":[2,1],"data":[1,2,3]"#, "more elements"),
    (r#""name":"x","datatype":"FP32","shape":[-1,1],"data":[1]"#, "negative"),
    (r#""name":"x","datatype":"FP32","shape":[1.0,1],"data":[1]"#, "whole number"),
    (r#""name":"x","datatype":"FP32","shape":[4294967296,4294967296],"data":[1]"#, "too large"),
    // s25, s26
    (r#""name":"x","datatype":"fp32","shape":[1,1],"data":[1]"#, "\"fp32\" is none of"),
    (r#""name":"x","datatype":"INT64","shape":[1,1],"data":[1]"#, "is float32, not int64"),
    // s27, s28, s34
    (r#""name":"x","datatype":"FP32","shape":[1,1],"data":["1"]"#, "is a string"),
    (r#""name":"x","datatype":"FP32","shape":[1,1],"data":[null]"#, "is null"),
    (r#""name":"x","datatype":"FP32","shape":[1,1],"data":[NaN]"#, "is NaN"),
    (r#""name":"x","datatype":"FP16","shape":[1,1],"data":[1]"#, "no JSON form"),
    // s35, s37
    (r#""name":"x","datatype":"FP32","data":[1]"#, "shape: is missing"),
    (r#""name":"y","datatype":"FP32","shape":[1,1],"data":[1]"#, "no input \"y\""),
    // s42, s26
    (
        r#""name":"x","datatype":"FP32","shape":[1,1],"data":[1],"parameters":{"a":{}}"#,
        "parameters",
    ),
    (r#""name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]"#, "not [1, 2]"),
];

#[tokio::test]
async fn faults_of_requests_are_refused_with_400_and_named() {
    let stack = start().await;
    let one = r#"{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}"#;
    let inputs = |fields: &str| format!(r#"{{"inputs":[{{{fields}}}]}}"#);
    let others = [
        // s36, s37, s41, s42, s43, s54
        (r#"{"inputs":[]}"#.to_owned(), "input \"x\" is missing"),
        (format!(r#"{{"inputs":[{one},{one}]}}"#), "is given twice"),
        (format!(r#"{{"id":1,"inputs":[{one}]}}"#), "id: is no string"),
        (format!(r#"{{"parameters":{{"a":[]}},"inputs":[{one}]}}"#), "parameters[\"a\"]"),
        (format!(r#"{{"inputs":[{one}],"outputs":[{{"name":"z"}}]}}"#), "no output \"z\""),
        (format!(r#"{{"inputs":[{one}],"outputs":[{{"name":"y"}},{{"name":"y"}}]}}"#), "twice"),
        (String::new(), "the body is empty"),
        ("{".to_owned(), "is no JSON"),
        (format!(r#"{{"x":{}}}"#, "[".repeat(1000)), "is no JSON"),
    ];
    let faults = FAULTS.iter().map(|(fields, message)| (inputs(fields), *message));
    for (body, message) in faults.chain(others) {
        let answer = infer(&stack, body.clone()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.error().contains(message), "{body}: {}", answer.error());
    }
    // The server goes on.
    assert_eq!(infer(&stack, x(json!([1, 1]), json!([1])).to_string()).await.status, 200);
}

#[tokio::test]
async fn s38_rows_of_inputs_must_agree() {
    let stack = start().await;
    let mut uneven = offers();
    uneven["inputs"][0] = json!({"name": "user", "datatype": "FP32", "shape": [1, 1], "data": [1]});
    let answer = infer_of(&stack, MODEL, uneven.to_string()).await;
    assert_eq!(answer.status, 400, "{:?}", answer.body);
}

#[tokio::test]
async fn s40_the_id_is_echoed_and_stays_absent() {
    let stack = start().await;
    let mut body = x(json!([1, 1]), json!([1]));
    assert_eq!(infer(&stack, body.to_string()).await.json().get("id"), None);
    body["id"] = json!("é-1");
    assert_eq!(infer(&stack, body.to_string()).await.json()["id"], "é-1");
    // s61: a failed response has it in a header, also if the request could not be read.
    body["id"] = json!("r-1");
    for (key, wrong) in [("name", json!("y")), ("shape", json!([7]))] {
        body["inputs"][0][key] = wrong;
        let answer = infer(&stack, body.to_string()).await;
        let id = answer.headers["outrigger-request-id"].to_str().expect("ASCII");
        assert_eq!((answer.status, id), (400, "r-1"));
    }
}

#[tokio::test]
async fn s45_the_content_type_does_not_matter() {
    let stack = start().await;
    let body = x(json!([1, 1]), json!([1])).to_string();
    for kind in ["application/json; charset=utf-8", "text/plain", "application/octet-stream", ""] {
        let call = request(&stack, Method::POST, "/v2/models/identity/infer");
        let answer = send(call.header("content-type", kind).body(body.clone())).await;
        assert_eq!(answer.status, 200, "{kind}");
    }
}

#[tokio::test]
async fn s46_s47_compressed_requests_are_read() {
    let stack = start().await;
    let body = x(json!([1, 1]), json!([1])).to_string();
    let post = async |name: &str, body: Vec<u8>| {
        let call = request(&stack, Method::POST, "/v2/models/identity/infer");
        send(call.header("content-encoding", name).body(body)).await
    };
    for encoding in Encoding::ALL {
        let mut compressed = Vec::new();
        compress(encoding, Level::Usual, body.as_bytes(), &mut compressed).expect("memory");
        assert_eq!(post(encoding.name(), compressed).await.status, 200, "{encoding:?}");
    }
    let answer = post("br", body.into()).await;
    assert_eq!(answer.status, 415);
    assert!(answer.error().contains("content-encoding"));
    assert_eq!(answer.headers["accept-encoding"], "identity, gzip, zstd, deflate");
}

#[tokio::test]
async fn s48_a_body_may_come_in_chunks() {
    let stack = start().await;
    let body = x(json!([1, 1]), json!([1])).to_string();
    let (first, second) = body.split_at(7);
    let chunks = [first, second].map(|chunk| Ok::<_, std::io::Error>(chunk.to_owned()));
    assert_eq!(infer(&stack, Body::wrap_stream(stream::iter(chunks))).await.status, 200);
}

#[tokio::test]
async fn s49_a_sender_is_asked_to_continue() {
    let stack = start().await;
    let body = x(json!([1, 1]), json!([1])).to_string();
    let mut socket = TcpStream::connect(stack.addresses.oip.unwrap()).await.unwrap();
    let head = format!(
        "POST /v2/models/identity/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\nconnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    socket.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn s50_unknown_models_and_versions_are_not_found() {
    let stack = start().await;
    let body = x(json!([1, 1]), json!([1])).to_string();
    let digest = format!("sha256:{}", "0".repeat(64));
    for model in ["nobody", "identity/versions/v9", &format!("identity/versions/{digest}")] {
        let answer = infer_of(&stack, model, body.clone()).await;
        assert_eq!(answer.status, 404, "{model}: {:?}", answer.body);
        answer.error();
    }
}

#[tokio::test]
async fn versions_are_tags_and_digests() {
    let stack = start().await;
    let body = x(json!([1, 1]), json!([1])).to_string();
    let digest = infer(&stack, body.clone()).await.json()["model_version"].clone();
    let digest = digest.as_str().expect("a digest").to_owned();
    for version in ["latest", &digest, &digest.replace(':', "%3A")] {
        let answer = infer_of(&stack, &format!("identity/versions/{version}"), body.clone()).await;
        assert_eq!((answer.status, &answer.json()["model_version"]), (200, &json!(digest)));
    }
}

#[tokio::test]
async fn s57_floats_that_are_not_finite_are_no_json() {
    let stack = loaded().await;
    stack
        .engine
        .on_predict(|_| Predicting::Outputs(vec![floats("y", &[2, 1], [f32::NAN, f32::INFINITY])]));
    let mut body = x(json!([2, 1]), json!([1, 2]));
    let answer = infer(&stack, body.to_string()).await;
    assert_eq!(answer.status, 400);
    assert!(answer.error().contains("is NaN or infinite"), "{}", answer.error());
    assert!(answer.error().contains("ask for binary tensors"), "{}", answer.error());
    body["parameters"] = json!({"null_for_non_finite": true});
    let answer = infer(&stack, body.to_string()).await;
    assert_eq!(answer.json()["outputs"][0]["data"], json!([null, null]));
    body["parameters"] = json!({"binary_data_output": true});
    let (_, data) = infer(&stack, body.to_string()).await.parts();
    assert_eq!(data.len(), 8);
}

#[tokio::test]
async fn outputs_that_json_has_no_form_for_are_refused_and_the_model_stays_ready() {
    let stack = loaded().await;
    let half = Content::Bytes(Bytes::from_static(&[0, 0x3c]));
    let text = Content::Strings(vec![Bytes::from_static(b"\xff\0")]);
    for (dtype, content, message) in
        [(DType::Float16, half, "FP16"), (DType::String, text, "element 0 is not in UTF-8")]
    {
        let output = Tensor { name: "y".into(), dtype, shape: vec![1, 1], content };
        stack.engine.on_predict(move |_| Predicting::Outputs(vec![output.clone()]));
        for _ in 0..10 {
            let answer = infer(&stack, x(json!([1, 1]), json!([1])).to_string()).await;
            assert_eq!(answer.status, 400);
            assert!(answer.error().contains(message), "{}", answer.error());
        }
        assert_eq!(get(&stack, "/v2/models/identity/ready").await.status, 200);
    }
}

#[tokio::test]
async fn s62_a_failure_of_the_model_is_an_error_of_the_server() {
    let stack = loaded().await;
    stack.engine.on_predict(|_| Predicting::Outputs(Vec::new()));
    let answer = infer(&stack, x(json!([1, 1]), json!([1])).to_string()).await;
    assert_eq!(answer.status, 500);
    answer.error();
}

#[tokio::test]
async fn s64_the_timeout_of_a_request_ends_it() {
    let stack = loaded().await;
    let body = x(json!([1, 1]), json!([1]));
    let gate = Gate::closed();
    let held = gate.clone();
    stack.engine.on_predict(move |_| {
        let outputs = Predicting::Outputs(vec![floats("y", &[1, 1], [1.0])]);
        Predicting::Held(held.clone(), Box::new(outputs))
    });
    let mut short = body.clone();
    short["parameters"] = json!({"timeout": 50_000});
    let answer = infer(&stack, short.to_string()).await;
    assert_eq!(answer.status, 504, "{:?}", answer.body);
    answer.error();
    let call = request(&stack, Method::POST, "/v2/models/identity/infer");
    let call = call.header("x-request-timeout", "50ms").body(body.to_string());
    assert_eq!(send(call.timeout(Duration::from_secs(60))).await.status, 504);
    let statistics = get(&stack, "/v2/models/identity/stats").await.json();
    let durations = &statistics["model_stats"][0]["inference_stats"];
    let counts = ["success", "fail"].map(|outcome| durations[outcome]["count"].clone());
    assert_eq!(counts, [json!(1), json!(2)], "{statistics}");
    gate.open();
}
