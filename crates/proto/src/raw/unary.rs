//! Unary gRPC calls over HTTP bodies: one message in, one message out.
//!
//! tonic copies each message into a buffer of its own. Requests have half a megabyte, so
//! [`read`] returns the bytes of the HTTP/2 frame itself, or joins several once, and [`Reply`] sends a
//! message from the buffer in which it was written.
//!
//! The format is gRPC's "Length-Prefixed-Message": a byte that is 1 if the message is
//! compressed, its length in four bytes (big endian), the message.

mod assembly;
mod bounds;
mod reply;
mod timeout;

use std::{
    fmt,
    pin::{Pin, pin},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::Body;

use self::assembly::Assembly;
pub use self::{
    bounds::{Bounds, Compressed},
    reply::Reply,
    timeout::{CALLER_TIMEOUT, timeout},
};

/// Length of the prefix: the compression flag and the message's length.
pub const PREFIX: usize = 5;

/// The reason why a call's message could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The message is marked as compressed, but its encoding is not named.
    #[error("the message is marked as compressed, but no encoding is named")]
    Undeclared,
    /// The message is compressed with an encoding that is not accepted.
    #[error("the message is compressed with an encoding that is not accepted")]
    Unsupported,
    /// The byte that says if the message is compressed is neither 0 nor 1.
    #[error("the message begins with neither 0 nor 1")]
    Flag,
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

/// A message as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The message without its prefix.
    pub bytes: Bytes,
    /// True if it is marked as compressed.
    pub is_compressed: bool,
}

impl Payload {
    /// The message after its prefix, with which `framed` begins.
    fn of(framed: Bytes) -> Self {
        Self { is_compressed: framed[0] != 0, bytes: framed.slice(PREFIX..) }
    }
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
    let payload = read_admitted(body, Bounds::plain(limit), |_| true).await?;
    Ok(payload.bytes)
}

/// As [`read`], for a message within `bounds`. `admit` is called with the number of bytes that are
/// to be kept, before they are; it returns false to stop.
///
/// # Errors
/// The body is not exactly one message within the bounds, or [`Unreadable::NotAdmitted`].
pub async fn read_admitted<B>(
    body: B,
    bounds: Bounds,
    mut admit: impl FnMut(usize) -> bool,
) -> Result<Payload, Unreadable>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let mut body = pin!(body);
    let mut message = Message::default();
    while let Some(data) = data(body.as_mut()).await? {
        message.push_admitted(data, bounds, &mut admit)?;
    }
    message.whole()
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
    /// The frames in one buffer, if there are several.
    joined: Assembly,
}

impl Message {
    /// Adds received data of a message of at most `limit` bytes. The first frame is not copied.
    ///
    /// # Errors
    /// As soon as the received bytes show one: the message is compressed, too large, or
    /// followed by more data.
    pub fn push(&mut self, data: Bytes, limit: usize) -> Result<(), Unreadable> {
        self.push_admitted(data, Bounds::plain(limit), &mut |_| true)
    }

