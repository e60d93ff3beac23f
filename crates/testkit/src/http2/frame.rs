//! Single frames, sent in any order and at any time: client libraries never send some of these
//! frames, or never in these combinations.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The error code of a regular end of the connection.
const NO_ERROR: u32 = 0;
/// The error code `CANCEL`: the answer is no longer needed.
const CANCEL: u32 = 8;

/// The first byte of a literal header field without indexing, with a new name
const LITERAL: u8 = 0;

/// An HTTP/2 frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// The HEADERS frame of a gRPC request, whose body follows.
    pub fn request(stream: u32, path: &str) -> Self {
        Self::request_within(stream, path, "1H")
    }

    /// The HEADERS frame of a gRPC request with a timeout as gRPC writes it; its body follows.
    pub fn request_within(stream: u32, path: &str, timeout: &str) -> Self {
        Self::request_of(stream, "localhost", path, timeout)
    }

    /// The HEADERS frame of a gRPC request to another authority; its body follows.
    pub fn request_to(stream: u32, authority: &str, path: &str) -> Self {
        Self::request_of(stream, authority, path, "1H")
    }

    fn request_of(stream: u32, authority: &str, path: &str, timeout: &str) -> Self {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", authority),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-timeout", timeout),
        ];
        Self::headers(stream, &fields)
    }

    /// The HEADERS frame of a successful gRPC answer, whose body follows.
    pub fn success(stream: u32) -> Self {
        let fields =
            [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")];
        Self::headers(stream, &fields)
    }

    fn headers(stream: u32, fields: &[(&str, &str)]) -> Self {
        let payload = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        Self { kind: HEADERS, flags: END_HEADERS, stream, payload }
    }

    /// A DATA frame with a whole body.
    pub fn body(stream: u32, payload: Vec<u8>) -> Self {
        Self { kind: DATA, flags: END_STREAM, stream, payload }
    }

    /// An RST_STREAM frame that cancels a request.
    pub fn cancel(stream: u32) -> Self {
        Self { kind: RST_STREAM, flags: 0, stream, payload: CANCEL.to_be_bytes().to_vec() }
    }

    /// A GOAWAY frame: no more requests are accepted, and none on the streams after `last` was
    /// processed.
    pub fn farewell(last: u32) -> Self {
        let payload = [last, NO_ERROR].map(u32::to_be_bytes).concat();
        Self { kind: GOAWAY, flags: 0, stream: 0, payload }
    }

    /// The answer to a ping; `None` for other frames.
    pub(super) fn pong(&self) -> Option<Self> {
        let is_asked = self.kind == PING && self.flags & ACK == 0;
        is_asked.then(|| Self { flags: ACK, ..self.clone() })
    }

    /// Reads the next frame.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        from.read_exact(&mut payload).await?;
        Ok(Self { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The frame's bytes on the wire.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("it is short").to_be_bytes();
        assert_eq!(length[0], 0, "a length has 24 bits");
        let head = [&length[1..], &[self.kind, self.flags], &self.stream.to_be_bytes()];
        [&head.concat()[..], &self.payload].concat()
    }

    pub(super) fn kind(&self) -> u8 {
        self.kind
    }

    /// The frame's stream; 0 is the connection itself.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// The frame without its head.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether this is a HEADERS frame.
    pub fn is_head(&self) -> bool {
        self.kind == HEADERS
    }

    /// Whether this is a DATA frame.
    pub fn is_data(&self) -> bool {
        self.kind == DATA
    }

    /// True if this is the last frame of its request or answer.
    pub fn is_end(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Whether this is a GOAWAY frame.
    pub(super) fn is_farewell(&self) -> bool {
        self.kind == GOAWAY
    }
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![LITERAL], text(name), text(value)].concat()
}

fn text(text: &str) -> Vec<u8> {
    // Lengths from 127 on are encoded in several bytes (RFC 7541, section 5.1).
    assert!(text.len() < 127, "{text} is too long");
    [&[text.len() as u8], text.as_bytes()].concat()
}
