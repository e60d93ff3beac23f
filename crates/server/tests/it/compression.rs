//! Compressed requests and answers, over gRPC and HTTP.

use bytes::Bytes;
use http::HeaderMap;
use outrigger_compression::{Encoding, Level, compress};
use outrigger_proto::{
    outrigger::v1::{
        BatchPredictRequest, GetModelRequest, PredictRequest, PredictResponse, WatchModelsRequest,
        model_service_client::ModelServiceClient,
        prediction_service_client::PredictionServiceClient,
    },
    raw::unary::{PREFIX, compressed_prefix, framed},
};
use proptest::{
    prelude::{Strategy as _, any, prop},
    test_runner::{Config, TestRunner},
};
use prost::Message as _;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tonic::{Code, Status, codec::CompressionEncoding};

use crate::stack::{MODEL, Stack, channel, reason, request};

const PREDICT: &str = "outrigger.v1.PredictionService/Predict";
const BOTH: (&str, &str) = ("server.compression", "both");

fn compressed(encoding: Encoding, message: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    compress(encoding, Level::Usual, message, &mut compressed).expect("there is memory");
    compressed
}

/// A compressed message with its prefix.
fn marked(compressed: &[u8]) -> Vec<u8> {
    [&compressed_prefix(compressed.len())[..], compressed].concat()
}

/// Sends a body over plain HTTP/2 with these headers; returns the headers and the body of the
/// answer.
async fn call(
    stack: &Stack,
    method: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> (HeaderMap, Bytes) {
    let client = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    let url = format!("http://{}/{method}", stack.addresses.grpc);
    let call = client.post(url).header("content-type", "application/grpc").header("te", "trailers");
    let call = headers.iter().fold(call, |call, (name, value)| call.header(*name, *value));
    let answer = call.body(body).send().await.expect("an answer");
    (answer.headers().clone(), answer.bytes().await.expect("a body"))
}

fn refused(headers: &HeaderMap) -> Status {
    Status::from_header_map(headers).expect("a status in the headers")
}

async fn post(
    stack: &Stack,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> (StatusCode, HeaderMap, Bytes) {
    let call = reqwest::Client::new().post(stack.http("/v1/predict"));
    let call = headers.iter().fold(call, |call, (name, value)| call.header(*name, *value));
    let answer = call.body(body).send().await.expect("an answer");
    let (status, headers) = (answer.status(), answer.headers().clone());
    (status, headers, answer.bytes().await.expect("a body"))
}

fn many(treatments: u16) -> PredictRequest {
    let values: Vec<_> = (0..treatments).map(|at| (f32::from(at), 0.5)).collect();
    request(&values)
}

fn document(treatments: u16) -> Vec<u8> {
    let treatments: Vec<_> =
        (0..treatments).map(|at| json!({"features": {"t0": at, "t1": 0.5}})).collect();
    let model = json!({"name": MODEL});
    json!({"model": model, "user": {"u0": 0.5}, "treatments": treatments}).to_string().into()
}

#[tokio::test]
async fn clients_that_compress_get_the_answers_of_those_that_do_not() {
    for setting in ["requests", "both"] {
        let settings = [("server.compression", setting), ("server.max_treatments", "30000")];
        let stack = Stack::with(&settings).await;
        for tonics in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
            let mut plain = stack.predictions();
            let mut client = PredictionServiceClient::new(channel(stack.addresses.grpc))
                .send_compressed(tonics)
                .accept_compressed(tonics);
            // The last is decompressed on the threads for heavy requests.
            for treatments in [0, 1, 1000, 30_000] {
                let request = many(treatments);
                let expected = plain.predict(request.clone()).await.unwrap().into_inner();
                let answer = client.predict(request).await.unwrap().into_inner();
                assert_eq!(answer, expected, "{treatments}");
            }
            let batch = BatchPredictRequest {
                requests: [700, 3]
                    .map(|count| PredictRequest { model: None, ..many(count) })
                    .into(),
                model: many(0).model,
                ..Default::default()
            };
            let expected = plain.batch_predict(batch.clone()).await.unwrap().into_inner();
            assert_eq!(client.batch_predict(batch).await.unwrap().into_inner(), expected);
            let expected = plain.explain(many(100)).await.unwrap().into_inner();
            assert_eq!(client.explain(many(100)).await.unwrap().into_inner(), expected);
        }
    }
}

#[tokio::test]
async fn json_may_be_compressed() {
    let stack = Stack::start().await;
    for treatments in [1, 3000] {
        let body = document(treatments);
        let (status, headers, expected) = post(&stack, &[], body.clone()).await;
        assert_eq!(status, 200);
        assert!(!headers.contains_key("vary"), "answers are not compressed by default");
        for encoding in Encoding::ALL {
            let asked = [("content-encoding", encoding.name()), ("accept-encoding", "gzip, zstd")];
            let (status, headers, answer) = post(&stack, &asked, compressed(encoding, &body)).await;
            assert_eq!((status, answer), (StatusCode::OK, expected.clone()), "{encoding:?}");
            assert!(!headers.contains_key("content-encoding"));
        }
    }
}

#[test]
fn any_request_has_the_same_answer_compressed_and_plain() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stack = runtime.block_on(Stack::with(&[BOTH]));
    let value = prop::num::f32::NORMAL | prop::num::f32::ZERO;
    let treatments = prop::collection::vec((value, value), 0..300);
    let encoding = any::<bool>().prop_map(|is| if is { Encoding::Gzip } else { Encoding::Zstd });
    let mut runner = TestRunner::new(Config { cases: 64, ..Config::default() });
    let check = |(treatments, encoding, cut): (Vec<(f32, f32)>, Encoding, u8)| {
        let mut message = request(&treatments).encode_to_vec();
        // Some of them are malformed.
        message.truncate(message.len() - usize::from(cut % 3));
        let asked = [("grpc-encoding", encoding.name())];
        let body = marked(&compressed(encoding, &message));
        let both = async {
            let plain = call(&stack, PREDICT, &[], framed(&message).to_vec()).await;
            (plain, call(&stack, PREDICT, &asked, body).await)
        };
        let (plain, compressed) = runtime.block_on(both);
        assert_eq!(compressed.1, plain.1);
        let status = |headers: &HeaderMap| headers.get("grpc-message").cloned();
        assert_eq!(status(&compressed.0), status(&plain.0));
        Ok(())
    };
    runner.run(&(treatments, encoding, any::<u8>()), check).unwrap();
}

