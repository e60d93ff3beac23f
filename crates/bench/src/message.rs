//! Requests that are encoded before the run, so that sending one copies only pointers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use outrigger_proto::raw::unary::framed;
use outrigger_rpc::{Dial as _, Head};

use crate::server::Server;

/// An encoded request, which is sent many times.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// The headers.
    pub(crate) head: Request<()>,
    /// The body; for gRPC with the message's prefix.
    pub(crate) body: Bytes,
}

impl Message {
    /// A call of a gRPC method, for example `/outrigger.v1.PredictionService/Predict`.
    pub(crate) fn grpc(
        server: &Server,
        path: &'static str,
        timeout: Duration,
        message: &[u8],
    ) -> Self {
        let head = Head::new(server.origin(), path).within(timeout, &authorization(server));
        Self { head, body: framed(message) }
    }

    /// A prediction over HTTP.
    pub(crate) fn json(server: &Server, timeout: Duration, body: &[u8]) -> Self {
        let mut head = Request::post(Uri::from_static("/v1/predict")).body(()).expect("valid");
        // HTTP/1.1 has the host in a header, not in the request line.
        let host = server.origin().authority().expect("an origin has one").to_string();
        let headers = head.headers_mut();
        headers.extend(authorization(server));
        headers.insert(header::HOST, text(host));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-request-timeout", text(format!("{}ms", timeout.as_millis().max(1))));
        Self { head, body: Bytes::copy_from_slice(body) }
    }
}

/// A body in pieces of at most this size, each of which is sent as a frame.
#[derive(Debug, Clone)]
pub(crate) struct Frames {
    rest: Bytes,
    size: usize,
}

impl Frames {
    /// The pieces of a body; `size` is at least 1.
    pub(crate) fn of(body: Bytes, size: usize) -> Self {
        Self { rest: body, size: size.max(1) }
    }
}

impl Iterator for Frames {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = self.size.min(self.rest.len());
        (length > 0).then(|| self.rest.split_to(length))
    }
}

fn authorization(server: &Server) -> HeaderMap {
    server.authorization.clone().map(|value| (header::AUTHORIZATION, value)).into_iter().collect()
}

fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).expect("visible ASCII")
}
