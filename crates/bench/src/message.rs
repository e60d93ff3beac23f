//! Requests made ready before the run, so that sending one is a few pointers.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, Method, Request, Uri, Version, header};

use crate::server::Server;

/// A request as it goes onto the wire, over and over.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// The headers.
    pub(crate) head: Request<()>,
    /// The body, framed.
    pub(crate) body: Bytes,
}

impl Message {
    /// A call of a gRPC method such as `/outrigger.v1.PredictionService/Predict`.
    pub(crate) fn grpc(server: &Server, path: &str, timeout: Duration, message: &[u8]) -> Self {
        let mut head = head(server, path);
        *head.version_mut() = Version::HTTP_2;
        let headers = head.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert("grpc-timeout", text(grpc_timeout(timeout)));
        let length = u32::try_from(message.len()).expect("a message that fits into memory twice");
        let mut body = BytesMut::with_capacity(5 + message.len());
        // Not compressed.
        body.put_u8(0);
        body.put_u32(length);
        body.put_slice(message);
        Self { head, body: body.freeze() }
    }

    /// A prediction over HTTP.
    pub(crate) fn json(server: &Server, timeout: Duration, body: &[u8]) -> Self {
        let mut head = head(server, "/v1/predict");
        // HTTP/1.1 names the host apart from the path.
        let host = head.uri().authority().expect("made with one").to_string();
        *head.uri_mut() = Uri::from_static("/v1/predict");
        let headers = head.headers_mut();
        headers.insert(header::HOST, text(host));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-request-timeout", text(format!("{}ms", timeout.as_millis().max(1))));
        Self { head, body: Bytes::copy_from_slice(body) }
    }
}

fn head(server: &Server, path: &str) -> Request<()> {
    let uri = Uri::builder().scheme(server.scheme()).authority(server.authority());
    let uri = uri.path_and_query(path).build().expect("made of a parsed authority");
    let head = Request::builder().method(Method::POST).uri(uri);
    let mut head = head.body(()).expect("all parts are valid");
    let shown = server.authorization.clone().map(|value| (header::AUTHORIZATION, value));
    head.headers_mut().extend(shown);
    head
}

fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).expect("visible ASCII")
}

/// gRPC's form of a timeout has at most eight digits.
fn grpc_timeout(timeout: Duration) -> String {
    match timeout.as_millis() {
        millis if millis < 100_000_000 => format!("{}m", millis.max(1)),
        _ => format!("{}S", timeout.as_secs().min(99_999_999)),
    }
}
