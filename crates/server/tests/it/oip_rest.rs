//! The Open Inference Protocol over HTTP. Names of the kind `s17` are those of the conformance
//! checks.

mod binary;
mod infer;
mod questions;

use bytes::Bytes;
use http::HeaderMap;
use outrigger_oip::rest::HEADER_LENGTH;
use outrigger_testkit::{
    engine::{Predicting, floats},
    saved_model::affine,
};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::stack::{MODEL, Stack};

/// A model with one input, `x`, whose output `y` is its input.
const IDENTITY: &str = "identity";

/// A response.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    /// The body, which must be JSON and say so.
    fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The message of an error, which must have the protocol's form.
    fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error is a string").to_owned()
    }

    /// The JSON and the bytes behind it.
    fn parts(&self) -> (Value, Bytes) {
        assert_eq!(self.headers["content-type"], "application/octet-stream");
        let length = self.headers[HEADER_LENGTH].to_str().expect("a number").parse::<usize>();
        let (json, behind) = self.body.split_at(length.expect("a number"));
        (serde_json::from_slice(json).expect("JSON"), self.body.slice_ref(behind))
    }
}

async fn start() -> Stack {
    with(&[]).await
}

/// A server that has loaded [`IDENTITY`].
async fn loaded() -> Stack {
    let stack = start().await;
    assert_eq!(infer(&stack, x(json!([1, 1]), json!([1])).to_string()).await.status, 200);
    stack
}

/// A server with a listener for the protocol, [`MODEL`] and [`IDENTITY`].
async fn with(settings: &[(&str, &str)]) -> Stack {
    let settings = [&[("server.oip", "127.0.0.1:0")], settings].concat();
    let stack = Stack::with(&settings).await;
    stack.publish(IDENTITY, &affine(1.0, 0.0)).await;
    stack.engine.on_predict(|prediction| match prediction.inputs.get("x") {
        Some(x) => {
            let y = outrigger_core::Tensor { name: "y".into(), ..x.clone() };
            Predicting::Outputs(vec![y])
        }
        None => {
            let treatment = &prediction.inputs["treatment"];
            let [users, treatments, _] = treatment.shape[..] else { panic!("three dimensions") };
            let values = outrigger_testkit::engine::float_values(treatment);
            let sums: Vec<f32> = values.chunks(2).map(|row| row.iter().sum()).collect();
            Predicting::Outputs(vec![floats("scores", &[users, treatments], sums)])
        }
    });
    stack
}

fn url(stack: &Stack, path: &str) -> String {
    format!("http://{}{path}", stack.addresses.oip.expect("a listener"))
}

fn request(stack: &Stack, method: Method, path: &str) -> RequestBuilder {
    Client::new().request(method, url(stack, path))
}

async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer { status, headers, body: response.bytes().await.expect("a body") }
}

async fn get(stack: &Stack, path: &str) -> Answer {
    send(request(stack, Method::GET, path)).await
}

/// Sends a request to [`IDENTITY`].
async fn infer(stack: &Stack, body: impl Into<reqwest::Body>) -> Answer {
    infer_of(stack, IDENTITY, body).await
}

async fn infer_of(stack: &Stack, model: &str, body: impl Into<reqwest::Body>) -> Answer {
    send(request(stack, Method::POST, &format!("/v2/models/{model}/infer")).body(body)).await
}

/// A request to [`IDENTITY`] with these fields of its input beside name and datatype.
fn x(shape: Value, data: Value) -> Value {
    json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": data}]})
}

/// A request to [`MODEL`] with two users of two treatments each.
fn offers() -> Value {
    let input = |name: &str, datatype: &str, shape: Value, data: Value| json!({"name": name, "datatype": datatype, "shape": shape, "data": data});
    json!({"inputs": [
        input("user", "FP32", json!([2, 1]), json!([0.5, 1])),
        input("treatment", "FP32", json!([2, 2, 2]), json!([[[1, 2], [3, 4]], [[5, 6], [7, 8.5]]])),
        input("treatment_counts", "INT32", json!([2]), json!([2, 2])),
    ]})
}

#[tokio::test]
async fn a_model_answers_with_the_scores_of_its_signature() {
    let stack = start().await;
    let answer = infer_of(&stack, MODEL, offers().to_string()).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let json = answer.json();
    assert_eq!(json["model_name"], MODEL);
    let digest = json["model_version"].as_str().expect("a digest");
    assert_eq!(answer.headers["outrigger-digest"], digest);
    assert_eq!(answer.headers["outrigger-arm"], "live");
    let scores = json!([{"name": "scores", "datatype": "FP32", "shape": [2, 2],
        "data": [3.0, 7.0, 11.0, 15.5]}]);
    assert_eq!(json["outputs"], scores);
    assert_eq!(json.as_object().expect("an object").len(), 3, "no nulls: {json}");
}
