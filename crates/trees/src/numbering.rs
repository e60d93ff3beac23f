//! Ids, each with a number.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
};

use crate::{Budget, Error};

/// A slot without an id.
const EMPTY: u32 = u32::MAX;
const SLOTS: usize = 16;

/// Ids, numbered in the order in which they were added. An open hash table with linear probing,
/// whose slots hold numbers; at most half of the slots are taken.
///
/// The hash is keyed with a random number, so that no file or request can choose ids which share a
/// slot.
#[derive(Debug)]
pub struct Numbering {
    ids: Vec<u64>,
    slots: Vec<u32>,
    key: u64,
}

impl Numbering {
    /// No ids.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(budget: &mut Budget) -> Result<Self, Error> {
        let slots = budget.filled(EMPTY, SLOTS)?;
        let key = RandomState::new().build_hasher().finish();
        Ok(Self { ids: Vec::new(), slots, key })
    }

    /// The number of `id`, if it was added.
    #[inline]
    pub fn get(&self, id: u64) -> Option<usize> {
        match self.slots[self.find(id)] {
            EMPTY => None,
            number => Some(number as usize),
        }
    }

    /// Adds `id`, if it is new. False if it was added before.
    ///
    /// # Errors
    /// [`Error::Memory`], and [`Error::Unsupported`] if there is no number left.
    pub fn insert(&mut self, id: u64, budget: &mut Budget) -> Result<bool, Error> {
        let slot = self.find(id);
        if self.slots[slot] != EMPTY {
            return Ok(false);
        }
        let number = number(self.ids.len())?;
        budget.push(&mut self.ids, id)?;
        self.slots[slot] = number;
        if 2 * self.ids.len() > self.slots.len() {
            self.grow(budget)?;
        }
        Ok(true)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if there are no ids.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Frees memory that no id needs.
    pub fn shrink(&mut self, budget: &mut Budget) {
        budget.release::<u64>(self.ids.capacity() - self.ids.len());
        self.ids.shrink_to_fit();
    }

    /// The ids, in the order in which they were added.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The ids alone, in the order in which they were added.
    pub fn into_ids(self, budget: &mut Budget) -> Vec<u64> {
        budget.release::<u32>(self.slots.len());
        self.ids
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        size_of::<u64>() * self.ids.capacity() + size_of::<u32>() * self.slots.capacity()
    }

    fn grow(&mut self, budget: &mut Budget) -> Result<(), Error> {
        let slots = budget.filled(EMPTY, 2 * self.slots.len())?;
        let old = std::mem::replace(&mut self.slots, slots);
        for (at, id) in self.ids.iter().enumerate() {
            let slot = self.find(*id);
            self.slots[slot] = number(at)?;
        }
        budget.release::<u32>(old.len());
        Ok(())
    }

    /// The slot of `id`, or the empty slot in which it belongs.
    #[inline]
    fn find(&self, id: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hash(id) as usize & mask;
        while self.slots[slot] != EMPTY && self.ids[self.slots[slot] as usize] != id {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The folded multiplication of wyhash (Wang Yi, 2019).
    #[inline]
    fn hash(&self, id: u64) -> u64 {
        let product = u128::from(id ^ self.key) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        (product >> 64) as u64 ^ product as u64
    }
}

/// A number as slots hold it.
fn number(at: usize) -> Result<u32, Error> {
    let number = u32::try_from(at).ok().filter(|number| *number != EMPTY);
    number.ok_or_else(|| Error::Unsupported("it has more than 4294967294 ids".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_have_the_numbers_of_a_map(
            added in prop::collection::vec(prop_oneof![0_u64..50, any::<u64>()], 0..300),
            asked in prop::collection::vec(prop_oneof![0_u64..50, any::<u64>()], 0..50),
        ) {
            let mut budget = Budget::of(1 << 20);
            let mut ids = Numbering::new(&mut budget).expect("memory");
            let mut map = HashMap::new();
            for id in &added {
                let (new, next) = (!map.contains_key(id), map.len());
                map.entry(*id).or_insert(next);
                prop_assert_eq!(ids.insert(*id, &mut budget).expect("memory"), new);
            }
            for id in added.iter().chain(&asked) {
                prop_assert_eq!(ids.get(*id), map.get(id).copied());
            }
            prop_assert_eq!(ids.len(), map.len());
            ids.shrink(&mut budget);
            prop_assert_eq!(ids.memory() as u64, budget.held());
        }
    }

    #[test]
    fn ids_beyond_the_budget_are_refused() {
        let mut budget = Budget::of(1000);
        let mut ids = Numbering::new(&mut budget).expect("memory");
        let error = (0..).find_map(|id| ids.insert(id, &mut budget).err()).expect("no end");
        assert!(matches!(error, Error::Memory { limit: 1000, .. }), "{error:?}");
        assert!(ids.len() > 10);
    }
}