#[tokio::test]
async fn answers_are_compressed_if_that_is_set_accepted_and_pays() {
    let stack = Stack::with(&[BOTH]).await;
    let long = framed(&many(2000).encode_to_vec()).to_vec();
    let (_, plain) = call(&stack, PREDICT, &[], long.clone()).await;
    for (accepted, expected) in [
        ("identity", None),
        ("identity, deflate", Some("deflate")),
        ("identity, deflate, gzip", Some("gzip")),
        ("gzip, zstd", Some("zstd")),
    ] {
        let asked = [("grpc-accept-encoding", accepted)];
        let (headers, answer) = call(&stack, PREDICT, &asked, long.clone()).await;
        let encoding = headers.get("grpc-encoding").map(|name| name.to_str().unwrap());
        assert_eq!(encoding, expected, "{accepted}");
        match expected {
            None => assert_eq!(answer, plain),
            Some(_) => {
                assert_eq!(answer[..PREFIX], compressed_prefix(answer.len() - PREFIX));
                assert!(answer.len() < plain.len());
            }
        }
    }
    let asked = [("grpc-accept-encoding", "gzip")];
    let short = framed(&many(5).encode_to_vec()).to_vec();
    let (headers, answer) = call(&stack, PREDICT, &asked, short).await;
    assert!(!headers.contains_key("grpc-encoding"), "it fits in a packet");
    PredictResponse::decode(answer.slice(PREFIX..)).unwrap();
}

#[tokio::test]
async fn json_is_compressed_by_the_weights_of_its_caller() {
    let stack = Stack::with(&[BOTH]).await;
    let (_, headers, plain) = post(&stack, &[], document(500)).await;
    assert_eq!(headers["vary"], "accept-encoding");
    for (accepted, expected) in [
        ("gzip;q=0", None),
        ("br", None),
        ("gzip", Some("gzip")),
        ("gzip;q=1, zstd;q=0.5", Some("gzip")),
        ("*", Some("zstd")),
    ] {
        let asked = [("accept-encoding", accepted)];
        let (status, headers, answer) = post(&stack, &asked, document(500)).await;
        assert_eq!(
            (status, &headers["vary"]),
            (StatusCode::OK, &"accept-encoding".parse().unwrap())
        );
        let encoding = headers.get("content-encoding").map(|name| name.to_str().unwrap());
        assert_eq!(encoding, expected, "{accepted}");
        match expected {
            None => assert_eq!(answer, plain),
            Some(_) => assert!(answer.len() < plain.len() / 2, "{}", answer.len()),
        }
    }
    let (_, headers, _) = post(&stack, &[("accept-encoding", "gzip")], document(2)).await;
    assert!(!headers.contains_key("content-encoding"), "it fits in a packet");
}

