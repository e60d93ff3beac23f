//! Which key comes next: callers send the keys of every treatment in the same
//! order far more often than not.

use super::{
    keys::{Keys, Probe},
    wire::Malformed,
};

/// Fewer misses than this decide nothing.
const FEW: u32 = 32;

/// The order of keys, learned from the first row of a call.
#[derive(Debug)]
pub(super) struct Order<'r> {
    learning: bool,
    trusted: bool,
    expected: Vec<Expected<'r>>,
    next: usize,
    /// For each slot, where it stands in the order.
    places: Vec<usize>,
    asked: u32,
    missed: u32,
}

#[derive(Debug)]
struct Expected<'r> {
    probe: Probe,
    key: &'r [u8],
    slot: Option<usize>,
}

impl<'r> Order<'r> {
    /// For rows of `width` known keys.
    pub(super) fn new(width: usize) -> Self {
        Self {
            learning: true,
            trusted: false,
            expected: Vec::with_capacity(width),
            next: 0,
            places: vec![0; width],
            asked: 0,
            missed: 0,
        }
    }

    /// Begins with the next row.
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
    /// An unknown key that is no text.
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
        self.note(Expected { probe, key, slot });
        Ok(slot)
    }

    fn miss(&mut self) {
        self.missed += 1;
        if self.missed > FEW && self.missed > self.asked / 8 {
            self.trusted = false;
        }
    }

    #[inline]
    fn note(&mut self, found: Expected<'r>) {
        if self.learning {
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