    fn push_admitted(
        &mut self,
        data: Bytes,
        bounds: Bounds,
        admit: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Unreadable> {
        if self.is_empty() {
            Assembly::default().admits(&data, bounds)?;
            let is_admitted = admit(data.len());
            self.first = data;
            return is_admitted.then_some(()).ok_or(Unreadable::NotAdmitted);
        }
        let first = std::mem::take(&mut self.first);
        for piece in [first, data].iter().filter(|piece| !piece.is_empty()) {
            self.joined.admits(piece, bounds)?;
            self.joined.append(piece, admit)?;
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.joined.arrived().is_empty()
    }

    /// The complete message without its prefix.
    ///
    /// # Errors
    /// [`Unreadable::Cut`] if the message is incomplete.
    pub fn finish(self) -> Result<Bytes, Unreadable> {
        self.whole().map(|payload| payload.bytes)
    }

    fn whole(self) -> Result<Payload, Unreadable> {
        let Self { first, joined } = self;
        if joined.declared(&first) != Some(first.len() + joined.arrived().len()) {
            return Err(Unreadable::Cut);
        }
        Ok(Payload::of(if first.is_empty() { joined.freeze() } else { first }))
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

/// The prefix of a compressed message of `length` bytes.
///
/// # Panics
/// As [`prefix`].
pub fn compressed_prefix(length: usize) -> [u8; PREFIX] {
    let [_, a, b, c, d] = prefix(length);
    [1, a, b, c, d]
}

/// A message with its prefix.
pub fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_slice(&prefix(message.len()));
    framed.put_slice(message);
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        collections::VecDeque,
        task::{Context, Poll},
    };

    use http_body::Frame;

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
    fn a_message_is_kept_only_as_far_as_it_is_admitted() {
        let whole = framed(&vec![7; 200_000]);
        let read = |most: usize| {
            let frames = whole.chunks(1000).map(Bytes::copy_from_slice).collect();
            let asked = RefCell::new(Vec::new());
            let mut reading =
                pin!(read_admitted(Frames(frames), Bounds::plain(200_000), |bytes| {
                    asked.borrow_mut().push(bytes);
                    bytes <= most
                }));
            let mut context = Context::from_waker(std::task::Waker::noop());
            match reading.as_mut().poll(&mut context) {
                Poll::Ready(read) => (read.is_ok(), asked.take()),
                Poll::Pending => unreachable!("these bodies are never pending"),
            }
        };
        // The first frame; then a 64th of the message, which holds three of them; then all.
        let steps = vec![1000, 3125, 200_005];
        assert_eq!(read(200_005), (true, steps.clone()));
        assert_eq!(read(200_004), (false, steps), "it stops before the memory is set aside");
    }

    #[test]
    fn incomplete_surplus_compressed_and_large_messages_are_refused() {
        let error = |frames: &[&[u8]]| read_all(frames, 4).unwrap_err();
        assert!(matches!(error(&[]), Unreadable::Cut));
        assert!(matches!(error(&[b"\0\0\0"]), Unreadable::Cut));
        assert!(matches!(error(&[b"\0\0\0\0\x04abc"]), Unreadable::Cut));
        assert!(matches!(error(&[b"\0\0\0\0\x01ab"]), Unreadable::Surplus));
        assert!(matches!(error(&[b"\0\0\0\0\x01a", b"\0"]), Unreadable::Surplus));
        assert!(matches!(error(&[b"\x01"]), Unreadable::Unsupported));
        assert!(matches!(error(&[b"\x02"]), Unreadable::Flag));
        let early = Unreadable::TooLarge { size: 5, limit: 4 };
        assert_eq!(
            error(&[b"\0\0\0\0\x05"]).to_string(),
            early.to_string(),
            "from the prefix alone"
        );
        assert!(matches!(error(&[b"\0\0\0\0\x02a", b"broken"]), Unreadable::Broken(_)));
    }

    #[test]
    fn a_compressed_message_is_read_if_its_encoding_is_named_and_accepted() {
        let read = |compressed| {
            let frames = [&compressed_prefix(2)[..], b"ab"].map(Bytes::copy_from_slice);
            let bounds = Bounds { size: 2, compressed };
            let mut reading = pin!(read_admitted(Frames(frames.into()), bounds, |_| true));
            let mut context = Context::from_waker(std::task::Waker::noop());
            match reading.as_mut().poll(&mut context) {
                Poll::Ready(result) => result,
                Poll::Pending => unreachable!("these bodies are never pending"),
            }
        };
        let payload = read(Compressed::Accepted).unwrap();
        assert_eq!((&payload.bytes[..], payload.is_compressed), (&b"ab"[..], true));
        assert!(matches!(read(Compressed::Unsupported), Err(Unreadable::Unsupported)));
        assert!(matches!(read(Compressed::Undeclared), Err(Unreadable::Undeclared)));
    }
}
