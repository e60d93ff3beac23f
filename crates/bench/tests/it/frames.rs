//! The HTTP/2 frames of requests, as they are on the wire.

use std::{net::SocketAddr, thread};

use bytes::Bytes;
use outrigger_bench::{Form, Job, Load};
use outrigger_proto::raw::unary::framed;
use outrigger_testkit::http2::Peer;
use tokio::{net::TcpListener, runtime::Builder};

use crate::servers::{ControlPlane, Package, model_job, run};

/// The largest frame that HTTP/2 allows if a server announces no other limit, bytes.
const ALLOWED: usize = 16 << 10;

/// A server that reads one request and then closes the connection. It returns the payloads of the
/// request's DATA frames.
fn one_request() -> (SocketAddr, thread::JoinHandle<Vec<Vec<u8>>>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let received = async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut peer = Peer::server(stream).await.expect("HTTP/2");
        let mut pieces = Vec::new();
        loop {
            let frame = peer.next().await.expect("a frame");
            if frame.is_data() {
                pieces.push(frame.payload().to_vec());
            }
            if frame.is_end() {
                return pieces;
            }
        }
    };
    (address, thread::spawn(move || runtime.block_on(received)))
}

/// The DATA frames of a request, sent in frames of this size.
fn pieces(frame: usize, treatments: usize) -> Vec<Vec<u8>> {
    let (address, received) = one_request();
    let shape = outrigger_bench::Shape { treatments, users: 1, distinct: 1, seed: 1 };
    let source = outrigger_bench::Source::Generated(shape);
    let job = model_job(address, &Package::linear(), Some(Form::KeyValue), Load::Max);
    let refused = outrigger_bench::run(&Job { frame, source, ..job }, &mut |_| {});
    refused.expect_err("the connection is closed without an answer");
    received.join().expect("a request")
}

fn lengths(pieces: &[Vec<u8>]) -> Vec<usize> {
    pieces.iter().map(Vec::len).collect()
}

#[test]
fn a_request_goes_out_in_frames_of_the_given_size() {
    let whole = pieces(ALLOWED, 3).concat();
    assert!(whole.len() < ALLOWED);
    let small = pieces(50, 3);
    assert_eq!(small.concat(), whole);
    let (last, full) = small.split_last().expect("frames");
    assert_eq!(full.len(), (whole.len() - 1) / 50);
    assert!(full.iter().all(|piece| piece.len() == 50), "{:?}", lengths(&small));
    assert!((1..=50).contains(&last.len()));
}

#[test]
fn a_server_that_accepts_only_smaller_frames_gets_those() {
    let large = lengths(&pieces(1 << 20, 1000));
    assert!(large.len() > 2, "{large:?}");
    assert_eq!(large[..2], [ALLOWED; 2]);
    assert!(large.iter().all(|length| *length <= ALLOWED), "{large:?}");
}

#[test]
fn requests_and_answers_are_saved_as_they_are_on_the_wire() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let directory = tempfile::tempdir().expect("a directory");
    let job = model_job(server.grpc, &package, Some(Form::Columnar), Load::Max);
    run(&Job { save: Some(directory.path().to_owned()), ..job });
    let saved = |name: &str| std::fs::read(directory.path().join(name)).expect(name);
    let [first, second] = [saved("request-0.binpb"), saved("request-1.binpb")];
    assert_eq!(server.messages()[..2], [Bytes::from(first.clone()), second.into()]);
    assert_eq!(saved("answer-0.binpb"), saved("answer-1.binpb"));
    // The saved request is what the frames hold, without gRPC's prefix.
    let (address, received) = one_request();
    let job = model_job(address, &package, Some(Form::Columnar), Load::Max);
    outrigger_bench::run(&job, &mut |_| {}).expect_err("the connection is closed");
    assert_eq!(received.join().expect("a request").concat(), framed(&first));
}
