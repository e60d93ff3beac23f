//! Vectors of 32 bytes: AVX2. A vector of 16 lanes is a pair of them.

use std::arch::{is_x86_feature_detected as has, x86_64::*};

use super::vectors::{BLOCKS, Group, LANES, Vectors};
use crate::compact::{EXITS, Node};

/// AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

/// Bits of the place of a value in a group.
const GROUP: i32 = (BLOCKS * LANES).ilog2() as i32;

/// The values of an expression for both halves. Not a closure, which might not be inlined into a
/// function that is compiled for these vectors.
macro_rules! both {
    (|$half:ident| $value:expr) => {{
        [
            {
                let $half = 0_usize;
                $value
            },
            {
                let $half = 1_usize;
                $value
            },
        ]
    }};
}

impl Avx2 {
    /// These vectors, if the processor has them.
    pub(crate) fn detect() -> Option<Self> {
        has!("avx2").then_some(Self(()))
    }

    /// Panics if an index is not below `length`, or is at least 2^31, where gathers take it for
    /// negative.
    #[inline(always)]
    fn check(self, at: [__m256i; 2], length: usize) {
        let last = i32::try_from(length).unwrap_or(i32::MAX) - 1;
        // SAFETY: the processor has these instructions, because `self` exists.
        let inside = unsafe {
            let last = _mm256_set1_epi32(last);
            let inside =
                both!(|half| _mm256_cmpeq_epi32(_mm256_min_epu32(at[half], last), at[half]));
            _mm256_movemask_epi8(_mm256_and_si256(inside[0], inside[1]))
        };
        assert!(length > 0 && inside == -1, "an index is out of range");
    }

    /// Clears the bits of `clear` in the lanes of `exits` whose value compares so with the threshold.
    #[inline(always)]
    fn clear_if<const COMPARES: i32>(
        self,
        exits: [__m256i; 2],
        values: [__m256; 2],
        threshold: f32,
        clear: u32,
    ) -> [__m256i; 2] {
        // SAFETY: the processor has these instructions, because `self` exists.
        both!(|half| unsafe {
            let right = _mm256_cmp_ps::<COMPARES>(values[half], _mm256_set1_ps(threshold));
            let clear = _mm256_set1_epi32(clear.cast_signed());
            _mm256_andnot_si256(_mm256_and_si256(_mm256_castps_si256(right), clear), exits[half])
        })
    }
}

/// The elements of a part of a table at the lowest three bits of `at`.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn part(table: &[u16; 8], at: __m256i) -> __m256i {
    // SAFETY: the caller upholds the contract, and the table is as long as the vector.
    unsafe {
        let table = _mm_loadu_si128(table.as_ptr().cast());
        _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(table), at)
    }
}

/// The lanes of `b` where the sign of `by` is set, and those of `a` elsewhere.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn blend(a: __m256i, b: __m256i, by: __m256i) -> __m256i {
    // SAFETY: the caller upholds the contract.
    unsafe {
        let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
        _mm256_castps_si256(_mm256_blendv_ps(a, b, _mm256_castsi256_ps(by)))
    }
}

// SAFETY of all that follows: the processor has these instructions, because `self` exists, and the
// lengths of arrays are those of the vectors. Where memory is gathered, the indices were checked.
impl Vectors for Avx2 {
    type Floats = [__m256; 2];
    type Words = [__m256i; 2];

    const PERMUTES: bool = false;

    #[inline(always)]
    fn splat(self, word: u32) -> Self::Words {
        // SAFETY: see above.
        [unsafe { _mm256_set1_epi32(word.cast_signed()) }; 2]
    }

