use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::{Level, compress};

const LIMIT: usize = 1 << 20;
/// The encodings of which several members or frames are one message.
const OF_SEVERAL: [Encoding; 2] = [Encoding::Gzip, Encoding::Zstd];

fn compressed(encoding: Encoding, message: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    compress(encoding, Level::Usual, message, &mut compressed).unwrap();
    compressed
}

/// Decompresses a message, and checks each step.
fn decompressed(encoding: Encoding, bytes: &[u8], limit: usize) -> Result<BytesMut, Failure> {
    let most = Cell::new(0);
    let mut decompressor = Decompressor::new(encoding, Bytes::copy_from_slice(bytes), limit);
    loop {
        let before = decompressor.work();
        let is_whole = decompressor.step(|bytes| {
            most.set(most.get().max(bytes));
            Ok(())
        })?;
        let step = decompressor.work() - before;
        assert!(step <= 2 * STEP.max(BEGIN), "a step of {step} bytes");
        let taken = decompressor.decompressed.capacity() + decompressor.decoder();
        assert!(taken <= most.get(), "{taken} bytes are taken, {} admitted", most.get());
        if is_whole {
            return Ok(decompressor.finish());
        }
    }
}

/// An empty block of deflate, which is not the last, as often as it fits in `length` bytes within a
/// member of gzip that never ends.
fn empty_blocks(length: usize) -> Vec<u8> {
    let mut gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    gzip.extend(b"\0\0\0\xff\xff".iter().cycle().take(length));
    gzip
}

#[test]
fn messages_are_as_they_were_whatever_their_size() {
    for encoding in Encoding::ALL {
        for length in [0, 1, PROBE, PROBE + 1, LEAST, STEP, STEP + 1, 300_000, LIMIT] {
            let message: Vec<u8> = (0..length as u64).map(|at| (at * at % 251) as u8).collect();
            let decompressed =
                decompressed(encoding, &compressed(encoding, &message), LIMIT).unwrap();
            assert!(decompressed == message, "{length} bytes, {encoding:?}");
        }
    }
}

#[test]
fn members_and_frames_follow_one_another() {
    for encoding in OF_SEVERAL {
        let parts = [&b"one "[..], b"", &[b'x'; 200_000], b" two"];
        let all: Vec<u8> = parts.iter().flat_map(|part| compressed(encoding, part)).collect();
        assert!(decompressed(encoding, &all, LIMIT).unwrap() == parts.concat(), "{encoding:?}");
    }
    let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    let zstd = compressed(Encoding::Zstd, b"scores");
    let around = [&skippable[..], &zstd, skippable].concat();
    assert_eq!(decompressed(Encoding::Zstd, &around, LIMIT).unwrap(), &b"scores"[..]);
}

#[test]
fn what_is_cut_off_or_followed_by_something_else_is_malformed() {
    for encoding in Encoding::ALL {
        let whole = compressed(encoding, &b"scores of treatments".repeat(20));
        for end in 0..whole.len() {
            let failure = decompressed(encoding, &whole[..end], LIMIT).unwrap_err();
            assert_eq!(failure.reason, Reason::RequestMalformed, "{end}, {encoding:?}");
        }
        for more in [&b"\0"[..], b"garbage", &whole[..3]] {
            let failure = decompressed(encoding, &[&whole, more].concat(), LIMIT).unwrap_err();
            assert_eq!(failure.reason, Reason::RequestMalformed, "{more:?}, {encoding:?}");
        }
    }
    for (encoding, other) in [
        (Encoding::Gzip, Encoding::Zstd),
        (Encoding::Zstd, Encoding::Gzip),
        (Encoding::Deflate, Encoding::Gzip),
    ] {
        let failure = decompressed(encoding, &compressed(other, b"scores"), LIMIT).unwrap_err();
        assert_eq!(failure.reason, Reason::RequestMalformed);
        assert!(failure.message.contains(encoding.name()), "{}", failure.message);
    }
}

#[test]
fn damaged_messages_are_malformed() {
    let mut gzip = compressed(Encoding::Gzip, b"scores");
    let at = gzip.len() - 8;
    gzip[at] ^= 1;
    let failure = decompressed(Encoding::Gzip, &gzip, LIMIT).unwrap_err();
    assert_eq!(failure.reason, Reason::RequestMalformed, "the checksum is wrong");
}

