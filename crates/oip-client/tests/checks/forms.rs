//! Checks 15 to 21: binary tensors and compression.

use std::io::Write as _;

use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use http::header::{CONNECTION, CONTENT_ENCODING};
use outrigger_oip_client::{Class, Form, HostConfig};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use serde_json::{Value, json};

use crate::harness::{config, connect, fault, of, request, rest, tensor, values};

const LENGTH: &str = "inference-header-content-length";

fn is_binary(seen: &Seen) -> bool {
    seen.headers.contains_key(LENGTH)
}

/// The document of a request.
fn document(seen: &Seen) -> Value {
    let length = seen.headers.get(LENGTH).map(|it| it.to_str().expect("text"));
    let length = length.map_or(seen.body.len(), |it| it.parse().expect("a number"));
    serde_json::from_slice(&seen.body[..length]).expect("JSON")
}

#[tokio::test]
async fn check_15_binary_answers_are_known_by_their_header() {
    let (_server, client) = rest(|seen| {
        let answer = identity::binary(seen);
        let Answer::Http(status, mut headers, body) = answer else { panic!("HTTP") };
        headers.remove("content-type");
        Answer::Http(status, headers, body)
    })
    .await;
    let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
    assert_eq!((reply.form, values(&reply)), (Form::Binary, vec![1.0, 2.0]));
}

#[tokio::test]
async fn check_16_an_output_without_elements_needs_no_header_and_no_data() {
    let (_server, client) = rest(|seen| {
        let id = document(seen)["id"].clone();
        let output = json!({
            "name": "OUT_x",
            "datatype": "FP32",
            "shape": [0, 1],
            "parameters": {"binary_data_size": 0},
        });
        Answer::json(200, json!({"id": id, "model_name": "m", "outputs": [output]}).to_string())
    })
    .await;
    let reply = client.infer(&request(&[])).await.expect("an answer");
    assert_eq!((&*reply.outputs[0].shape, reply.outputs[0].data.len()), (&[0, 1][..], 0));
}

#[tokio::test]
async fn check_17_binary_outputs_and_others_may_be_mixed() {
    let (_server, client) = rest(|seen| {
        identity::binary_with(seen, |reply| {
            let mut mixed = reply["outputs"][0].clone();
            mixed["name"] = json!("OUT_y");
            mixed["data"] = json!([7.5]);
            mixed.as_object_mut().expect("an output").remove("parameters");
            reply["outputs"].as_array_mut().expect("outputs").insert(0, mixed);
        })
    })
    .await;
    let mut request = request(&[1.0]);
    request.outputs = vec!["OUT_x".into(), "OUT_y".into()];
    let reply = client.infer(&request).await.expect("an answer");
    assert_eq!(values(&reply), [1.0]);
    assert_eq!(&reply.outputs[1].data[..], 7.5_f32.to_le_bytes());
}

#[tokio::test]
async fn check_18_a_server_may_answer_in_json_all_the_same() {
    let (_server, client) = rest(|seen| {
        let answer = document(seen);
        let (id, name) = (&answer["id"], "OUT_x");
        let output = json!({"name": name, "datatype": "FP32", "shape": [2, 1], "data": [1, 2]});
        Answer::json(200, json!({"id": id, "model_name": "m", "outputs": [output]}).to_string())
    })
    .await;
    let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
    assert_eq!(values(&reply), [1.0, 2.0]);
}

#[tokio::test]
async fn check_19_each_requested_output_says_its_form() {
    let (server, client) = rest(identity::binary).await;
    let inputs = vec![tensor("a", &[1], &[1.0]), tensor("b", &[1], &[2.0])];
    client.infer(&of(inputs)).await.expect("an answer");
    let seen = server.seen();
    let document = document(&seen[0]);
    let outputs = document["outputs"].as_array().expect("outputs");
    assert_eq!(outputs.len(), 2);
    for output in outputs {
        assert_eq!(output["parameters"]["binary_data"], json!(true));
    }
    let mut all = request(&[1.0]);
    all.outputs.clear();
    client.infer(&all).await.expect("an answer");
    let seen = server.seen();
    let document = self::document(&seen[1]);
    assert_eq!(document["parameters"]["binary_data_output"], json!(true));
}