    #[inline(always)]
    fn load(self, words: &[u32; LANES]) -> Self::Words {
        let (halves, _) = words.as_chunks::<8>();
        // SAFETY: see above.
        both!(|half| unsafe { _mm256_loadu_si256(halves[half].as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, words: Self::Words) -> [u32; LANES] {
        let mut array = [0; LANES];
        for (half, words) in array.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            // SAFETY: see above.
            unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), words) };
        }
        array
    }

    #[inline(always)]
    fn add_words(self, a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: see above.
        both!(|half| unsafe { _mm256_add_epi32(a[half], b[half]) })
    }

    #[inline(always)]
    fn equal(self, a: Self::Words, b: Self::Words) -> bool {
        // SAFETY: see above.
        let equal = both!(|half| unsafe { _mm256_cmpeq_epi32(a[half], b[half]) });
        // SAFETY: see above.
        unsafe { _mm256_movemask_epi8(_mm256_and_si256(equal[0], equal[1])) == -1 }
    }

    #[inline(always)]
    fn load_floats(self, floats: &[f32; LANES]) -> Self::Floats {
        let (halves, _) = floats.as_chunks::<8>();
        // SAFETY: see above.
        both!(|half| unsafe { _mm256_loadu_ps(halves[half].as_ptr()) })
    }

    #[inline(always)]
    fn store_floats(self, floats: Self::Floats) -> [f32; LANES] {
        let mut array = [0.0; LANES];
        for (half, floats) in array.as_chunks_mut::<8>().0.iter_mut().zip(floats) {
            // SAFETY: see above.
            unsafe { _mm256_storeu_ps(half.as_mut_ptr(), floats) };
        }
        array
    }

    #[inline(always)]
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: see above.
        both!(|half| unsafe { _mm256_add_ps(a[half], b[half]) })
    }

    #[inline(always)]
    fn clear_unless_less(
        self,
        exits: Self::Words,
        values: Self::Floats,
        threshold: f32,
        clear: u32,
    ) -> Self::Words {
        self.clear_if::<_CMP_NLT_UQ>(exits, values, threshold, clear)
    }

    #[inline(always)]
    fn clear_if_not_less(
        self,
        exits: Self::Words,
        values: Self::Floats,
        threshold: f32,
        clear: u32,
    ) -> Self::Words {
        self.clear_if::<_CMP_GE_OQ>(exits, values, threshold, clear)
    }

    #[inline(always)]
    fn set_if_greater(
        self,
        words: Self::Words,
        values: Self::Floats,
        border: f32,
        bit: u32,
    ) -> Self::Words {
        // SAFETY: see above.
        both!(|half| unsafe {
            let greater = _mm256_cmp_ps::<_CMP_GT_OQ>(values[half], _mm256_set1_ps(border));
            let bit = _mm256_set1_epi32(bit.cast_signed());
            _mm256_or_si256(words[half], _mm256_and_si256(_mm256_castps_si256(greater), bit))
        })
    }

    #[inline(always)]
    fn lowest(self, words: Self::Words) -> Self::Words {
        both!(|half| {
            // SAFETY: see above.
            unsafe {
                // The lowest bit by itself is a power of two, whose logarithm is the exponent of
                // the same number in floating point; the sign of the largest is shifted away.
                let words = words[half];
                let lowest =
                    _mm256_and_si256(words, _mm256_sub_epi32(_mm256_setzero_si256(), words));
                let float = _mm256_castps_si256(_mm256_cvtepi32_ps(lowest));
                let exponent = _mm256_srli_epi32::<24>(_mm256_slli_epi32::<1>(float));
                _mm256_sub_epi32(exponent, _mm256_set1_epi32(127))
            }
        })
    }

    #[inline(always)]
    fn lookup(self, table: &[u16; EXITS], at: Self::Words) -> Self::Words {
        let (eights, _) = table.as_chunks::<8>();
        both!(|half| {
            let at = at[half];
            // SAFETY: see above.
            unsafe {
                // Bits 3 and 4 of the index choose one of four parts of the table.
                let (by_3, by_4) = (_mm256_slli_epi32::<28>(at), _mm256_slli_epi32::<27>(at));
                let low = blend(part(&eights[0], at), part(&eights[1], at), by_3);
                let high = blend(part(&eights[2], at), part(&eights[3], at), by_3);
                blend(low, high, by_4)
            }
        })
    }

    #[inline(always)]
    fn gather(self, from: &[f32], at: Self::Words) -> Self::Floats {
        self.check(at, from.len());
        // SAFETY: see above.
        both!(|half| unsafe { _mm256_i32gather_ps::<4>(from.as_ptr(), at[half]) })
    }

    #[inline(always)]
    fn add_doubles(self, sums: &mut [f64; LANES], from: &[f64], at: [__m256i; 2]) {
        self.check(at, from.len());
        for (sums, at) in sums.as_chunks_mut::<8>().0.iter_mut().zip(at) {
            // SAFETY: see above.
            let quarters =
                unsafe { [_mm256_castsi256_si128(at), _mm256_extracti128_si256::<1>(at)] };
            for (sums, at) in sums.as_chunks_mut::<4>().0.iter_mut().zip(quarters) {
                // SAFETY: see above.
                unsafe {
                    let values = _mm256_i32gather_pd::<8>(from.as_ptr(), at);
                    let sum = _mm256_add_pd(_mm256_loadu_pd(sums.as_ptr()), values);
                    _mm256_storeu_pd(sums.as_mut_ptr(), sum);
                }
            }
        }
    }

    #[inline(always)]
    fn step_of_rows(
        self,
        nodes: &[Node],
        root: [__m256i; 2],
        at: [__m256i; 2],
        slots: &[Group],
        block: usize,
    ) -> [__m256i; 2] {
        let (thresholds, links) = self.nodes(nodes, at);
        let values = self.values_of_rows(slots, block, links);
        self.add_words(root, self.children(thresholds, links, values))
    }

    #[inline(always)]
    fn step_of_row<const N: usize>(
        self,
        nodes: &[Node],
        roots: [__m256i; 2],
        at: [__m256i; 2],
        slots: &[f32],
    ) -> [__m256i; 2] {
        let (thresholds, links) = self.nodes(nodes, at);
        let values = self.values_of_row(slots, links);
        self.add_words(roots, self.children(thresholds, links, values))
    }
}

