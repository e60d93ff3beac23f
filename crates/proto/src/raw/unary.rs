//! Unary gRPC calls over HTTP bodies: one message in, one message out.
//!
//! tonic copies each message into a buffer of its own. Requests have half a megabyte, so
//! [`read`] returns the bytes of the HTTP/2 frame itself, and [`Reply`] sends a message
//! from the buffer in which it was written.
//!
//! The format is gRPC's "Length-Prefixed-Message": a byte that is 1 if the message is
//! compressed, its length in four bytes (big endian), the message.

mod assembly;

use std::{
    fmt,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};

pub use self::assembly::Assembly;

/// Length of the prefix: the compression flag and the message's length.
pub const PREFIX: usize = 5;

/// Largest buffer that is allocated from a message's declared length alone.
const TRUSTED: usize = 1 << 20;

/// The reason why a call's message could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The message is compressed, although the server has offered no encoding.
    #[error("the message is compressed, which is not supported")]
    Compressed,
    /// The message is larger than the limit.
    #[error("the message has {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// Size of the message in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The body ended before the message was complete.
    #[error("the body ended before the message did")]
    Cut,
    /// The body has more than one message.
    #[error("more than one message was sent")]
    Surplus,
    /// There is no room for the message.
    #[error("there is no room for the message")]
    NotAdmitted,
    /// Reading the body failed.
    #[error("the body broke off: {0}")]
    Broken(String),
}

/// Reads the message of a unary call, of at most `limit` bytes. A message that arrives in
/// one frame is not copied.
///
/// # Errors
/// The body is not exactly one uncompressed message within the limit.
pub async fn read<B>(body: B, limit: usize) -> Result<Bytes, Unreadable>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    read_admitted(body, limit, |_, _| true).await
}

/// As [`read`]. `admit` is called with the number of bytes that have arrived, and with
/// the message's length once its prefix has; it returns false to stop.
///
/// # Errors
/// As [`read`], and [`Unreadable::NotAdmitted`].
pub async fn read_admitted<B>(
    body: B,
    limit: usize,
    mut admit: impl FnMut(usize, Option<usize>) -> bool,
) -> Result<Bytes, Unreadable>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let mut body = pin!(body);
    let mut message = Message::default();
    while let Some(data) = data(body.as_mut()).await? {
        if !admit(message.arrived().len() + data.len(), message.size()?) {
            return Err(Unreadable::NotAdmitted);
        }
        message.push(data, limit)?;
    }
    message.finish()
}

/// The next data frame of a body; `None` at the end.
async fn data<B>(mut body: Pin<&mut B>) -> Result<Option<Bytes>, Unreadable>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    while !body.is_end_stream() {
        let frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await;
        match frame {
            None => break,
            Some(Err(error)) => return Err(Unreadable::Broken(error.to_string())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                Err(_trailers) => {}
            },
        }
    }
    Ok(None)
}

/// A length-prefixed message that is being received.
#[derive(Debug, Default)]
pub struct Message {
    /// The first frame, if it is the only one so far.
    first: Bytes,
    /// The concatenation of all frames, if there are several.
    rest: BytesMut,
}

impl Message {
    /// Adds received data. The first frame is not copied.
    ///
    /// # Errors
    /// As soon as the received bytes show one: the message is compressed, too large, or
    /// followed by more data.
    pub fn push(&mut self, data: Bytes, limit: usize) -> Result<(), Unreadable> {
        if self.arrived().is_empty() {
            self.first = data;
        } else {
            self.append(&data);
        }
        let Some(size) = self.size()? else { return Ok(()) };
        if size > limit {
            return Err(Unreadable::TooLarge { size, limit });
        }
        match self.arrived().len() > PREFIX + size {
            true => Err(Unreadable::Surplus),
            false => Ok(()),
        }
    }

    fn append(&mut self, data: &[u8]) {
        if self.rest.is_empty() {
            let whole = self.size().ok().flatten().map_or(0, |size| size + PREFIX);
            self.rest.reserve(whole.min(TRUSTED).max(self.first.len() + data.len()));
            self.rest.put_slice(&std::mem::take(&mut self.first));
        }
        self.rest.put_slice(data);
    }

    fn arrived(&self) -> &[u8] {
        if self.rest.is_empty() { &self.first } else { &self.rest }
    }

    /// The message's length, once its prefix has arrived.
    fn size(&self) -> Result<Option<usize>, Unreadable> {
        match *self.arrived() {
            [0, a, b, c, d, ..] => Ok(Some(u32::from_be_bytes([a, b, c, d]) as usize)),
            [] | [0, ..] => Ok(None),
            _ => Err(Unreadable::Compressed),
        }
    }

    /// The complete message without its prefix.
    ///
    /// # Errors
    /// [`Unreadable::Cut`] if the message is incomplete.
    pub fn finish(self) -> Result<Bytes, Unreadable> {
        let whole = if self.rest.is_empty() { self.first } else { self.rest.freeze() };
        match whole.split_first_chunk::<PREFIX>() {
            Some((&[_, a, b, c, d], message))
                if message.len() == u32::from_be_bytes([a, b, c, d]) as usize =>
            {
                Ok(whole.slice(PREFIX..))
            }
            _ => Err(Unreadable::Cut),
        }
    }
}