#[test]
fn a_bomb_is_refused_at_the_limit_and_its_memory_is_admitted_as_it_grows() {
    for encoding in Encoding::ALL {
        let bomb = compressed(encoding, &vec![0; 64 * LIMIT]);
        assert!(bomb.len() < LIMIT / 8);
        let most = Cell::new(0);
        let mut decompressor = Decompressor::new(encoding, bomb.into(), LIMIT);
        let failure = loop {
            let admit = |bytes| {
                most.set(bytes);
                Ok(())
            };
            match decompressor.step(admit) {
                Ok(is_whole) => assert!(!is_whole),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure.reason, Reason::TooLarge);
        assert!(failure.message.contains(&LIMIT.to_string()), "{}", failure.message);
        assert!(most.get() <= 2 * LIMIT + decompressor.decoder(), "{}", most.get());
    }
}

#[test]
fn memory_that_is_not_admitted_ends_the_work() {
    for encoding in Encoding::ALL {
        let bytes = compressed(encoding, &vec![0; LIMIT]);
        let mut decompressor = Decompressor::new(encoding, bytes.into(), LIMIT);
        let most = 400 << 10;
        let admit = |bytes| match bytes <= most {
            true => Ok(()),
            false => Err(Failure::new(Reason::Overloaded, "no room")),
        };
        let failure = loop {
            if let Err(failure) = decompressor.step(admit) {
                break failure;
            }
        };
        assert_eq!(failure.reason, Reason::Overloaded);
        assert!(decompressor.decompressed.capacity() <= most);
    }
}

#[test]
fn a_declared_size_alone_sets_little_aside() {
    let mut gzip = compressed(Encoding::Gzip, &[7; 3000]);
    let at = gzip.len() - 4;
    gzip[at..].copy_from_slice(&(LIMIT as u32).to_le_bytes());
    let mut decompressor = Decompressor::new(Encoding::Gzip, gzip.into(), LIMIT);
    while decompressor.step(|_| Ok(())).is_ok() {}
    assert!(
        decompressor.decompressed.capacity() <= LEAST,
        "{}",
        decompressor.decompressed.capacity()
    );
}

#[test]
fn a_message_of_its_declared_size_has_a_buffer_of_that_size() {
    for encoding in [Encoding::Gzip, Encoding::Zstd] {
        let message: Vec<u8> = (0..100_000_u64).map(|at| (at * at % 251) as u8).collect();
        let message = decompressed(encoding, &compressed(encoding, &message), LIMIT).unwrap();
        assert_eq!((message.len(), message.capacity()), (100_000, 100_000), "{encoding:?}");
    }
}

#[test]
fn compressed_bytes_that_give_nothing_take_many_small_steps() {
    let gzip = empty_blocks(LIMIT);
    let mut decompressor = Decompressor::new(Encoding::Gzip, gzip.into(), LIMIT);
    let (mut steps, mut before) = (0, 0);
    while decompressor.step(|_| Ok(())).is_ok() {
        let work = decompressor.work();
        assert!(work - before <= STEP + BEGIN, "{} bytes in a step", work - before);
        (steps, before) = (steps + 1, work);
    }
    assert!(steps >= LIMIT / STEP, "{steps} steps");
    for encoding in OF_SEVERAL {
        let empty = compressed(encoding, b"").repeat(100);
        let mut decompressor = Decompressor::new(encoding, empty.into(), LIMIT);
        while !decompressor.step(|_| Ok(())).unwrap() {}
        assert!(decompressor.work() >= 100 * BEGIN, "each member counts as work");
    }
}

#[test]
fn a_window_of_more_than_8_mib_is_malformed() {
    let mut long = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    long.window_log(24).unwrap();
    std::io::Write::write_all(&mut long, b"scores").unwrap();
    let failure = decompressed(Encoding::Zstd, &long.finish().unwrap(), LIMIT).unwrap_err();
    assert_eq!(failure.reason, Reason::RequestMalformed);
    assert!(failure.message.contains("8 MiB"), "{}", failure.message);
}

proptest! {
    #[test]
    fn whatever_is_compressed_is_decompressed(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 1..5),
        times in 1_usize..200,
        use_zstd: bool,
    ) {
        let encoding = if use_zstd { Encoding::Zstd } else { Encoding::Gzip };
        let parts: Vec<_> = parts.iter().map(|part| part.repeat(times)).collect();
        let all: Vec<u8> = parts.iter().flat_map(|part| compressed(encoding, part)).collect();
        let message = parts.concat();
        let decompressed = decompressed(encoding, &all, message.len()).unwrap();
        prop_assert!(decompressed == message);
        if !message.is_empty() {
            let refused = super::tests::decompressed(encoding, &all, message.len() - 1).unwrap_err();
            prop_assert_eq!(refused.reason, Reason::TooLarge);
        }
    }

    #[test]
    fn any_bytes_are_decompressed_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..500),
        at in any::<prop::sample::Index>(),
        flip: u8,
        use_zstd: bool,
    ) {
        let encoding = if use_zstd { Encoding::Zstd } else { Encoding::Gzip };
        // Arbitrary bytes, and a message with one byte changed.
        let mut whole = compressed(encoding, &bytes.repeat(50));
        let at = at.index(whole.len());
        whole[at] ^= flip;
        bytes.extend(whole.clone());
        for bytes in [bytes, whole] {
            if let Ok(message) = decompressed(encoding, &bytes, LIMIT) {
                prop_assert!(message.len() <= LIMIT);
            }
        }
    }
}

#[test]
fn a_stream_of_deflate_is_one_message() {
    let stream = compressed(Encoding::Deflate, b"scores");
    let failure = decompressed(Encoding::Deflate, &stream.repeat(2), LIMIT).unwrap_err();
    assert_eq!(failure.reason, Reason::RequestMalformed);
    assert!(failure.message.ends_with("there is something behind its end"), "{failure}");
    let mut damaged = stream;
    *damaged.last_mut().unwrap() ^= 1;
    let failure = decompressed(Encoding::Deflate, &damaged, LIMIT).unwrap_err();
    assert_eq!(failure.reason, Reason::RequestMalformed, "the checksum is wrong");
}