impl Avx2 {
    /// The threshold and the link of each of the nodes at `at`.
    #[inline(always)]
    fn nodes(self, from: &[Node], at: [__m256i; 2]) -> ([__m256; 2], [__m256i; 2]) {
        self.check(at, from.len());
        let from = from.as_ptr().cast();
        let halves = both!(|half| {
            // SAFETY: see above. A node has eight bytes: its threshold, then its link.
            unsafe {
                let low = _mm256_i32gather_epi64::<8>(from, _mm256_castsi256_si128(at[half]));
                let high =
                    _mm256_i32gather_epi64::<8>(from, _mm256_extracti128_si256::<1>(at[half]));
                let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
                let thresholds = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(low, high));
                let links = _mm256_castps_si256(_mm256_shuffle_ps::<0xDD>(low, high));
                let thresholds = _mm256_permute4x64_epi64::<0xD8>(thresholds);
                (_mm256_castsi256_ps(thresholds), _mm256_permute4x64_epi64::<0xD8>(links))
            }
        });
        ([halves[0].0, halves[1].0], [halves[0].1, halves[1].1])
    }

    /// In each lane, the value of the slot that the link names, of the row of this lane.
    #[inline(always)]
    fn values_of_rows(self, slots: &[Group], block: usize, links: [__m256i; 2]) -> [__m256; 2] {
        let at = both!(|half| {
            // SAFETY: see above.
            unsafe {
                let first = (block * LANES + 8 * half) as i32;
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let lanes = _mm256_add_epi32(lanes, _mm256_set1_epi32(first));
                let slot = _mm256_srli_epi32::<{ Node::SLOT.cast_signed() }>(links[half]);
                _mm256_add_epi32(_mm256_slli_epi32::<GROUP>(slot), lanes)
            }
        });
        self.gather(slots.as_flattened().as_flattened(), at)
    }

    /// In each lane, the value of the slot that the link names, of one row.
    #[inline(always)]
    fn values_of_row(self, slots: &[f32], links: [__m256i; 2]) -> [__m256; 2] {
        let at = both!(|half| {
            // SAFETY: see above.
            unsafe { _mm256_srli_epi32::<{ Node::SLOT.cast_signed() }>(links[half]) }
        });
        self.gather(slots, at)
    }

    /// The children to which `values` go.
    #[inline(always)]
    fn children(
        self,
        thresholds: [__m256; 2],
        links: [__m256i; 2],
        values: [__m256; 2],
    ) -> [__m256i; 2] {
        both!(|half| {
            let (threshold, link, value) = (thresholds[half], links[half], values[half]);
            // SAFETY: see above.
            unsafe {
                let less = _mm256_cmp_ps::<_CMP_LT_OQ>(value, threshold);
                let missing = _mm256_cmp_ps::<_CMP_UNORD_Q>(value, value);
                // The bit of the default direction becomes the sign, and the sign all bits.
                let default_left = _mm256_srai_epi32::<31>(_mm256_slli_epi32::<15>(link));
                let missing = _mm256_and_ps(missing, _mm256_castsi256_ps(default_left));
                let left = _mm256_castps_si256(_mm256_or_ps(less, missing));
                // All bits are -1: right is one more than left.
                let child = _mm256_add_epi32(_mm256_add_epi32(link, _mm256_set1_epi32(1)), left);
                _mm256_and_si256(child, _mm256_set1_epi32(Node::CHILD.cast_signed()))
            }
        })
    }
}
