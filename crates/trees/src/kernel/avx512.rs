//! Vectors of 64 bytes: AVX-512.

mod tables;

use std::arch::{is_x86_feature_detected as has, x86_64::*};

use super::vectors::{BLOCKS, Group, LANES, Slot, Vectors};
use crate::compact::{EXITS, LEVELS, Node, Part, SPLITS};

/// AVX-512 with its parts F, BW and CD, which every processor with AVX-512 for servers has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

/// Bits of the place of a value in a group.
const GROUP: u32 = (BLOCKS * LANES).ilog2();

impl Avx512 {
    /// These vectors, if the processor has them.
    pub(crate) fn detect() -> Option<Self> {
        (has!("avx512f") && has!("avx512bw") && has!("avx512cd")).then_some(Self(()))
    }

    /// Panics if an index is not below `length`, nor below 2^31, where gathers take it for negative.
    #[inline(always)]
    fn check(self, at: __m512i, length: usize) {
        let bound = i32::try_from(length).unwrap_or(i32::MAX);
        // SAFETY: the processor has these instructions, because `self` exists.
        let inside = unsafe { _mm512_cmplt_epu32_mask(at, _mm512_set1_epi32(bound)) };
        assert!(inside == u16::MAX, "an index is out of range");
    }

    /// Clears the bits of `clear` in the lanes of `exits` whose value compares so with the threshold.
    #[inline(always)]
    fn clear_if<const COMPARES: i32>(
        self,
        exits: __m512i,
        values: __m512,
        threshold: f32,
        clear: u32,
    ) -> __m512i {
        // SAFETY: the processor has these instructions, because `self` exists.
        unsafe {
            let right = _mm512_cmp_ps_mask::<COMPARES>(values, _mm512_set1_ps(threshold));
            // "exits & !clear", which stays one instruction with `clear` from memory. The compiler
            // makes five of the same with `_mm512_mask_andnot_epi32`.
            _mm512_mask_ternarylogic_epi32::<0x50>(exits, right, exits, self.splat(clear))
        }
    }
}

// SAFETY of all that follows: the processor has these instructions, because `self` exists, and the
// lengths of arrays are those of the vectors. Where memory is gathered, the indices were checked.
impl Vectors for Avx512 {
    type Floats = __m512;
    type Words = __m512i;

