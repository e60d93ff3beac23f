//! Counts the allocations of a prediction on its way to the engine and back.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Response};
use outrigger_core::{ServableId, ServableName, Version};
use outrigger_proto::{
    raw::unary::framed,
    tensorflow::{
        DataType, TensorProto, TensorShapeProto, serving::PredictResponse, tensor_shape_proto::Dim,
    },
};
use outrigger_testkit::{
    allocator::{self, Reporting, allocations},
    engine::{floats, to_proto},
};
use outrigger_tfserving::{Call, Client, Config, Target, wire::decode_tensor};
use prost::Message as _;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    task::JoinSet,
    time::Instant,
};

/// The most allocations allowed per prediction. Nine of them belong to h2 and the HTTP heads: path
/// and authority, the maps of the request's headers, the answer's and its trailers, the timeout.
/// The others: the future, three for the message's pieces, two for the outputs. The tables of
/// header compression may still be growing.
const MOST: f64 = 15.5;

const CALLS: usize = 200;

#[global_allocator]
static COUNTING: Reporting = allocator::COUNTING;

fn main() {
    predictions();
    lists_of_varints();
}

/// The memory for a decoded list is allocated once, by the length of its encoding.
fn lists_of_varints() {
    let [few, many] = [10, 10_000].map(|count| {
        let values = TensorProto {
            dtype: DataType::DtInt64.into(),
            int64_val: vec![300; count],
            tensor_shape: Some(TensorShapeProto {
                dim: vec![Dim { size: count as i64, ..Dim::default() }],
                ..TensorShapeProto::default()
            }),
            ..TensorProto::default()
        };
        let message = Bytes::from(values.encode_to_vec());
        let before = allocations();
        decode_tensor("scores", message, 1 << 20).expect("a tensor");
        allocations() - before
    });
    assert_eq!(few, many, "allocations for a short and for a long list");
}

fn predictions() {
    let address = engine();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("starts");
    let each = runtime.block_on(async {
        let client = Client::connect(Config::new(address)).expect("valid");
        // The first predictions allocate connections, buffers and tables.
        predict(&client).await;
        let before = allocations();
        let built = predict(&client).await;
        (allocations() - before - built) as f64 / CALLS as f64
    });
    assert!(each <= MOST, "{each} allocations a prediction; at most {MOST} are expected");
}

/// Makes predictions; returns the number of allocations of the calls themselves.
async fn predict(client: &Client) -> usize {
    let id = ServableId {
        name: ServableName::of(&"m".parse().expect("a valid name")),
        version: Version(1),
    };
    let target = Arc::new(Target::new(id, "serving_default", [], []));
    let before = allocations();
    let calls: Vec<Call> = (0..CALLS).map(|_| call(&target)).collect();
    let built = allocations() - before;
    for call in calls {
        client.predict(call).await.expect("answered");
    }
    built
}

fn call(target: &Arc<Target>) -> Call {
    Call {
        target: Arc::clone(target),
        inputs: vec![
            floats("user", &[1, 4], [1.0; 4]),
            floats("treatment", &[1, 1000, 20], [0.5; 20_000]),
        ],
        outputs: vec!["scores".into()],
        deadline: Instant::now() + Duration::from_secs(60),
        metadata: Default::default(),
    }
}

/// Starts an engine on a thread of its own; returns its address.
fn engine() -> String {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let serve = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
            sender.send(listener.local_addr().expect("an address")).expect("it is waited for");
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accepts");
                connections.spawn(serve(stream));
            }
        };
        runtime.expect("starts").block_on(serve)
    });
    receiver.recv().expect("it listens").to_string()
}

/// Answers every request.
async fn serve(stream: TcpStream) {
    let scores = to_proto(&floats("scores", &[1, 1000], [0.5; 1000]));
    let outputs = [("scores".to_owned(), scores)].into();
    let message = framed(&PredictResponse { outputs, model_spec: None }.encode_to_vec());
    let mut connection = h2::server::handshake(stream).await.expect("a client");
    let mut answers = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        answers.spawn(answer(request.into_body(), respond, message.clone()));
    }
}

async fn answer(mut request: RecvStream, mut respond: SendResponse<Bytes>, message: Bytes) {
    while let Some(data) = request.data().await {
        let length = data.expect("it arrives").len();
        request.flow_control().release_capacity(length).expect("it was taken");
    }
    let head = Response::builder().header("content-type", "application/grpc").body(());
    let mut stream = respond.send_response(head.expect("valid"), false).expect("open");
    stream.send_data(message, false).expect("open");
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers).expect("open");
}
