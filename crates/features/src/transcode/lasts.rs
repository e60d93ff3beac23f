//! Values sent under keys, where the last value of a repeated key wins.

/// An item that was sent under a key.
pub(super) trait Keyed: Copy {
    fn key(&self) -> &[u8];
}

/// The values sent; repeated keys are dropped whenever they outnumber the distinct ones.
#[derive(Debug)]
pub(super) struct Lasts<T> {
    sent: Vec<T>,
    /// The number of distinct keys when repeated ones were last dropped.
    different: usize,
}

/// The number of values that are stored before repeated keys are dropped for the first time.
const UNSORTED: usize = 1024;

impl<T> Default for Lasts<T> {
    fn default() -> Self {
        Self { sent: Vec::new(), different: 0 }
    }
}

impl<T: Keyed> Lasts<T> {
    pub(super) fn clear(&mut self) {
        self.sent.clear();
        self.different = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn push(&mut self, sent: T) {
        self.sent.push(sent);
        // A key that is repeated very often must not fill the memory.
        if self.sent.len() > UNSORTED.max(2 * self.different) {
            self.keep_last();
        }
    }

    /// The last value of every key, in the order of keys.
    pub(super) fn sorted(&mut self) -> &[T] {
        self.keep_last();
        &self.sent
    }

    /// The last value of every key, in the order of keys.
    pub(super) fn into_sorted(mut self) -> Vec<T> {
        self.keep_last();
        self.sent
    }

    fn keep_last(&mut self) {
        if self.sent.len() > 1 {
            // The sort is stable, so the last value of a key stays the last.
            self.sent.sort_by(|one, other| one.key().cmp(other.key()));
            self.sent.dedup_by(|next, kept| {
                let same = next.key() == kept.key();
                if same {
                    *kept = *next;
                }
                same
            });
        }
        self.different = self.sent.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyed for (&str, usize) {
        fn key(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }

    #[test]
    fn the_last_of_the_same_key_holds() {
        let mut lasts = Lasts::default();
        for (index, key) in ["b", "a", "b", "c", "c"].into_iter().enumerate() {
            lasts.push((key, index));
        }
        assert_eq!(lasts.sorted(), [("a", 1), ("b", 2), ("c", 4)]);
        lasts.clear();
        assert!(lasts.is_empty());
        assert_eq!(lasts.into_sorted(), []);
    }

    #[test]
    fn a_key_sent_very_often_takes_no_room() {
        let mut lasts = Lasts::default();
        for index in 0..100_000 {
            lasts.push(("again", index));
        }
        assert!(lasts.sent.capacity() <= 4 * UNSORTED);
        assert_eq!(lasts.into_sorted(), [("again", 99_999)]);
    }
}
