//! The bitmaps of a block by vectors.

use std::arch::x86_64::*;

use outrigger_vectors::{Width, width};

use super::{BRACKET, Masks, Skipped, WIDTH, skip_by};

/// As [`super::skip`], with the widest vectors of this processor.
pub(super) fn skip(text: &[u8]) -> Option<Skipped> {
    match width() {
        // SAFETY: the processor has vectors of this width.
        Width::Of64 => unsafe { skip_of_64(text) },
        // SAFETY: as above.
        Width::Of32 => unsafe { skip_of_32(text) },
        // SAFETY: every x86-64 processor has SSE2.
        Width::Of16 => unsafe { skip_of_16(text) },
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512vl")]
fn skip_of_64(text: &[u8]) -> Option<Skipped> {
    skip_by(text, |block| of_64(block))
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn skip_of_32(text: &[u8]) -> Option<Skipped> {
    skip_by(text, |block| of_32(block))
}

#[target_feature(enable = "sse2")]
fn skip_of_16(text: &[u8]) -> Option<Skipped> {
    skip_by(text, |block| of_16(block))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn of_64(block: &[u8; WIDTH]) -> Masks {
    // SAFETY: the block is as long as the vector.
    let bytes = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
    let equals = |byte: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte.cast_signed()));
    let others = _mm512_set1_epi8((!BRACKET & 0x7f).cast_signed());
    let filled = _mm512_or_si512(bytes, others);
    Masks {
        quotes: equals(b'"'),
        backslashes: equals(b'\\'),
        brackets: _mm512_cmpeq_epi8_mask(filled, _mm512_set1_epi8(0x7f)),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn of_32(block: &[u8; WIDTH]) -> Masks {
    // SAFETY: the halves are as long as the vector.
    let halves = unsafe {
        [block.as_ptr().cast(), block[32..].as_ptr().cast()].map(|half| _mm256_loadu_si256(half))
    };
    let mask = |is: [__m256i; 2]| {
        let [low, high] = is.map(|is| u64::from(_mm256_movemask_epi8(is).cast_unsigned()));
        high << 32 | low
    };
    let equals = |byte: u8| {
        let byte = _mm256_set1_epi8(byte.cast_signed());
        mask(halves.map(|half| _mm256_cmpeq_epi8(half, byte)))
    };
    let (others, all) = (_mm256_set1_epi8((!BRACKET & 0x7f).cast_signed()), _mm256_set1_epi8(0x7f));
    Masks {
        quotes: equals(b'"'),
        backslashes: equals(b'\\'),
        brackets: mask(halves.map(|half| _mm256_cmpeq_epi8(_mm256_or_si256(half, others), all))),
    }
}

#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn of_16(block: &[u8; WIDTH]) -> Masks {
    let (quarters, _) = block.as_chunks::<16>();
    // SAFETY: a quarter is as long as the vector.
    let quarters = [0, 1, 2, 3].map(|at| unsafe { _mm_loadu_si128(quarters[at].as_ptr().cast()) });
    let mask = |is: [__m128i; 4]| {
        let quarters = is.map(|is| u64::from(_mm_movemask_epi8(is).cast_unsigned()));
        quarters.into_iter().rev().fold(0, |mask, quarter| mask << 16 | quarter)
    };
    let equals = |byte: u8| {
        let byte = _mm_set1_epi8(byte.cast_signed());
        mask(quarters.map(|quarter| _mm_cmpeq_epi8(quarter, byte)))
    };
    let (others, all) = (_mm_set1_epi8((!BRACKET & 0x7f).cast_signed()), _mm_set1_epi8(0x7f));
    Masks {
        quotes: equals(b'"'),
        backslashes: equals(b'\\'),
        brackets: mask(quarters.map(|quarter| _mm_cmpeq_epi8(_mm_or_si128(quarter, others), all))),
    }
}
