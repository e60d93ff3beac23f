//! Reads the body of a request, which is charged to its call as it arrives.

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use outrigger_core::{Failure, Reason};

use crate::{call::Part, held::Held};

/// The size of the blocks that a body is read into. A large body in one buffer would be copied each
/// time the buffer grows, and other requests would wait meanwhile.
const BLOCK: usize = 256 << 10;

/// A body that has been read.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The blocks before the last are full.
    blocks: Vec<BytesMut>,
    length: usize,
}

impl Received {
    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The body in one buffer; a copy if it is longer than a block.
    pub(crate) fn join(mut self) -> Bytes {
        if let [_] = *self.blocks {
            return self.blocks.remove(0).freeze();
        }
        let mut joined = BytesMut::with_capacity(self.length);
        // Each block is freed when it has been copied.
        for block in self.blocks {
            joined.extend_from_slice(&block);
        }
        joined.freeze()
    }

    /// The body in one buffer. While it is copied, the copy is charged to `held` as work.
    ///
    /// # Errors
    /// There is no room for the copy.
    pub(crate) fn join_charged(self, held: &Held) -> Result<Bytes, Failure> {
        held.work(Part::Main, self.length as u64)?;
        let joined = self.join();
        held.work(Part::Main, 0)?;
        Ok(joined)
    }

    pub(super) fn push(&mut self, mut data: &[u8]) {
        self.length += data.len();
        while !data.is_empty() {
            if self.blocks.last().is_none_or(|last| last.len() == BLOCK) {
                self.blocks.push(BytesMut::new());
            }
            let Some(last) = self.blocks.last_mut() else { return };
            let (now, later) = data.split_at(data.len().min(BLOCK - last.len()));
            last.extend_from_slice(now);
            data = later;
        }
    }
}

impl From<BytesMut> for Received {
    fn from(body: BytesMut) -> Self {
        Self { length: body.len(), blocks: vec![body] }
    }
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// `TOO_LARGE`, `REQUEST_MALFORMED` if it breaks off, or there is no room for it.
pub(super) async fn read(mut body: Body, limit: usize, held: &Held) -> Result<Received, Failure> {
    let mut received = Received::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::new(Reason::RequestMalformed, format!("the body broke off: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let arrived = received.len() + data.len();
        if arrived > limit {
            let message = format!("the body has more than {limit} bytes");
            return Err(Failure::new(Reason::TooLarge, message));
        }
        held.receive(arrived, None)?;
        received.push(&data);
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_the_same_however_it_arrives() {
        let all: Vec<u8> = (0..BLOCK * 3 + 5).map(|at| (at % 251) as u8).collect();
        for size in [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7, all.len()] {
            let mut received = Received::default();
            all.chunks(size).for_each(|data| received.push(data));
            assert_eq!(received.len(), all.len(), "{size}");
            assert!(received.blocks.iter().all(|block| block.len() <= BLOCK), "{size}");
            assert!(received.join() == all, "{size}");
        }
    }

    #[test]
    fn a_short_body_is_not_copied_again() {
        let mut received = Received::default();
        received.push(b"{}");
        let at = received.blocks[0].as_ptr();
        assert_eq!(received.join().as_ptr(), at);
        assert_eq!(Received::default().join(), "");
    }
}
