//! Requests that are encoded before the run, so that sending one copies only pointers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header};
use outrigger_compression::{Encoding, Level, compress};
use outrigger_oip::rest::HEADER_LENGTH;
use outrigger_proto::raw::unary::{PREFIX, compressed_prefix, framed};
use outrigger_rpc::{Dial as _, Head};

use crate::{client::Protocol, outgoing::Outgoing, server::Server};

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

    /// A prediction over HTTP: JSON, or JSON with binary tensors behind it.
    pub(crate) fn post(server: &Server, timeout: Duration, path: Uri, request: &Outgoing) -> Self {
        let mut head = Request::post(path).body(()).expect("valid");
        let headers = head.headers_mut();
        headers.extend(over_http(server, timeout));
        let content_type = match request.json {
            None => "application/json",
            Some(length) => {
                headers.insert(HEADER_LENGTH, length.into());
                "application/octet-stream"
            }
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { head, body: request.body.clone() }
    }

    /// A question over HTTP.
    pub(crate) fn get(server: &Server, timeout: Duration, path: Uri) -> Self {
        let mut head = Request::get(path).body(()).expect("valid");
        head.headers_mut().extend(over_http(server, timeout));
        Self { head, body: Bytes::new() }
    }

    /// The request with its message compressed as clients do it by default. Over gRPC, the body has
    /// a prefix.
    pub(crate) fn compressed(mut self, protocol: Protocol, encoding: Encoding) -> Self {
        let (name, prefix) = match protocol {
            Protocol::Grpc => (HeaderName::from_static("grpc-encoding"), PREFIX),
            Protocol::Http1 => (header::CONTENT_ENCODING, 0),
        };
        let mut body = vec![0; prefix];
        compress(encoding, Level::Usual, &self.body[prefix..], &mut body).expect("there is memory");
        let length = compressed_prefix(body.len() - prefix);
        body[..prefix].copy_from_slice(&length[..prefix]);
        self.head.headers_mut().insert(name, HeaderValue::from_static(encoding.name()));
        self.body = body.into();
        self
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

/// The headers of all requests over HTTP/1.1, which has the host in one of them instead of the
/// request line.
fn over_http(server: &Server, timeout: Duration) -> HeaderMap {
    let host = server.origin().authority().expect("an origin has one").to_string();
    let mut headers = authorization(server);
    headers.insert(header::HOST, text(host));
    headers.insert("x-request-timeout", text(format!("{}ms", timeout.as_millis().max(1))));
    headers
}

fn authorization(server: &Server) -> HeaderMap {
    server.authorization.clone().map(|value| (header::AUTHORIZATION, value)).into_iter().collect()
}

fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).expect("visible ASCII")
}

#[cfg(test)]
mod tests {
    use outrigger_compression::Decompressor;
    use outrigger_rpc::Endpoint;

    use super::*;
    use crate::outgoing::Expected;

    fn decompressed(encoding: Encoding, bytes: Bytes) -> Bytes {
        let mut decompressor = Decompressor::new(encoding, bytes, 1 << 20);
        while !decompressor.step(|_| Ok(())).unwrap() {}
        decompressor.finish().freeze()
    }

    #[test]
    fn a_compressed_request_names_its_encoding() {
        let server: Server = "127.0.0.1:1".parse::<Endpoint>().unwrap().into();
        let (timeout, body) = (Duration::from_secs(1), b"scores of treatments".repeat(50));
        for encoding in Encoding::ALL {
            let grpc = Message::grpc(&server, "/package.Service/Method", timeout, &body)
                .compressed(Protocol::Grpc, encoding);
            assert_eq!(grpc.head.headers()["grpc-encoding"], encoding.name());
            let (prefix, message) = grpc.body.split_at(PREFIX);
            assert_eq!(prefix, compressed_prefix(message.len()));
            assert_eq!(decompressed(encoding, grpc.body.slice(PREFIX..)), body);

            let request = Outgoing::of(body.clone().into(), Expected::Scores(1..=1));
            let json = Message::post(&server, timeout, Uri::from_static("/v1/predict"), &request)
                .compressed(Protocol::Http1, encoding);
            assert_eq!(json.head.headers()["content-encoding"], encoding.name());
            assert!(json.body.len() < body.len());
            assert_eq!(decompressed(encoding, json.body), body);
        }
    }
}
