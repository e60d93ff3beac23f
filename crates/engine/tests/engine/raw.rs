//! A gRPC client without timers: it never reports an outcome of its own, only the
//! server's.

use std::{error::Error, path::Path};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::UnixStream, task::JoinSet};
use tonic::Code;

/// Makes one call with a `grpc-timeout`; returns the code of the answer.
pub(crate) async fn call(root: &Path, path: &str, message: &impl Message, timeout: &str) -> Code {
    send(root, path, Full::new(frame(message)), timeout).await
}

/// [`call`] with any body.
pub(crate) async fn send<B>(root: &Path, path: &str, body: B, timeout: &str) -> Code
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    send_with(root, path, ("grpc-timeout", timeout), body).await.0
}

/// Makes one call with this header; returns the code and the body of the answer.
pub(crate) async fn send_with<B>(
    root: &Path,
    path: &str,
    (name, value): (&str, &str),
    body: B,
) -> (Code, Bytes)
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let stream = UnixStream::connect(root.join("engine.sock")).await.expect("it listens");
    let handshake = hyper::client::conn::http2::handshake::<_, _, B>;
    let (mut sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let request = http::Request::post(format!("http://localhost/{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header(name, value)
        .body(body)
        .expect("a valid request");
    let response = sender.send_request(request).await.expect("an answer");
    let headers = response.headers().clone();
    let body = response.into_body().collect().await.expect("a whole answer");
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = trailers.get("grpc-status").or(headers.get("grpc-status")).expect("a status");
    (Code::from_bytes(status.as_bytes()), body.to_bytes())
}

fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.encoded_len().try_into().expect("a small message"));
    message.encode(&mut frame).expect("the buffer grows");
    frame.freeze()
}
