//! Decompresses requests. The compressed bytes, the decoder and the decompressed bytes are charged
//! to the call while they are there, and its deadline ends the work.

use axum::body::Bytes;
use bytes::BytesMut;
use outrigger_compression::{Decompressor, Encoding};
use outrigger_core::Failure;
use outrigger_features::Meter as _;
use tokio::task::yield_now;

use crate::{call::Call, heavy::Heavy};

/// The work that is done on the serving threads, in bytes read and written: one to three
/// milliseconds. What is larger is heavy.
const LIGHT: usize = 1 << 20;
/// The work after which another heavy request has its turn.
const TURN: usize = 1 << 20;

/// Decompresses `compressed`, which the call is charged for as its body; in the end it is charged
/// for the decompressed bytes instead.
///
/// # Errors
/// There are more than `limit` bytes, they cannot be decompressed, there is no room for them, or
/// the call's time is over.
pub(crate) async fn decompress(
    call: &Call,
    heavy: &Heavy,
    encoding: Encoding,
    compressed: Bytes,
    limit: usize,
) -> Result<BytesMut, Failure> {
    let mut decompressing = Decompressing {
        call: call.clone(),
        compressed: compressed.len(),
        decompressor: Decompressor::new(encoding, compressed, limit),
    };
    if decompressing.run(LIGHT)? {
        return Ok(decompressing.finish());
    }
    let rest = async move {
        while !decompressing.run(TURN)? {
            yield_now().await;
        }
        Ok(decompressing.finish())
    };
    heavy.run(rest).await
}

/// Decompresses a message of at most `limit` bytes, which are so few that nothing is charged for
/// them.
///
/// # Errors
/// There are more than `limit` bytes, or they cannot be decompressed.
pub(crate) fn decompress_small(
    encoding: Encoding,
    compressed: Bytes,
    limit: usize,
) -> Result<Bytes, Failure> {
    let mut decompressor = Decompressor::new(encoding, compressed, limit);
    while !decompressor.step(|_| Ok(()))? {}
    Ok(decompressor.finish().freeze())
}

struct Decompressing {
    call: Call,
    compressed: usize,
    decompressor: Decompressor,
}

impl Decompressing {
    /// Works until `most` bytes more are done. Returns true if all are.
    fn run(&mut self, most: usize) -> Result<bool, Failure> {
        let end = self.decompressor.work() + most;
        while self.decompressor.work() < end {
            self.call.proceed()?;
            let admit = |more| {
                let all = self.compressed + more;
                self.call.held().receive(all, Some(all))
            };
            if self.decompressor.step(admit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn finish(self) -> BytesMut {
        let decompressed = self.decompressor.finish();
        self.call.held().keep_body(decompressed.capacity());
        decompressed
    }
}
