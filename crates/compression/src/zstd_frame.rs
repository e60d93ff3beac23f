//! The header of a frame of zstd (RFC 8878, section 3.1.1.1).

/// The largest window: 8 MiB, the limit for zstd as a content coding (RFC 9659, section 3). The
/// sender decides how much memory its window takes.
pub(crate) const WINDOW_LOG: u32 = 23;
const WINDOW: u64 = 1 << WINDOW_LOG;
/// The largest block.
const BLOCK: u64 = 128 << 10;
/// The decoder's tables and buffers of a fixed size.
const DECODER: u64 = 256 << 10;

/// The header of a frame, as far as it decides on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The bytes of the window.
    window: u64,
    /// The decompressed size, if the header has it.
    pub(crate) content: Option<u64>,
}

/// The reason why a frame is not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    NoFrame,
    Cut,
    Window,
}

impl Header {
    /// Reads the header of the frame that `bytes` begin with.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let (magic, rest) = bytes.split_first_chunk().ok_or(Problem::Cut)?;
        match u32::from_le_bytes(*magic) {
            0xfd2f_b528 => Self::of_frame(rest).ok_or(Problem::Cut)?.checked(),
            // A skippable frame.
            0x184d_2a50..=0x184d_2a5f => Ok(Self { window: 0, content: Some(0) }),
            // Formats from before version 0.8 too, whose decoders are not used.
            _ => Err(Problem::NoFrame),
        }
    }

    fn of_frame(bytes: &[u8]) -> Option<Self> {
        let (&descriptor, mut rest) = bytes.split_first()?;
        let is_single_segment = descriptor & 0x20 != 0;
        let mut window = None;
        if !is_single_segment {
            let (&exponent_and_mantissa, after) = rest.split_first()?;
            let base = 1_u64 << (10 + (exponent_and_mantissa >> 3));
            window = Some(base + base / 8 * u64::from(exponent_and_mantissa & 7));
            rest = after;
        }
        let rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
        let size = match (descriptor >> 6, is_single_segment) {
            (0, false) => 0,
            (flag, _) => 1_usize << flag,
        };
        let mut field = [0; 8];
        field[..size].copy_from_slice(rest.get(..size)?);
        let value = u64::from_le_bytes(field);
        let content = match size {
            0 => None,
            2 => Some(value + 256),
            _ => Some(value),
        };
        Some(Self { window: window.or(content)?, content })
    }

    fn checked(self) -> Result<Self, Problem> {
        match self.window <= WINDOW {
            true => Ok(self),
            false => Err(Problem::Window),
        }
    }

    /// The bytes that a decoder takes for the frame: its window, room for the next blocks behind
    /// it, a block that is read, and what is of a fixed size.
    pub(crate) fn memory(self) -> usize {
        let memory = self.window + 3 * self.window.min(BLOCK) + DECODER;
        usize::try_from(memory).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encoding, Level, compress};

    #[test]
    fn headers_have_the_window_and_the_size() {
        for length in [0, 1, 255, 256, 300, 70_000, 5 << 20, 12 << 20] {
            let mut compressed = Vec::new();
            compress(Encoding::Zstd, Level::Usual, &vec![7; length], &mut compressed).unwrap();
            let header = Header::read(&compressed).unwrap();
            assert_eq!(header.content, Some(length as u64));
            assert!(header.window <= WINDOW && (header.window >= 2 << 20 || length < 2 << 20));
        }
        assert_eq!(Header::read(b"\x5f\x2a\x4d\x18").unwrap().content, Some(0));
    }

    #[test]
    fn a_window_has_an_exponent_and_a_mantissa() {
        let window = |byte: u8| Header::read(&[0x28, 0xb5, 0x2f, 0xfd, 0, byte]);
        assert_eq!(window(0).unwrap().window, 1 << 10);
        assert_eq!(window(0b1101).unwrap().window, 2048 + 5 * 256);
        assert_eq!(window(13 << 3).unwrap().window, WINDOW);
        for larger in [13 << 3 | 1, 14 << 3, 0xff] {
            assert_eq!(window(larger), Err(Problem::Window), "{larger}");
        }
        let single = [&[0x28, 0xb5, 0x2f, 0xfd, 0b1110_0000][..], &(WINDOW + 1).to_le_bytes()];
        assert_eq!(Header::read(&single.concat()), Err(Problem::Window));
    }

    #[test]
    fn headers_that_are_cut_or_foreign_are_refused() {
        let whole = [0x28, 0xb5, 0x2f, 0xfd, 0b1000_0011, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        Header::read(&whole).unwrap();
        for end in 0..whole.len() {
            assert_eq!(Header::read(&whole[..end]), Err(Problem::Cut), "{end}");
        }
        // Version 0.7.
        assert_eq!(Header::read(&[0x27, 0xb5, 0x2f, 0xfd, 0, 0]), Err(Problem::NoFrame));
    }
}