    const PERMUTES: bool = true;

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_set1_epi32(word.cast_signed()) }
    }

    #[inline(always)]
    fn load(self, words: &[u32; LANES]) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_loadu_epi32(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: __m512i) -> [u32; LANES] {
        let mut array = [0; LANES];
        // SAFETY: see above.
        unsafe { _mm512_storeu_epi32(array.as_mut_ptr().cast(), words) };
        array
    }

    #[inline(always)]
    fn add_words(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn equal(self, a: __m512i, b: __m512i) -> bool {
        // SAFETY: see above.
        unsafe { _mm512_cmpneq_epi32_mask(a, b) == 0 }
    }

    #[inline(always)]
    fn load_floats(self, floats: &[f32; LANES]) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(floats.as_ptr()) }
    }

    #[inline(always)]
    fn store_floats(self, floats: __m512) -> [f32; LANES] {
        let mut array = [0.0; LANES];
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(array.as_mut_ptr(), floats) };
        array
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn clear_unless_less(
        self,
        exits: __m512i,
        values: __m512,
        threshold: f32,
        clear: u32,
    ) -> __m512i {
        self.clear_if::<_CMP_NLT_UQ>(exits, values, threshold, clear)
    }

    #[inline(always)]
    fn clear_if_not_less(
        self,
        exits: __m512i,
        values: __m512,
        threshold: f32,
        clear: u32,
    ) -> __m512i {
        self.clear_if::<_CMP_GE_OQ>(exits, values, threshold, clear)
    }

    #[inline(always)]
    fn set_if_greater(self, words: __m512i, values: __m512, border: f32, bit: u32) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let greater = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(values, _mm512_set1_ps(border));
            _mm512_mask_or_epi32(words, greater, words, self.splat(bit))
        }
    }

    #[inline(always)]
    fn lowest(self, words: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let lowest = _mm512_and_si512(words, _mm512_sub_epi32(_mm512_setzero_si512(), words));
            _mm512_sub_epi32(self.splat(31), _mm512_lzcnt_epi32(lowest))
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[u16; EXITS], at: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let table = _mm512_loadu_epi16(table.as_ptr().cast());
            // The upper half of each lane finds the first element, which is not wanted.
            _mm512_and_si512(_mm512_permutexvar_epi16(at, table), self.splat(0xFFFF))
        }
    }

    #[inline(always)]
    fn gather(self, from: &[f32], at: __m512i) -> __m512 {
        self.check(at, from.len());
        // SAFETY: see above.
        unsafe { _mm512_i32gather_ps::<4>(at, from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn gather_near<const N: usize>(self, from: &[Slot; N], at: __m512i) -> __m512 {
        let mut table = [at; N];
        for (loaded, part) in table.iter_mut().zip(from) {
            *loaded = self.bits(part);
        }
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(self.permuted(at, table)) }
    }

    #[inline(always)]
    fn add_doubles(self, sums: &mut [f64; LANES], from: &[f64], at: __m512i) {
        self.check(at, from.len());
        // SAFETY: see above.
        let halves = unsafe { [_mm512_castsi512_si256(at), _mm512_extracti64x4_epi64::<1>(at)] };
        for (sums, at) in sums.as_chunks_mut::<8>().0.iter_mut().zip(halves) {
            // SAFETY: see above.
            unsafe {
                let values = _mm512_i32gather_pd::<8>(at, from.as_ptr().cast());
                let sum = _mm512_add_pd(_mm512_loadu_pd(sums.as_ptr()), values);
                _mm512_storeu_pd(sums.as_mut_ptr(), sum);
            }
        }
    }

    #[inline(always)]
    fn step_of_rows(
        self,
        nodes: &[Node],
        root: __m512i,
        at: __m512i,
        slots: &[Group],
        block: usize,
    ) -> __m512i {
        let (thresholds, links) = self.nodes(nodes, at);
        let values = self.values_of_rows(slots, block, links);
        self.add_words(root, self.children(thresholds, links, values))
    }

    #[inline(always)]
    fn step_by_table<const N: usize, const GATHERS: bool>(
        self,
        table: &[Part; N],
        at: __m512i,
        slots: &[Group],
        block: usize,
    ) -> [__m512i; 2] {
        let (thresholds, links) = self.node_in(table, at);
        let values = if GATHERS {
            self.values_of_rows(slots, block, links)
        } else {
            let links = self.store(links);
            let mut values = [0.0; LANES];
            for (lane, (value, link)) in values.iter_mut().zip(links).enumerate() {
                *value = slots[(link >> Node::SLOT) as usize][block][lane];
            }
            self.load_floats(&values)
        };
        let right = self.right(thresholds, links, values);
        // SAFETY: see above.
        unsafe {
            let at = _mm512_add_epi32(at, at);
            [_mm512_mask_add_epi32(at, right, at, self.splat(1)), self.child(links, right)]
        }
    }

    #[inline(always)]
    fn tops_of_row<const N: usize, const M: usize>(
        self,
        tops: &[[Part; SPLITS]; M],
        slots: &[f32],
    ) -> [__m512i; M] {
        // Level by level, so that the trees wait together for the outcomes of their splits.
        let mut right = [[0; LEVELS as usize]; M];
        self.decide::<N, M, 1>(tops, slots, &mut right);
        self.decide::<N, M, 2>(tops, slots, &mut right);
        self.decide::<N, M, 4>(tops, slots, &mut right);
        self.decide::<N, M, 8>(tops, slots, &mut right);
        let links = self.decide::<N, M, 16>(tops, slots, &mut right);
        let mut children = links;
        for at in 0..M {
            children[at] = self.child(links[at], right[at][LEVELS as usize - 1]);
        }
        children
    }

    #[inline(always)]
    fn step_of_row<const N: usize>(
        self,
        nodes: &[Node],
        roots: __m512i,
        at: __m512i,
        slots: &[f32],
    ) -> __m512i {
        let (thresholds, links) = self.nodes(nodes, at);
        let values = self.values_of_row::<N>(slots, links);
        self.add_words(roots, self.children(thresholds, links, values))
    }
}

impl Avx512 {
    /// The threshold and the link of each of the nodes at `at`.
    #[inline(always)]
    fn nodes(self, from: &[Node], at: __m512i) -> (__m512, __m512i) {
        self.check(at, from.len());
        let from = from.as_ptr().cast();
        // SAFETY: see above. A node has eight bytes: its threshold, then its link.
        unsafe {
            let low = _mm512_i32gather_epi64::<8>(_mm512_castsi512_si256(at), from);
            let high = _mm512_i32gather_epi64::<8>(_mm512_extracti64x4_epi64::<1>(at), from);
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            let thresholds = _mm512_permutex2var_epi32(low, even, high);
            (_mm512_castsi512_ps(thresholds), _mm512_permutex2var_epi32(low, odd, high))
        }
    }

    /// In each lane, the value of the slot that the link names, of the row of this lane.
    #[inline(always)]
    fn values_of_rows(self, slots: &[Group], block: usize, links: __m512i) -> __m512 {
        // SAFETY: see above.
        let at = unsafe {
            let slot = _mm512_srli_epi32::<{ Node::SLOT }>(links);
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let lanes = _mm512_add_epi32(lanes, self.splat((block * LANES) as u32));
            _mm512_add_epi32(_mm512_slli_epi32::<GROUP>(slot), lanes)
        };
        self.gather(slots.as_flattened().as_flattened(), at)
    }

    /// In each lane, the value of the slot that the link names, of one row.
    #[inline(always)]
    fn values_of_row<const N: usize>(self, slots: &[f32], links: __m512i) -> __m512 {
        // SAFETY: see above.
        let at = unsafe { _mm512_srli_epi32::<{ Node::SLOT }>(links) };
        if N == 0 {
            return self.gather(slots, at);
        }
        let (slots, _) = slots.as_chunks::<LANES>();
        self.gather_near::<N>(slots.first_chunk().expect("as many vectors of slots"), at)
    }

    /// The children to which `values` go.
    #[inline(always)]
    fn children(self, thresholds: __m512, links: __m512i, values: __m512) -> __m512i {
        self.child(links, self.right(thresholds, links, values))
    }

    /// The lanes whose value goes to the right child.
    #[inline(always)]
    fn right(self, thresholds: __m512, links: __m512i, values: __m512) -> __mmask16 {
        // SAFETY: see above.
        unsafe {
            let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(values, thresholds);
            let missing = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
            let default_left = _mm512_test_epi32_mask(links, self.splat(Node::DEFAULT_LEFT));
            !(less | (missing & default_left))
        }
    }

    /// The right child in the lanes of `right`, and the left one in others.
    #[inline(always)]
    fn child(self, links: __m512i, right: __mmask16) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let child = _mm512_mask_add_epi32(links, right, links, self.splat(1));
            _mm512_and_si512(child, self.splat(Node::CHILD))
        }
    }
}
