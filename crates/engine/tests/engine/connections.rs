//! Connections: concurrent ones, cancelled calls, large answers, shutdown.

use std::io::Read as _;

use bytes::Bytes;
use flate2::{
    Compression,
    read::{GzEncoder, ZlibEncoder},
};
use futures::{StreamExt as _, stream};
use http_body_util::{Full, StreamBody};
use hyper::body;
use outrigger_engine::Options;
use outrigger_proto::{
    raw::unary,
    tensorflow::{
        TensorProto,
        serving::{
            GetModelStatusRequest, PredictResponse,
            prediction_service_client::PredictionServiceClient,
        },
    },
};
use outrigger_testkit::{
    http2::{Frame, Peer},
    saved_model::affine,
};
use prost::Message as _;
use tokio::{net::UnixStream, task::JoinSet};
use tonic::{Code, transport::Channel};

use crate::{
    harness::{Local, options, request, spec},
    models::{busy, column, identity, size, tensor},
    raw,
};

const PREDICT: &str = "tensorflow.serving.PredictionService/Predict";
const STATUS: &str = "tensorflow.serving.ModelService/GetModelStatus";

async fn connect(local: &Local) -> PredictionServiceClient<Channel> {
    PredictionServiceClient::new(local.connect().await)
}

#[tokio::test]
async fn connections_get_their_own_answers_side_by_side() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let mut callers = JoinSet::new();
    for caller in 0..8u8 {
        let mut client = connect(&local).await;
        callers.spawn(async move {
            for turn in 0..40u8 {
                let sent = f32::from(caller) * 100.0 + f32::from(turn);
                let request = request("half", [("x", column(&[sent]))]);
                let answer = client.predict(request).await.expect("an answer").into_inner();
                assert_eq!(answer.outputs["y"].float_val, [0.5 * sent + 2.0]);
            }
        });
    }
    callers.join_all().await;
    local.stop().await;
}

#[tokio::test]
async fn a_cancelled_call_leaves_its_connection_usable() {
    let local = Local::start().await;
    local.serve("busy", &busy()).await;
    // Once a later call is answered, the server has read the first one.
    tokio::select! {
        biased;
        _ = local.predict(request("busy", [("x", size(1500))])) => panic!("the run takes longer"),
        _ = local.status("busy") => {}
    }
    let answer = local.predict(request("busy", [("x", size(3))])).await.unwrap();
    assert_eq!(answer.outputs["y"].int_val, [3, 3]);
    local.stop().await;
}

#[tokio::test]
async fn many_cancelled_calls_do_not_harm_the_others() {
    const CANCELLED: u32 = 30;
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let stream = UnixStream::connect(local.root.path().join("engine.sock")).await.unwrap();
    let mut caller = Peer::client(stream).await.unwrap();
    let path = format!("/{PREDICT}");
    let cancelled = (0..CANCELLED).map(|number| 1 + 2 * number);
    let cancelled =
        cancelled.flat_map(|stream| [Frame::request(stream, &path), Frame::cancel(stream)]);
    let last = 1 + 2 * CANCELLED;
    let message = request("half", [("x", column(&[3.0]))]).encode_to_vec();
    let body = unary::framed(&message).to_vec();
    let frames: Vec<_> =
        cancelled.chain([Frame::request(last, &path), Frame::body(last, body)]).collect();
    caller.send(&frames).await.unwrap();
    let body = caller.answer(last).await.unwrap();
    let (_, message) = body.split_first_chunk::<{ unary::PREFIX }>().expect("a message");
    let answer = PredictResponse::decode(message).expect("a response");
    assert_eq!(answer.outputs["y"].float_val, [3.5]);
    drop(caller);
    local.stop().await;
}

#[tokio::test]
async fn an_authority_may_be_the_encoded_path_of_the_socket() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let stream = UnixStream::connect(local.root.path().join("engine.sock")).await.unwrap();
    let mut caller = Peer::client(stream).await.unwrap();
    let message = request("half", [("x", column(&[3.0]))]).encode_to_vec();
    let head = Frame::request_to(1, "tmp%2Fengine.sock", &format!("/{PREDICT}"));
    caller.send(&[head, Frame::body(1, unary::framed(&message).to_vec())]).await.unwrap();
    let body = caller.answer(1).await.unwrap();
    let (_, message) = body.split_first_chunk::<{ unary::PREFIX }>().expect("a message");
    let answer = PredictResponse::decode(message).expect("a response");
    assert_eq!(answer.outputs["y"].float_val, [3.5]);
    drop(caller);
    local.stop().await;
}

