//! Ids, each with a number: [`Numbering`] as long as ids are added, then [`Numbers`].

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
};

use crate::{Budget, Error};

/// A slot without an id, or an id without a number.
const EMPTY: u32 = u32::MAX;
const SLOTS: usize = 16;

/// Sorted ids that share a table with one that has a number, at most on average.
const SPARSE: usize = 8;

/// Sorted ids of a table of any density.
const FEW: usize = 1 << 10;

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

    /// The numbers of these ids, to which no others are added. They take no more memory.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn complete(mut self, budget: &mut Budget) -> Result<Numbers, Error> {
        let (count, length) = (self.ids.len(), length(self.ids.iter().max().copied()));
        if length > self.slots.len() as u64 {
            budget.release::<u64>(self.ids.capacity() - count);
            self.ids.shrink_to_fit();
            return Ok(Numbers { count, table: Table::Hashed(self) });
        }
        // The slots become the table.
        let mut numbers = self.slots;
        numbers.fill(EMPTY);
        (0..).zip(&self.ids).for_each(|(number, id)| numbers[*id as usize] = number);
        budget.release::<u64>(self.ids.capacity());
        Ok(Numbers { count, table: Table::Direct(numbers) })
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

/// The numbers of ids, when all are known.
#[derive(Debug)]
pub struct Numbers {
    count: usize,
    table: Table,
}

#[derive(Debug)]
enum Table {
    /// The number of each id from 0 on, or [`EMPTY`].
    Direct(Vec<u32>),
    /// For ids that are far from each other.
    Hashed(Numbering),
}

impl Numbers {
    /// The positions of `ids`, which ascend.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn of_sorted(ids: &[u32], budget: &mut Budget) -> Result<Self, Error> {
        let (count, length) = (ids.len(), length(ids.last().copied().map(u64::from)));
        if length > FEW.max(SPARSE * count) as u64 {
            let mut numbering = Numbering::new(budget)?;
            for id in ids {
                numbering.insert(u64::from(*id), budget)?;
            }
            return numbering.complete(budget);
        }
        let mut numbers = budget.filled(EMPTY, length as usize)?;
        (0..).zip(ids).for_each(|(number, id)| numbers[*id as usize] = number);
        Ok(Self { count, table: Table::Direct(numbers) })
    }

    /// The number of `id`, if it has one.
    #[inline]
    pub fn get(&self, id: u64) -> Option<usize> {
        match &self.table {
            Table::Direct(numbers) => {
                let number = *numbers.get(usize::try_from(id).ok()?)?;
                (number != EMPTY).then_some(number as usize)
            }
            Table::Hashed(numbering) => numbering.get(id),
        }
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are no ids.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The ids, in the order of their numbers.
    pub fn ids(&self) -> Vec<u64> {
        match &self.table {
            Table::Direct(numbers) => {
                let mut ids = vec![0; self.count];
                let known = (0..).zip(numbers).filter(|(_, number)| **number != EMPTY);
                known.for_each(|(id, number)| ids[*number as usize] = id);
                ids
            }
            Table::Hashed(numbering) => numbering.ids.clone(),
        }
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        match &self.table {
            Table::Direct(numbers) => size_of::<u32>() * numbers.capacity(),
            Table::Hashed(numbering) => numbering.memory(),
        }
    }
}

/// The length of a table up to the last id.
fn length(last: Option<u64>) -> u64 {
    last.map_or(0, |last| last.saturating_add(1))
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
            near in prop::collection::vec(0_u64..2000, 0..300),
            far in prop::collection::vec(prop_oneof![0_u64..1 << 32, any::<u64>()], 0..20),
            is_dense in any::<bool>(),
        ) {
            let mut budget = Budget::of(1 << 20);
            let mut ids = Numbering::new(&mut budget).expect("memory");
            let mut map = HashMap::new();
            let added = if is_dense { near.clone() } else { [&*far, &*near].concat() };
            for id in &added {
                let (new, next) = (!map.contains_key(id), map.len());
                map.entry(*id).or_insert(next);
                prop_assert_eq!(ids.insert(*id, &mut budget).expect("memory"), new);
            }
            prop_assert_eq!(ids.len(), map.len());
            prop_assert_eq!(ids.memory() as u64, budget.held());
            let asked: Vec<_> = (0..2100).chain(far).chain([1 << 32, u64::MAX]).collect();
            for id in &asked {
                prop_assert_eq!(ids.get(*id), map.get(id).copied());
            }
            let held = budget.held();
            let numbers = ids.complete(&mut budget).expect("memory");
            prop_assert!(budget.held() <= held);
            for id in &asked {
                prop_assert_eq!(numbers.get(*id), map.get(id).copied());
            }
            prop_assert_eq!((numbers.len(), numbers.is_empty()), (map.len(), map.is_empty()));
            let in_order = numbers.ids().into_iter().map(|id| map[&id]);
            prop_assert!(in_order.eq(0..map.len()));
            prop_assert_eq!(numbers.memory() as u64, budget.held());
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
