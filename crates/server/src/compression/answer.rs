//! Compresses answers.

use axum::body::Bytes;
use outrigger_compression::{Encoding, Level, most_compressed};

use crate::{call::Call, heavy::Heavy};

/// The largest answer that is sent as it is: it fits in one packet over Ethernet, so compression
/// would save none.
const SMALL: usize = 1400;
/// The largest answer that is compressed on the serving threads: one or two milliseconds.
const LIGHT: usize = 256 << 10;
/// The memory of an encoder: its window and its tables.
const ENCODER: usize = 1 << 20;

/// Compresses an answer, after `head` bytes that are kept free for its prefix. Returns `None` if
/// the answer is to be sent as it is: it is small, would not become smaller, or there is no room
/// for both.
pub(crate) async fn compress(
    call: &Call,
    heavy: &Heavy,
    encoding: Encoding,
    answer: Bytes,
    head: usize,
) -> Option<Vec<u8>> {
    let length = answer.len();
    if length <= SMALL {
        return None;
    }
    let held = call.held();
    held.second_answer(head + most_compressed(length) + ENCODER).ok()?;
    let work = move || compressed(encoding, &answer, head);
    let compressed = match length <= LIGHT {
        true => work(),
        false => heavy.run(async move { Ok(work()) }).await.ok().flatten(),
    };
    held.keep_answer(compressed.as_ref().map_or(length, Vec::capacity));
    compressed
}

fn compressed(encoding: Encoding, answer: &[u8], head: usize) -> Option<Vec<u8>> {
    let mut compressed = Vec::with_capacity(head + most_compressed(answer.len()));
    compressed.resize(head, 0);
    outrigger_compression::compress(encoding, Level::Fast, answer, &mut compressed).ok()?;
    compressed.shrink_to_fit();
    (compressed.len() - head < answer.len()).then_some(compressed)
}
