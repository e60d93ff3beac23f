//! Prefetching: requests bytes from memory before they are read.

/// Bytes of a cache line.
const LINE: usize = 64;
/// The distance in bytes to prefetch ahead. Half of it performs as well, and so does a
/// whole message.
const DISTANCE: usize = 1 << 10;

/// Prefetches the bytes of a message ahead of the current position.
///
/// The start of a part is known only after the part before it has been read. A message of
/// half a megabyte that the kernel has just copied exceeds the nearest caches, so finding
/// a thousand parts would wait for memory a thousand times. The prefetched bytes are
/// still cached when the parts are packed.
pub(super) struct Prefetch<'a> {
    message: &'a [u8],
    /// The first position that has not been prefetched.
    next: usize,
}

impl<'a> Prefetch<'a> {
    /// Asks for nothing yet.
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { message, next: 0 }
    }

    /// Prefetches the bytes after `place`. Bytes skipped without a prefetch, such as the
    /// middle of a long part, are left to the hardware prefetcher, which detects
    /// sequential reads.
    #[inline]
    pub(super) fn ahead_of(&mut self, place: usize) {
        for line in self.lines(place) {
            ask_for(line);
        }
    }

    /// The first byte of each line to prefetch.
    #[inline]
    fn lines(&mut self, place: usize) -> impl Iterator<Item = &'a u8> + use<'a> {
        let from = self.next.max(place);
        let ahead = self.message.get(from..).unwrap_or_default();
        let wanted = ahead.len().min((place + DISTANCE).saturating_sub(from));
        self.next = from + wanted.next_multiple_of(LINE);
        ahead[..wanted].iter().step_by(LINE)
    }
}

#[inline]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "x86-64 only"))]
fn ask_for(byte: &u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, and any address is valid for it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(prefetch: &mut Prefetch<'_>, place: usize) -> Vec<usize> {
        let start = prefetch.message.as_ptr().addr();
        prefetch.lines(place).map(|byte| std::ptr::from_ref(byte).addr() - start).collect()
    }

    #[test]
    fn each_line_is_asked_for_once_and_none_beyond_the_end() {
        let message = [0; 3000];
        let mut prefetch = Prefetch::new(&message);
        let mut lines = asked(&mut prefetch, 0);
        assert_eq!(lines.len(), DISTANCE / LINE);
        for place in [1, 70, 300, 631, 1262, 1893, 2524, 2999, 3000] {
            lines.extend(asked(&mut prefetch, place));
        }
        assert_eq!(lines, (0..3000).step_by(LINE).collect::<Vec<_>>());
    }

    #[test]
    fn skipped_ranges_are_not_prefetched() {
        let message = [0; 20_000];
        let mut prefetch = Prefetch::new(&message);
        asked(&mut prefetch, 0);
        let lines = asked(&mut prefetch, 15_001);
        assert_eq!((lines[0], lines.len()), (15_001, DISTANCE / LINE));
    }
}
