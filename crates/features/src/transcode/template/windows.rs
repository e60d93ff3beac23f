//! Copies numbers that a treatment sends in the order of their tensor: with AVX-512 and VBMI2, one
//! instruction moves the bytes of several values.

/// The number of bytes in a window: one vector.
const WIDTH: usize = 64;
/// The number of bytes in a value, a float32.
const VALUE: usize = 4;
/// The maximum number of values taken from one window. A window cannot hold more: the
/// shortest entry that ends with a value has 11 bytes.
const MOST: usize = 8;

/// Windows that cover the encoded entries of a treatment. Each window holds whole values; two
/// windows overlap where a value would be cut in two.
#[derive(Debug)]
pub(super) struct Windows {
    windows: Vec<Window>,
    /// The length of the entries in bytes.
    length: usize,
    /// The number of values in all windows.
    values: usize,
}

#[derive(Debug)]
#[repr(align(64))]
struct Window {
    /// The expected bytes.
    bytes: [u8; WIDTH],
    /// All bits are set where a byte must equal the expected one.
    mask: [u8; WIDTH],
    /// The position of the window, in bytes.
    at: usize,
    /// The bitmap of the bytes that belong to values.
    values: u64,
    /// The number of values taken from the window.
    count: usize,
    /// A bitmap with `count` bits set: the values to store.
    stored: u8,
}

impl Windows {
    /// Builds windows for entries that equal `bytes` except in their values. `values` are the
    /// positions of the values to copy, `others` those of values to ignore. `None` if the processor
    /// lacks the instructions, the entries are shorter than a window, or `values` do not ascend.
    pub(super) fn new(
        bytes: &[u8],
        values: impl Iterator<Item = usize> + Clone,
        others: impl Iterator<Item = usize> + Clone,
    ) -> Option<Self> {
        let (length, all) = (bytes.len(), values.clone().chain(others));
        if length < WIDTH || !values.clone().is_sorted() || !can_take() {
            return None;
        }
        let windows = Vec::with_capacity(1 + length / (WIDTH - VALUE));
        let mut these = Self { windows, length, values: 0 };
        let mut values = values.peekable();
        // All bytes before `covered` are in a window.
        let mut covered = 0;
        while covered < length {
            let at = covered.min(length - WIDTH);
            let bytes = *bytes[at..].first_chunk().expect("a window");
            let mask = mask(at, all.clone());
            let mut window = Window { bytes, mask, at, values: 0, count: 0, stored: 0 };
            covered = at + WIDTH;
            while let Some(value) = values.next_if(|value| value + VALUE <= at + WIDTH) {
                window.values |= 0b1111 << (value - at);
                window.count += 1;
                window.stored = window.stored << 1 | 1;
            }
            if window.count > MOST {
                return None;
            }
            if let Some(cut) = values.peek() {
                covered = covered.min(*cut);
            }
            these.values += window.count;
            these.windows.push(window);
        }
        Some(these)
    }

    /// Copies the values of several treatments' entries, each to its row, and returns whether all
    /// of them are finite; `None` if the entries differ from the expected bytes outside their
    /// values. The expected bytes are loaded once for all treatments.
    ///
    /// # Panics
    /// If entries or rows do not have the length that the windows were built for.
    #[inline]
    pub(super) fn take<const N: usize>(
        &self,
        entries: [&[u8]; N],
        to: [&mut [[u8; VALUE]]; N],
    ) -> Option<bool> {
        assert!(entries.iter().all(|entries| entries.len() == self.length));
        assert!(to.iter().all(|to| to.len() == self.values));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: windows exist only if the processor has the instructions, and the assertions
        // above ensure that every window is within its entries and row.
        return unsafe { x86_64::take(&self.windows, entries, to) };
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("there are no windows")
    }
}

/// The mask of the window that begins at `at`: zero for the bytes of `values`, which are positions.
fn mask(at: usize, values: impl Iterator<Item = usize>) -> [u8; WIDTH] {
    let mut mask = [0xff; WIDTH];
    for value in values.filter(|value| value + VALUE > at && *value < at + WIDTH) {
        mask[value.saturating_sub(at)..(value + VALUE - at).min(WIDTH)].fill(0);
    }
    mask
}

#[cfg(target_arch = "x86_64")]
use x86_64::can_take;

