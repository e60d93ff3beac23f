//! The sets of categories of a tree's categorical splits.

use crate::{Error, budget::Budget, error::invalid};

/// Categories are below this number, because larger integers are not exact in f32.
const CATEGORIES: u32 = 1 << 24;

/// The header of a set that is a sorted list. Other sets are bits, 32 categories a word.
const LIST: u32 = 1 << 31;

/// Sets of categories, one after the other: a header with the number of words, and the words. A set
/// is a list of categories where that is shorter than bits, so that it is never longer than in the
/// file.
#[derive(Debug, Default)]
pub(crate) struct Categories {
    words: Vec<u32>,
}

impl Categories {
    /// Adds a set and returns its place.
    pub(crate) fn add(&mut self, set: &mut [u32], budget: &mut Budget) -> Result<u32, Error> {
        set.sort_unstable();
        let last = set.last().copied().unwrap_or(0);
        if last >= CATEGORIES {
            return Err(invalid(format!("category {last} of a split is out of range")));
        }
        let place = u32::try_from(self.words.len()).map_err(|_| invalid("too many categories"))?;
        let words = last as usize / 32 + 1;
        if set.len() < words {
            budget.reserve(&mut self.words, 1 + set.len())?;
            self.words.push(set.len() as u32 | LIST);
            self.words.extend_from_slice(set);
        } else {
            budget.reserve(&mut self.words, 1 + words)?;
            self.words.push(words as u32);
            let start = self.words.len();
            self.words.resize(start + words, 0);
            for category in set {
                self.words[start + *category as usize / 32] |= 1 << (*category % 32);
            }
        }
        Ok(place)
    }

    /// True if the set at `place` has the category that `value`, a number, stands for. XGBoost
    /// cuts off the fraction, and a number that stands for no category is in no set.
    pub(crate) fn contains(&self, place: u32, value: f32) -> bool {
        if !(0.0..CATEGORIES as f32).contains(&value) {
            return false;
        }
        let category = value as u32;
        let place = place as usize;
        let header = self.words[place];
        let set = &self.words[place + 1..][..(header & !LIST) as usize];
        if header & LIST != 0 {
            return set.binary_search(&category).is_ok();
        }
        set.get(category as usize / 32).is_some_and(|word| word >> (category % 32) & 1 == 1)
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        size_of::<u32>() * self.words.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn sets_of_any_density_have_their_categories() {
        let mut budget = Budget::new(&Limits::default(), 1000);
        let mut categories = Categories::default();
        let sets: [&[u32]; 5] = [&[0], &[31, 32], &[5, 1, 5], &[9_000_000, 7], &[]];
        let places =
            sets.map(|set| categories.add(&mut set.to_vec(), &mut budget).expect("a valid set"));
        for (set, place) in sets.iter().zip(places) {
            for category in [0, 1, 5, 6, 7, 31, 32, 33, 64, 8_999_999, 9_000_000, 16_777_215] {
                let found = categories.contains(place, category as f32);
                assert_eq!(found, set.contains(&category), "{category} in {set:?}");
            }
        }
        assert!(categories.contains(places[0], 0.9), "a fraction is cut off");
        for none in [-0.5, -1.0, 16_777_216.0, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!categories.contains(places[0], none), "{none} is no category");
        }
        assert!(categories.memory() < 200, "a list is short");
    }

    #[test]
    fn a_category_must_be_an_exact_number() {
        let mut budget = Budget::new(&Limits::default(), 1000);
        let added = Categories::default().add(&mut [CATEGORIES], &mut budget);
        assert!(matches!(added, Err(Error::Invalid(_))));
    }
}