#[tokio::test]
async fn check_20_json_follows_refused_binary_tensors_and_is_remembered() {
    let (server, client) = rest(identity::json).await;
    for _ in 0..3 {
        let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
        assert_eq!(reply.form, Form::Json);
    }
    let forms: Vec<_> = server.seen().iter().map(is_binary).collect();
    assert_eq!(forms, [true, false, false, false]);
    // Until a form is known, each message has a connection of its own.
    let closes = |seen: &Seen| seen.headers.contains_key(CONNECTION);
    let closing: Vec<_> = server.seen().iter().map(closes).collect();
    assert_eq!(closing, [true, true, false, false]);
}

#[tokio::test]
async fn check_20_a_failure_in_every_form_decides_nothing() {
    let (server, client) = rest(|_| Answer::of(500, None, "Internal Server Error")).await;
    assert_eq!(fault(&client).await.class, Class::Ambiguous);
    server.script(identity::binary);
    let reply = client.infer(&request(&[1.0])).await.expect("an answer");
    assert_eq!(reply.form, Form::Binary);
}

#[tokio::test]
async fn json_is_not_sent_for_numbers_that_it_cannot_write() {
    let (server, client) = rest(identity::json).await;
    client.infer(&request(&[1.0])).await.expect("an answer");
    let before = server.seen().len();
    let failure = client.infer(&request(&[f32::NAN])).await.expect_err("refused");
    assert_eq!((failure.class, server.seen().len()), (Class::Refused, before));
}

#[tokio::test]
async fn a_path_prefix_headers_and_a_token_are_sent() {
    let server = Server::start(Protocol::Http1, identity::binary).await;
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "secret\n").expect("written");
    let host = HostConfig {
        prefix: "/hosted".to_owned(),
        headers: vec![("x-tenant".to_owned(), "a".to_owned())],
        token_file: Some(token.path().to_owned()),
        ..HostConfig::new(format!("http://{}", server.address()))
    };
    let client = connect(outrigger_oip_client::Config { hosts: vec![host], ..config(&[]) });
    client.infer(&request(&[1.0])).await.expect("an answer");
    let seen = server.seen();
    assert_eq!(seen[0].call, "POST /hosted/v2/models/m/infer");
    assert_eq!(seen[0].headers["x-tenant"], "a");
    assert_eq!(seen[0].headers["authorization"], "Bearer secret");
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("written");
    encoder.finish().expect("finished")
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("written");
    encoder.finish().expect("finished")
}

#[tokio::test]
async fn check_21_compressed_answers_are_read_and_requests_are_not_compressed() {
    type Compress = fn(&[u8]) -> Vec<u8>;
    let encodings: [(&str, Compress); 2] = [("gzip", gzip), ("deflate", zlib)];
    for (name, compress) in encodings {
        let (server, client) = rest(move |seen| {
            let Answer::Http(status, headers, body) = identity::binary(seen) else {
                panic!("HTTP")
            };
            Answer::Http(status, headers, compress(&body).into()).with("content-encoding", name)
        })
        .await;
        let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
        assert_eq!(values(&reply), [1.0, 2.0], "{name}");
        assert!(server.seen().iter().all(|seen| !seen.headers.contains_key(CONTENT_ENCODING)));
    }
}

#[tokio::test]
async fn check_21_a_compressed_answer_is_bounded() {
    let bomb = gzip(&vec![0; 1 << 20]);
    let server = Server::start(Protocol::Http1, move |_| {
        Answer::json(200, bomb.clone()).with("content-encoding", "gzip")
    })
    .await;
    let client = connect(outrigger_oip_client::Config { max_answer: 4096, ..config(&[&server]) });
    let failure = fault(&client).await;
    assert_eq!(failure.message, "it is larger than 4096 bytes");
}
