//! The ids of a user's treatments, copied out of the request.

/// Concatenated texts. The request, which may be ten times their size, can be freed when
/// only these are still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// The texts concatenated, in UTF-8.
    bytes: Vec<u8>,
    /// The end of each text in `bytes`.
    ends: Vec<usize>,
}

impl Ids {
    /// Copies these texts, which must be UTF-8.
    pub(crate) fn copied<T: AsRef<[u8]>>(ids: &[T]) -> Self {
        let length = ids.iter().map(|id| id.as_ref().len()).sum();
        let (mut bytes, mut ends) = (Vec::with_capacity(length), Vec::with_capacity(ids.len()));
        for id in ids {
            bytes.extend_from_slice(id.as_ref());
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    /// No texts yet, with room for `count` short ones.
    pub(crate) fn with_room(count: usize) -> Self {
        /// The length of a short text.
        const SHORT: usize = 12;
        Self { bytes: Vec::with_capacity(SHORT * count), ends: Vec::with_capacity(count) }
    }

    /// Copies one more text, which must be UTF-8.
    #[inline]
    pub(crate) fn push(&mut self, id: &[u8]) {
        self.bytes.extend_from_slice(id);
        self.ends.push(self.bytes.len());
    }

    /// The text at a position, in UTF-8.
    ///
    /// # Panics
    /// No text is at that position.
    pub(crate) fn get(&self, position: usize) -> &[u8] {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[position]]
    }

    /// The number of bytes of all texts.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// All texts, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|position| self.get(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_where_they_were() {
        let texts = ["a", "", "ccc", ""];
        let ids = Ids::copied(&texts);
        assert!(ids.iter().eq(texts.map(str::as_bytes)));
        assert_eq!((ids.get(0), ids.get(2), ids.get(3)), (&b"a"[..], &b"ccc"[..], &b""[..]));
        assert_eq!(Ids::copied::<&str>(&[]).iter().count(), 0);
    }
}
