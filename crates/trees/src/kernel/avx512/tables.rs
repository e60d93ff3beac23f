//! Nodes and values in tables, found by permutations and blends.
//!
//! Vectors are loaded in loops, not in closures: these might not be inlined into a function that is
//! compiled for AVX-512.

use std::arch::x86_64::*;

use super::Avx512;
use crate::{
    compact::{LEVELS, Part, SPLITS},
    kernel::{LANES, Vectors as _},
};

// SAFETY of all that follows: the processor has these instructions, because `self` exists.
impl Avx512 {
    /// The bits of numbers.
    #[inline(always)]
    pub(super) fn bits(self, floats: &[f32; LANES]) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_castps_si512(self.load_floats(floats)) }
    }

    /// The threshold and the link of each of the nodes at `at` in a table.
    #[inline(always)]
    pub(super) fn node_in<const N: usize>(
        self,
        table: &[Part; N],
        at: __m512i,
    ) -> (__m512, __m512i) {
        let (mut thresholds, mut links) = ([at; N], [at; N]);
        for (place, part) in table.iter().enumerate() {
            (thresholds[place], links[place]) =
                (self.bits(&part.thresholds), self.load(&part.links));
        }
        let (thresholds, links) = (self.permuted(at, thresholds), self.permuted(at, links));
        // SAFETY: see above.
        (unsafe { _mm512_castsi512_ps(thresholds) }, links)
    }

    /// Decides at the level of `L` nodes where rows go right. Returns the links of the nodes.
    #[inline(always)]
    pub(super) fn decide<const N: usize, const M: usize, const L: usize>(
        self,
        tops: &[[Part; SPLITS]; M],
        slots: &[f32],
        right: &mut [[__mmask16; LEVELS as usize]; M],
    ) -> [__m512i; M] {
        let mut all = [self.splat(0); M];
        for (at, top) in tops.iter().enumerate() {
            let (thresholds, links) = self.chosen_node::<L>(&top[L - 1..2 * L - 1], &right[at]);
            let values = self.values_of_row::<N>(slots, links);
            right[at][L.ilog2() as usize] = self.right(thresholds, links, values);
            all[at] = links;
        }
        all
    }

    /// The node of each tree that decisions lead to, among those of a level of `N` nodes.
    #[inline(always)]
    fn chosen_node<const N: usize>(
        self,
        level: &[Part],
        right: &[__mmask16; LEVELS as usize],
    ) -> (__m512, __m512i) {
        let level: &[Part; N] = level.first_chunk().expect("a level of nodes");
        let mut thresholds = [self.load_floats(&level[0].thresholds); N];
        let mut links = [self.load(&level[0].links); N];
        for at in 1..N {
            thresholds[at] = self.load_floats(&level[at].thresholds);
            links[at] = self.load(&level[at].links);
        }
        let (mut count, mut bit) = (N, N.ilog2() as usize);
        while count > 1 {
            (count, bit) = (count / 2, bit - 1);
            for at in 0..count {
                // SAFETY: see above.
                unsafe {
                    let [left, other] = [thresholds[2 * at], thresholds[2 * at + 1]];
                    thresholds[at] = _mm512_mask_blend_ps(right[bit], left, other);
                    let [left, other] = [links[2 * at], links[2 * at + 1]];
                    links[at] = _mm512_mask_blend_epi32(right[bit], left, other);
                }
            }
        }
        (thresholds[0], links[0])
    }

    /// The elements of a table of 2, 4 or 8 vectors at `at`. Higher bits do not count.
    #[inline(always)]
    pub(super) fn permuted<const N: usize>(self, at: __m512i, table: [__m512i; N]) -> __m512i {
        match N {
            2 => self.of_32(at, table[0], table[1]),
            4 => self.of_64(at, [table[0], table[1], table[2], table[3]]),
            8 => {
                let low = self.of_64(at, [table[0], table[1], table[2], table[3]]);
                let high = self.of_64(at, [table[4], table[5], table[6], table[7]]);
                self.chosen(at, 64, low, high)
            }
            _ => unreachable!("tables have 2, 4 or 8 vectors"),
        }
    }

    #[inline(always)]
    fn of_64(self, at: __m512i, table: [__m512i; 4]) -> __m512i {
        let low = self.of_32(at, table[0], table[1]);
        self.chosen(at, 32, low, self.of_32(at, table[2], table[3]))
    }

    #[inline(always)]
    fn of_32(self, at: __m512i, low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_permutex2var_epi32(low, at, high) }
    }

    /// The lanes of `high` where `at` has this bit, and those of `low` elsewhere.
    #[inline(always)]
    fn chosen(self, at: __m512i, bit: u32, low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_mask_blend_epi32(_mm512_test_epi32_mask(at, self.splat(bit)), low, high) }
    }
}
