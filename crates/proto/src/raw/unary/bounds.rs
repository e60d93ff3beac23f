//! The bounds within which a message is read.

use super::Unreadable;

/// The bounds of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most bytes, without the prefix.
    pub size: usize,
    /// The treatment of a message that is marked as compressed.
    pub compressed: Compressed,
}

/// The treatment of a message that is marked as compressed. One that is not marked is always read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressed {
    /// It is read: its encoding is named and accepted.
    Accepted,
    /// It is refused: its encoding is not accepted.
    Unsupported,
    /// It is refused: its encoding is not named.
    Undeclared,
}

impl Bounds {
    /// Bounds of an uncompressed message of at most `size` bytes.
    pub const fn plain(size: usize) -> Self {
        Self { size, compressed: Compressed::Unsupported }
    }

    /// Checks the first byte of a message.
    pub(super) fn check_flag(self, flag: u8) -> Result<(), Unreadable> {
        match (flag, self.compressed) {
            (0, _) | (1, Compressed::Accepted) => Ok(()),
            (1, Compressed::Unsupported) => Err(Unreadable::Unsupported),
            (1, Compressed::Undeclared) => Err(Unreadable::Undeclared),
            _ => Err(Unreadable::Flag),
        }
    }

    /// Checks the declared length of a message.
    pub(super) fn check_size(self, size: usize) -> Result<(), Unreadable> {
        let limit = self.size;
        if size > limit {
            return Err(Unreadable::TooLarge { size, limit });
        }
        Ok(())
    }
}