/// The message, compressed by this encoding, with its prefix.
fn compressed(encoding: &str, message: &[u8]) -> Bytes {
    let level = Compression::fast();
    let mut bytes = Vec::new();
    match encoding {
        "deflate" => ZlibEncoder::new(message, level).read_to_end(&mut bytes),
        _ => GzEncoder::new(message, level).read_to_end(&mut bytes),
    }
    .expect("it is in memory");
    [&unary::compressed_prefix(bytes.len())[..], &bytes].concat().into()
}

#[tokio::test]
async fn requests_may_be_compressed() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let predict = request("half", [("x", column(&[3.0]))]).encode_to_vec();
    let status = GetModelStatusRequest { model_spec: Some(spec("half")) }.encode_to_vec();
    let send = async |path: &str, encoding: &str, body: Bytes| {
        let header = ("grpc-encoding", encoding);
        raw::send_with(local.root.path(), path, header, Full::new(body)).await
    };
    for encoding in ["gzip", "deflate"] {
        let (code, answer) = send(PREDICT, encoding, compressed(encoding, &predict)).await;
        assert_eq!(code, Code::Ok, "{encoding}");
        let answer = PredictResponse::decode(&answer[unary::PREFIX..]).expect("a response");
        assert_eq!(answer.outputs["y"].float_val, [3.5]);
        assert_eq!(send(STATUS, encoding, compressed(encoding, &status)).await.0, Code::Ok);
        assert_eq!(send(STATUS, encoding, unary::framed(&status)).await.0, Code::Ok);
    }
    for (encoding, code) in
        [("zstd", Code::Unimplemented), ("identity", Code::Internal), ("deflate", Code::Internal)]
    {
        for (path, message) in [(PREDICT, &predict), (STATUS, &status)] {
            let (found, _) = send(path, encoding, compressed("gzip", message)).await;
            assert_eq!(found, code, "{encoding}");
        }
    }
    local.stop().await;
}

#[tokio::test]
async fn more_answers_than_the_socket_takes_arrive_whole() {
    let local = Local::start().await;
    local.serve("same", &identity(1)).await;
    let mut client = connect(&local).await;
    // Each answer has other values, so that swapped parts would be detected; the values
    // of a request are not aligned as TensorFlow requires in memory.
    let mut calls = JoinSet::new();
    for caller in 0..12u8 {
        let values: Vec<f32> = (0..500_000).map(|at| at as f32 + f32::from(caller)).collect();
        let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let sent = TensorProto { tensor_content: content.into(), ..tensor(1, &[500_000]) };
        let mut client = client.clone();
        calls.spawn(async move {
            let answer = client.predict(request("same", [("x", sent)])).await.expect("an answer");
            assert!(answer.into_inner().outputs["y"].float_val == values, "answer {caller}");
        });
    }
    calls.join_all().await;
    let refused = client.predict(request("other", [])).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    local.stop().await;
}

#[tokio::test]
async fn an_incomplete_message_is_refused_at_the_deadline() {
    let local = Local::start().await;
    let beginning = body::Frame::data(bytes::Bytes::from_static(b"\0\0\0\0\x09four"));
    let body = stream::iter([Ok::<_, std::convert::Infallible>(beginning)]);
    let body = StreamBody::new(body.chain(stream::pending()));
    let code = raw::send(local.root.path(), PREDICT, body, "20m").await;
    assert_eq!(code, Code::DeadlineExceeded);
    local.stop().await;
}

#[tokio::test]
async fn other_services_and_methods_are_unimplemented() {
    let local = Local::start().await;
    let services = ["tensorflow.serving.PredictionService", "tensorflow.serving.ModelServices"];
    for service in services {
        let body = http_body_util::Full::new(bytes::Bytes::from_static(&[0; 5]));
        let path = format!("{service}/Classify");
        assert_eq!(raw::send(local.root.path(), &path, body, "5S").await, Code::Unimplemented);
    }
    local.stop().await;
}

#[tokio::test]
async fn a_call_in_progress_is_answered_before_the_shutdown() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { grpc_max_threads: 1, ..options(root.path()) };
    let local = Local::with(root, options).await;
    local.serve("busy", &busy()).await;
    let mut client = connect(&local).await;
    let mut other = connect(&local).await;
    let mut calls = JoinSet::new();
    calls.spawn(async move {
        loop {
            match client.predict(request("busy", [("x", size(1500))])).await {
                // The other client has the only permit at the moment.
                Err(status) if status.code() == Code::ResourceExhausted => {}
                answer => break answer,
            }
        }
    });
    // A refusal of this call shows that the first one has the only permit.
    while other.predict(request("busy", [])).await.unwrap_err().code() != Code::ResourceExhausted {}
    local.stop().await;
    let answer = calls.join_next().await.expect("a call").expect("no panic");
    assert_eq!(answer.expect("an answer").into_inner().outputs["y"].int_val, [1500, 1500]);
    let late = other.predict(request("busy", [("x", size(2))])).await.unwrap_err();
    assert_eq!(late.code(), Code::Unavailable);
}