#[tokio::test]
async fn an_encoding_that_is_not_accepted_is_refused_with_those_that_are() {
    for (setting, encoding, accepted) in
        [("requests", "snappy", "identity, gzip, zstd, deflate"), ("none", "gzip", "identity")]
    {
        let stack = Stack::with(&[("server.compression", setting)]).await;
        let message = many(3).encode_to_vec();
        let asked = [("grpc-encoding", encoding)];
        let body = marked(&compressed(Encoding::Gzip, &message));
        for method in [PREDICT, "outrigger.v1.ModelService/GetModel"] {
            let (headers, _) = call(&stack, method, &asked, body.clone()).await;
            let status = refused(&headers);
            assert_eq!(status.code(), Code::Unimplemented, "{method}");
            assert_eq!(reason(&status), "ENCODING_UNSUPPORTED");
            assert!(status.message().contains(accepted), "{status}");
            assert_eq!(headers["grpc-accept-encoding"], accepted);
        }
        // The message is not compressed, whatever the header says.
        let (headers, _) = call(&stack, PREDICT, &asked, framed(&message).to_vec()).await;
        assert!(Status::from_header_map(&headers).is_none(), "{headers:?}");

        let asked = [("content-encoding", encoding)];
        let (status, headers, answer) = post(&stack, &asked, document(3)).await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(headers["accept-encoding"], accepted);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["error"]["reason"], "ENCODING_UNSUPPORTED");
        let (status, ..) = post(&stack, &[("content-encoding", "identity")], document(3)).await;
        assert_eq!(status, 200);
    }
    let stack = Stack::start().await;
    let twice = compressed(Encoding::Gzip, &compressed(Encoding::Gzip, &document(3)));
    let (status, ..) = post(&stack, &[("content-encoding", "gzip, gzip")], twice).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn messages_that_cannot_be_decompressed_are_malformed() {
    let stack = Stack::start().await;
    let whole = compressed(Encoding::Gzip, &many(3).encode_to_vec());
    let gzip = [("grpc-encoding", "gzip")];
    for (asked, body) in [
        (&[][..], marked(&whole)),
        (&[("grpc-encoding", "identity")], marked(&whole)),
        (&[("grpc-encoding", "zstd")], marked(&whole)),
        (&gzip, marked(&whole[..whole.len() - 1])),
        (&gzip, marked(&[&whole[..], b"x"].concat())),
        (&gzip, marked(b"")),
        (&gzip, marked(&whole).into_iter().chain([0]).collect()),
        (&gzip, [&[2][..], &marked(&whole)[1..]].concat()),
    ] {
        let (headers, _) = call(&stack, PREDICT, asked, body).await;
        assert_eq!(reason(&refused(&headers)), "REQUEST_MALFORMED", "{headers:?}");
    }
    for body in [b"".to_vec(), document(3), compressed(Encoding::Gzip, b"")] {
        let (status, _, answer) = post(&stack, &[("content-encoding", "gzip")], body).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (status.as_u16(), &answer["error"]["reason"]),
            (400, &json!("REQUEST_MALFORMED"))
        );
    }
}

#[tokio::test]
async fn what_is_too_large_when_decompressed_is_refused_as_it_grows() {
    let small = ("server.max_message", "1MiB");
    // One caller gets half of 76.8 MiB.
    let poor = ("server.memory", "256MiB");
    for (setting, size, part) in [(small, 3 << 20, "1048576"), (poor, 60 << 20, "requests")] {
        let stack = Stack::with(&[setting]).await;
        for encoding in Encoding::ALL {
            let bomb = compressed(encoding, &vec![b' '; size]);
            let asked = [("grpc-encoding", encoding.name())];
            let (headers, _) = call(&stack, PREDICT, &asked, marked(&bomb)).await;
            let status = refused(&headers);
            assert_eq!(reason(&status), "TOO_LARGE", "{encoding:?}");
            assert!(status.message().contains(part), "{status}");
            let asked = [("content-encoding", encoding.name())];
            let (status, _, answer) = post(&stack, &asked, bomb).await;
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!((status.as_u16(), &answer["error"]["reason"]), (400, &json!("TOO_LARGE")));
        }
        stack.predictions().predict(many(3)).await.expect("others are served");
    }
}

#[tokio::test]
async fn the_deadline_ends_the_work() {
    let stack = Stack::start().await;
    // Millions of frames without content.
    let empty = compressed(Encoding::Zstd, b"").repeat(4 << 20);
    let asked = [("grpc-encoding", "zstd"), ("grpc-timeout", "300m")];
    let (headers, _) = call(&stack, PREDICT, &asked, marked(&empty)).await;
    assert_eq!(reason(&refused(&headers)), "DEADLINE");
    let asked = [("content-encoding", "zstd"), ("x-request-timeout", "300ms")];
    let (status, ..) = post(&stack, &asked, empty).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn queries_may_be_compressed_too() {
    let stack = Stack::start().await;
    stack.predictions().predict(many(1)).await.unwrap();
    let query = GetModelRequest { name: MODEL.to_owned() };
    for tonics in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
        let client = ModelServiceClient::new(channel(stack.addresses.grpc));
        let mut client = client.send_compressed(tonics);
        let model = client.get_model(query.clone()).await.unwrap().into_inner();
        assert_eq!(model.model.unwrap().name, MODEL);
        let mut updates =
            client.watch_models(WatchModelsRequest::default()).await.unwrap().into_inner();
        updates.message().await.unwrap().expect("the first state");
    }
    let long = GetModelRequest { name: "x".repeat(1 << 20) };
    let bomb = marked(&compressed(Encoding::Gzip, &long.encode_to_vec()));
    let asked = [("grpc-encoding", "gzip")];
    let (headers, _) = call(&stack, "outrigger.v1.ModelService/GetModel", &asked, bomb).await;
    assert_eq!(reason(&refused(&headers)), "TOO_LARGE");
}
