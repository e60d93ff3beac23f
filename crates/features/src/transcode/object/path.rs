//! The path to a leaf of an object.

/// A path, truncated once it is longer than any feature's name: an object may have very
/// many leaves, and its own key may be very long.
#[derive(Debug)]
pub(super) struct Path {
    bytes: Vec<u8>,
    longest: usize,
}

impl Path {
    /// Creates an empty path, of which at most `longest` bytes and one more are stored.
    pub(super) fn new(longest: usize) -> Self {
        Self { bytes: Vec::new(), longest }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a key and returns the previous length.
    pub(super) fn push(&mut self, key: &[u8]) -> usize {
        let parent = self.bytes.len();
        let dot: &[u8] = if parent > 0 { b"." } else { b"" };
        for part in [dot, key] {
            let room = (self.longest + 1).saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        }
        parent
    }

    /// Returns to the parent path of this length.
    pub(super) fn truncate(&mut self, parent: usize) {
        self.bytes.truncate(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_joined_by_dots() {
        let mut path = Path::new(100);
        let parents = ["", "a", "bc"].map(|key| path.push(key.as_bytes()));
        assert_eq!((path.bytes(), parents), (&b"a.bc"[..], [0, 0, 1]));
        path.truncate(1);
        path.push(b"d");
        assert_eq!(path.bytes(), b"a.d");
    }

    #[test]
    fn paths_are_truncated_one_byte_beyond_the_longest_name() {
        for (keys, longest, kept) in [
            (&["a", "b", "c"][..], 5, "a.b.c"),
            (&["a", "b", "cd"], 5, "a.b.cd"),
            (&["a", "b", "cdefgh"], 5, "a.b.cd"),
            (&["a", "b", "c", "d"], 5, "a.b.c."),
            (&["abcdefgh", "b", "c"], 5, "abcdef"),
            (&["ab", "c"], 0, "a"),
        ] {
            let mut path = Path::new(longest);
            for key in keys {
                path.push(key.as_bytes());
            }
            assert_eq!(path.bytes(), kept.as_bytes(), "{keys:?}");
        }
    }
}
