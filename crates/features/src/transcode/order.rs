//! Prediction of the next key: callers nearly always send the keys of every treatment in
//! the same order.

use crate::{
    keys::{Keys, Probe},
    wire::Malformed,
};

/// The number of wrong predictions that is tolerated before the order can be given up.
const FEW: u32 = 32;

/// The number of unknown keys that are part of the order.
const STRANGERS: usize = 32;

/// The order of keys, learned from the first row of a call, or of a later request whose
/// order differed.
#[derive(Debug)]
pub(super) struct Order<'r> {
    learning: bool,
    pub(super) trusted: bool,
    expected: Vec<Expected<'r>>,
    next: usize,
    /// The position of each slot in the order.
    places: Vec<usize>,
    pub(super) asked: u32,
    pub(super) missed: u32,
}

#[derive(Debug)]
struct Expected<'r> {
    probe: Probe,
    key: &'r [u8],
    slot: Option<usize>,
}

impl<'r> Order<'r> {
    /// Creates an order for rows of `width` known keys.
    pub(super) fn new(width: usize) -> Self {
        Self {
            learning: true,
            trusted: false,
            expected: Vec::with_capacity(width + STRANGERS),
            next: 0,
            places: vec![0; width],
            asked: 0,
            missed: 0,
        }
    }

    /// Starts the next request, which may follow the order better or worse than the one
    /// before. A wrong order is learned again.
    pub(super) fn begin_request(&mut self) {
        if !self.learning && !self.trusted {
            self.learning = true;
            self.expected.clear();
        }
        (self.asked, self.missed) = (0, 0);
    }

    /// Starts the next row.
    pub(super) fn restart(&mut self) {
        self.next = 0;
        if self.learning && !self.expected.is_empty() {
            self.learning = false;
            self.trusted = true;
        }
    }

    /// The position of the row's next key, or `None` if the model does not name
    /// it.
    ///
    /// # Errors
    /// An unknown key is not valid UTF-8.
    #[inline]
    pub(super) fn find(&mut self, key: &'r [u8], keys: &Keys) -> Result<Option<usize>, Malformed> {
        let probe = Probe::of(key);
        if self.trusted {
            self.asked = self.asked.saturating_add(1);
            if let Some(expected) = self.expected.get(self.next)
                && expected.probe == probe
                && (probe.is_whole() || expected.key == key)
            {
                self.next += 1;
                return Ok(expected.slot);
            }
            self.miss();
        }
        let slot = keys.find_probe(&probe, key);
        if slot.is_none() {
            std::str::from_utf8(key).map_err(|_| Malformed::Text)?;
        }
        self.record(Expected { probe, key, slot });
        Ok(slot)
    }

    fn miss(&mut self) {
        self.missed += 1;
        if self.missed > FEW && self.missed > self.asked / 8 {
            self.trusted = false;
        }
    }

    #[inline]
    fn record(&mut self, found: Expected<'r>) {
        if self.learning {
            // The order is limited in length: a row may be as long as a message.
            if self.expected.len() == self.expected.capacity() {
                return;
            }
            if let Some(slot) = found.slot {
                self.places[slot] = self.expected.len();
            }
            self.expected.push(found);
        } else if self.trusted
            && let Some(slot) = found.slot
        {
            self.next = self.places[slot] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "a_name_of_more_than_16_bytes"];

    fn keys() -> Keys {
        let names = NAMES.map(Arc::from);
        Keys::new(names.iter())
    }

    fn row<'r>(order: &mut Order<'r>, names: &[&'r str]) -> Vec<Option<usize>> {
        order.restart();
        let find = |name: &&'r str| order.find(name.as_bytes(), &keys()).expect("text");
        names.iter().map(find).collect()
    }

    #[test]
    fn keys_in_the_order_of_the_first_row_are_foreseen() {
        let mut order = Order::new(NAMES.len());
        for _ in 0..3 {
            assert_eq!(
                row(&mut order, &["b", "new", NAMES[3], "a"]),
                [Some(1), None, Some(3), Some(0)]
            );
        }
        assert_eq!((order.asked, order.missed), (8, 0));
    }

    #[test]
    fn a_key_left_out_is_one_miss_and_no_more() {
        let mut order = Order::new(NAMES.len());
        row(&mut order, &["a", "b", "c"]);
        assert_eq!(row(&mut order, &["a", "c"]), [Some(0), Some(2)]);
        assert_eq!(order.missed, 1);
        assert_eq!(row(&mut order, &["b", "c"]), [Some(1), Some(2)]);
        assert_eq!(order.missed, 2);
    }

    #[test]
    fn nothing_is_foreseen_any_more_when_it_keeps_being_wrong() {
        let mut order = Order::new(NAMES.len());
        row(&mut order, &["a", "b", "c"]);
        for _ in 0..40 {
            assert_eq!(row(&mut order, &["c", "a"]), [Some(2), Some(0)]);
        }
        assert!(!order.trusted);
        assert_eq!(order.missed, FEW + 1);
    }

    #[test]
    fn an_order_that_was_wrong_is_learned_anew_from_the_next_request() {
        let mut order = Order::new(NAMES.len());
        row(&mut order, &["a", "b", "c"]);
        for _ in 0..40 {
            row(&mut order, &["c", "b", "a"]);
        }
        assert!(!order.trusted);
        order.begin_request();
        for _ in 0..3 {
            assert_eq!(row(&mut order, &["c", "b", "a"]), [Some(2), Some(1), Some(0)]);
        }
        assert_eq!((order.trusted, order.asked, order.missed), (true, 6, 0));
        order.begin_request();
        assert_eq!(row(&mut order, &["c", "b"]), [Some(2), Some(1)]);
        assert_eq!((order.asked, order.missed), (2, 0), "what was right is kept");
    }

    #[test]
    fn an_unknown_key_must_be_text() {
        let mut order = Order::new(NAMES.len());
        assert_eq!(order.find(b"\xff", &keys()), Err(Malformed::Text));
    }
}