/// The prefix of a message of `length` bytes.
///
/// # Panics
/// The length is 4 GiB or more, which gRPC cannot represent.
pub fn prefix(length: usize) -> [u8; PREFIX] {
    let length = u32::try_from(length).expect("a message has less than 4 GiB");
    let [a, b, c, d] = length.to_be_bytes();
    [0, a, b, c, d]
}

/// A message with its prefix.
pub fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_slice(&prefix(message.len()));
    framed.put_slice(message);
    framed.freeze()
}

/// The body of a successful response: one message, then the status in the trailers.
#[derive(Debug)]
pub struct Reply {
    next: Next,
}

#[derive(Debug)]
enum Next {
    Message(Bytes),
    Status,
    End,
}

impl Reply {
    /// A body that sends `framed`, which is a message with its [`prefix`].
    pub fn new(framed: Bytes) -> Self {
        Self { next: Next::Message(framed) }
    }

    /// The response with this body.
    pub fn into_response<B>(self, body: impl FnOnce(Self) -> B) -> http::Response<B> {
        let mut response = http::Response::new(body(self));
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
        response
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let (frame, next) = match std::mem::replace(&mut self.next, Next::End) {
            Next::Message(framed) => (Frame::data(framed), Next::Status),
            Next::Status => (Frame::trailers(ok()), Next::End),
            Next::End => return Poll::Ready(None),
        };
        self.next = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Next::End)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.next {
            Next::Message(framed) => SizeHint::with_exact(framed.len() as u64),
            Next::Status | Next::End => SizeHint::with_exact(0),
        }
    }
}

fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque};

    use super::*;

    /// A body that consists of these frames.
    struct Frames(VecDeque<Bytes>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop_front().map(|data| match &*data {
                b"broken" => Err("the peer is gone"),
                _ => Ok(Frame::data(data)),
            }))
        }
    }

    fn read_all(frames: &[&[u8]], limit: usize) -> Result<Bytes, Unreadable> {
        let body = Frames(frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect());
        let mut reading = pin!(read(body, limit));
        let mut context = Context::from_waker(std::task::Waker::noop());
        match reading.as_mut().poll(&mut context) {
            Poll::Ready(result) => result,
            Poll::Pending => unreachable!("these bodies are never pending"),
        }
    }

    #[test]
    fn a_message_can_be_split_at_any_byte() {
        let message: Vec<u8> = (0..=255).collect();
        let whole = framed(&message);
        for at in 0..whole.len() {
            let (head, tail) = whole.split_at(at);
            assert_eq!(read_all(&[head, b"", tail], 256).unwrap(), message, "cut at {at}");
        }
        let single: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(read_all(&single, 256).unwrap(), message);
    }

    #[test]
    fn a_message_in_one_frame_is_not_copied() {
        let frame = framed(b"scores");
        let mut reading = pin!(read(Frames([frame.clone()].into()), 6));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Ok(message)) = reading.as_mut().poll(&mut context) else {
            panic!("all frames are available")
        };
        assert!(frame.as_ptr_range().contains(&message.as_ptr()));
    }

    #[test]
    fn a_message_is_read_only_as_far_as_it_is_admitted() {
        let whole = framed(&[7; 100]);
        let frames = whole.chunks(40).map(Bytes::copy_from_slice).collect();
        let asked = RefCell::new(Vec::new());
        let mut reading = pin!(read_admitted(Frames(frames), 100, |arrived, whole| {
            asked.borrow_mut().push((arrived, whole));
            arrived < 100
        }));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let read = reading.as_mut().poll(&mut context);
        assert!(matches!(read, Poll::Ready(Err(Unreadable::NotAdmitted))), "{read:?}");
        assert_eq!(asked.take(), [(40, None), (80, Some(100)), (105, Some(100))]);
    }

    #[test]
    fn incomplete_surplus_compressed_and_large_messages_are_refused() {
        let error = |frames: &[&[u8]]| read_all(frames, 4).unwrap_err();
        assert!(matches!(error(&[]), Unreadable::Cut));
        assert!(matches!(error(&[b"\0\0\0"]), Unreadable::Cut));
        assert!(matches!(error(&[b"\0\0\0\0\x04abc"]), Unreadable::Cut));
        assert!(matches!(error(&[b"\0\0\0\0\x01ab"]), Unreadable::Surplus));
        assert!(matches!(error(&[b"\0\0\0\0\x01a", b"\0"]), Unreadable::Surplus));
        assert!(matches!(error(&[b"\x01"]), Unreadable::Compressed));
        let early = Unreadable::TooLarge { size: 5, limit: 4 };
        assert_eq!(
            error(&[b"\0\0\0\0\x05"]).to_string(),
            early.to_string(),
            "from the prefix alone"
        );
        assert!(matches!(error(&[b"\0\0\0\0\x02a", b"broken"]), Unreadable::Broken(_)));
    }

    #[test]
    fn a_reply_is_a_message_and_a_status() {
        let mut reply = pin!(Reply::new(framed(b"x")));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut next = || match reply.as_mut().poll_frame(&mut context) {
            Poll::Ready(frame) => frame.map(Result::unwrap),
            Poll::Pending => unreachable!("a reply is always ready"),
        };
        assert_eq!(next().unwrap().into_data().unwrap(), framed(b"x"));
        assert_eq!(next().unwrap().into_trailers().unwrap()["grpc-status"], "0");
        assert!(next().is_none());
    }
}