#[cfg(not(target_arch = "x86_64"))]
fn can_take() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::{
        arch::{is_x86_feature_detected as has, x86_64::*},
        sync::LazyLock,
    };

    use outrigger_vectors::{Width, width};

    use super::{VALUE, Window};
    use crate::column::floats;

    /// True if the processor has the features that [`take`] is compiled for.
    pub(super) fn can_take() -> bool {
        static CAN: LazyLock<bool> =
            LazyLock::new(|| width() == Width::Of64 && has!("avx512vbmi2"));
        *CAN
    }

    /// As [`super::Windows::take`].
    ///
    /// # Safety
    /// Every window is within all entries and has at most [`super::MOST`] values; each row of `to`
    /// has room for the values of all windows.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2")]
    pub(super) unsafe fn take<const N: usize>(
        windows: &[Window],
        entries: [&[u8]; N],
        to: [&mut [[u8; VALUE]]; N],
    ) -> Option<bool> {
        let exponent = _mm256_set1_epi32(floats::EXPONENT.cast_signed());
        let carry = _mm256_set1_epi32(floats::CARRY.cast_signed());
        let (mut differs, mut overflows) = (_mm512_setzero_si512(), _mm256_setzero_si256());
        let (entries, mut to) = (entries.map(<[u8]>::as_ptr), to.map(<[_]>::as_mut_ptr));
        for window in windows {
            let Window { bytes, mask, at, values, count, stored } = window;
            // SAFETY: both arrays are as long as a vector.
            let [expected, mask] =
                unsafe { [bytes, mask].map(|bytes| _mm512_loadu_si512(bytes.as_ptr().cast())) };
            for (entries, to) in entries.iter().zip(&mut to) {
                // SAFETY: the window is within the entries.
                let found = unsafe { _mm512_loadu_si512(entries.add(*at).cast()) };
                let differ = _mm512_and_si512(_mm512_xor_si512(found, expected), mask);
                differs = _mm512_or_si512(differs, differ);
                let packed = _mm512_castsi512_si256(_mm512_maskz_compress_epi8(*values, found));
                let overflow = _mm256_add_epi32(_mm256_and_si256(packed, exponent), carry);
                overflows = _mm256_or_si256(overflows, overflow);
                // SAFETY: `stored` has `count` bits set, so `count` values are written, and the row
                // has room for the values of all windows.
                *to = unsafe {
                    _mm256_mask_storeu_epi32(to.cast(), *stored, packed);
                    to.add(*count)
                };
            }
        }
        let same = _mm512_test_epi8_mask(differs, differs) == 0;
        same.then(|| _mm256_movemask_ps(_mm256_castsi256_ps(overflows)) == 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encoded entries of these lengths, each ending with a value, and a mask of the bytes that are
    /// not values.
    fn entries(lengths: &[usize], bits: impl Fn(usize) -> u32) -> (Vec<u8>, Vec<u8>) {
        let (mut bytes, mut mask) = (Vec::new(), Vec::new());
        for (index, length) in lengths.iter().enumerate() {
            bytes.extend((VALUE..*length).map(|at| (at * 7 + index) as u8));
            bytes.extend(bits(index).to_le_bytes());
            mask.resize(bytes.len() - VALUE, 0xff);
            mask.resize(bytes.len(), 0);
        }
        (bytes, mask)
    }

    #[test]
    fn a_window_has_at_most_as_many_values_as_are_stored_at_once() {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let new = |count| Windows::new(&bytes, (0..count).map(|at| at * VALUE), [].into_iter());
        assert!(new(MOST + 1).is_none());
        if let Some(windows) = new(MOST) {
            let mut to = [[0; VALUE]; MOST];
            assert_eq!(windows.take([&bytes], [&mut to]), Some(true));
            assert_eq!(to.as_flattened(), &bytes[..MOST * VALUE]);
        }
    }

    // Without AVX-512 no windows are built, and the test checks only that.
    proptest! {
        #[test]
        fn values_are_copied_and_differences_and_non_finite_values_are_found(
            sent in prop::collection::vec((11_usize..90, prop::bool::weighted(0.8)), 1..40),
            odd in prop::option::of((any::<prop::sample::Index>(), 0..3_usize)),
            changed in prop::option::of(any::<prop::sample::Index>()),
            odd_row in 0..3_usize,
        ) {
            let lengths: Vec<_> = sent.iter().map(|(length, _)| *length).collect();
            let ends = lengths.iter().scan(0, |end, length| { *end += length; Some(*end) });
            let values = ends.zip(&sent).enumerate()
                .map(|(index, (end, (_, named)))| (index, end - VALUE, *named));
            let (named, others): (Vec<_>, Vec<_>) = values.partition(|(_, _, named)| *named);
            let (expected, mask) = entries(&lengths, |index| index as u32);
            let [copied, others] = [&named, &others].map(|all| all.iter().map(|(_, at, _)| *at));
            let Some(windows) = Windows::new(&expected, copied, others) else {
                prop_assert!(expected.len() < WIDTH || !can_take());
                return Ok(());
            };
            let odd = odd.map(|(at, which)| {
                (at.index(lengths.len()), [f32::NAN, f32::INFINITY, -f32::NAN][which])
            });
            let bits = |row: usize, index: usize| match odd {
                Some((at, value)) if (row, at) == (odd_row, index) => f32::to_bits(value),
                _ => (index as f32 * 1.5 + row as f32 - f32::MAX / 2.0).to_bits(),
            };
            let mut found = [0, 1, 2].map(|row| entries(&lengths, |index| bits(row, index)).0);
            let changed = changed.map(|at| at.index(mask.len())).filter(|at| mask[*at] != 0);
            if let Some(at) = changed {
                found[odd_row][at] ^= 0x10;
            }
            let mut to = [0, 1, 2].map(|_| vec![[0; VALUE]; named.len()]);
            let finite = windows.take(found.each_ref().map(Vec::as_slice), to.each_mut().map(Vec::as_mut_slice));
            let all_finite = odd.is_none_or(|(at, _)| named.iter().all(|(index, ..)| *index != at));
            prop_assert_eq!(finite, changed.is_none().then_some(all_finite));
            for (row, to) in to.iter().enumerate() {
                let copied = named.iter().map(|(index, ..)| bits(row, *index).to_le_bytes());
                prop_assert!(copied.eq(to.iter().copied()), "row {}: {:?}", row, to);
            }
        }
    }
}
