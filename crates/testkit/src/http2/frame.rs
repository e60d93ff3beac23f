//! Frames one by one, in the order and at the moment a test wants them: client
//! libraries never send some of them, and not together.

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

/// Why somebody goes who just does.
const NO_ERROR: u32 = 0;
/// `CANCEL`: the answer is not wanted any more.
const CANCEL: u32 = 8;

/// A literal header field that is not to be remembered, and has a new name
/// ([RFC 7541](https://www.rfc-editor.org/rfc/rfc7541), section 6.2.2).
const LITERAL: u8 = 0;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// The head of a gRPC request, whose body follows.
    pub fn request(stream: u32, path: &str) -> Self {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        Self::headers(stream, &fields)
    }

    /// The head of a gRPC answer that is a success, whose body follows.
    pub fn success(stream: u32) -> Self {
        let fields =
            [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")];
        Self::headers(stream, &fields)
    }

    fn headers(stream: u32, fields: &[(&str, &str)]) -> Self {
        let payload = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        Self { kind: HEADERS, flags: END_HEADERS, stream, payload }
    }

    /// A body, whole.
    pub fn body(stream: u32, payload: Vec<u8>) -> Self {
        Self { kind: DATA, flags: END_STREAM, stream, payload }
    }

    /// That a request is given up.
    pub fn cancel(stream: u32) -> Self {
        Self { kind: RST_STREAM, flags: 0, stream, payload: CANCEL.to_be_bytes().to_vec() }
    }

    /// That no requests are taken any more, and none was looked at on the streams after
    /// `last`.
    pub fn farewell(last: u32) -> Self {
        let payload = [last, NO_ERROR].map(u32::to_be_bytes).concat();
        Self { kind: GOAWAY, flags: 0, stream: 0, payload }
    }

    /// What a ping is to be answered with.
    pub(super) fn pong(&self) -> Option<Self> {
        let is_asked = self.kind == PING && self.flags & ACK == 0;
        is_asked.then(|| Self { flags: ACK, ..self.clone() })
    }

    /// The next frame that comes in.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        from.read_exact(&mut payload).await?;
        Ok(Self { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The frame as it goes over the wire.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("it is short").to_be_bytes();
        assert_eq!(length[0], 0, "a length has 24 bits");
        let head = [&length[1..], &[self.kind, self.flags], &self.stream.to_be_bytes()];
        [&head.concat()[..], &self.payload].concat()
    }

    pub(super) fn kind(&self) -> u8 {
        self.kind
    }

    /// The stream it belongs to; 0 is the connection itself.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether it is the head of a request or of an answer.
    pub fn is_head(&self) -> bool {
        self.kind == HEADERS
    }

    /// Whether it gives a request up.
    pub fn is_cancel(&self) -> bool {
        self.kind == RST_STREAM
    }

    /// Whether it is a piece of a body.
    pub(super) fn is_data(&self) -> bool {
        self.kind == DATA
    }

    /// Whether it is the last one of its answer.
    pub(super) fn is_end(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Whether it says that the peer takes no more requests.
    pub(super) fn is_farewell(&self) -> bool {
        self.kind == GOAWAY
    }
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![LITERAL], text(name), text(value)].concat()
}

fn text(text: &str) -> Vec<u8> {
    // From there on a length takes several bytes.
    assert!(text.len() < 127, "{text} is too long");
    [&[text.len() as u8], text.as_bytes()].concat()
}
