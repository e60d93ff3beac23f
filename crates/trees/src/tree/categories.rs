//! The sets of categories of a tree's categorical splits.

use std::ops::Range;

use crate::{Error, budget::Budget, error::invalid};

/// Categories are below this number, because larger integers are not exact in f32.
const CATEGORIES: u32 = 1 << 24;

/// Categories of LightGBM are integers of 32 bits that are not negative.
const LIGHTGBM_CATEGORIES: usize = 1 << 31;

/// The header of a set that is a sorted list. Other sets are bits, 32 categories a word.
const LIST: u32 = 1 << 31;

/// Sets of categories, one after the other: a header with the number of words, and the words. A set
/// is a list of categories where that is shorter than bits, so that it is never longer than in the
/// file.
#[derive(Debug)]
pub(crate) struct Categories {
    words: Vec<u32>,
    /// The numbers that stand for categories. Others are in no set.
    numbers: Range<f32>,
}

impl Categories {
    /// The numbers that stand for categories in models of XGBoost.
    pub(crate) const XGBOOST: Range<f32> = 0.0..CATEGORIES as f32;
    /// The numbers that stand for categories in models of LightGBM, where a fraction above -1
    /// stands for category 0.
    pub(crate) const LIGHTGBM: Range<f32> = (-1.0_f32).next_up()..LIGHTGBM_CATEGORIES as f32;

    /// No sets.
    pub(crate) fn new(numbers: Range<f32>) -> Self {
        Self { words: Vec::new(), numbers }
    }

    /// Adds a set of bits, 32 categories a word, and returns its place.
    pub(crate) fn add_bits(&mut self, set: &[u32], budget: &mut Budget) -> Result<u32, Error> {
        if set.len() > LIGHTGBM_CATEGORIES / 32 {
            return Err(invalid("a set has too many categories"));
        }
        let place = u32::try_from(self.words.len()).map_err(|_| invalid("too many categories"))?;
        let last = set.iter().rposition(|word| *word != 0);
        let set = &set[..last.map_or(0, |last| last + 1)];
        let count: usize = set.iter().map(|word| word.count_ones() as usize).sum();
        if count >= set.len() {
            budget.reserve(&mut self.words, 1 + set.len())?;
            self.words.push(set.len() as u32);
            self.words.extend_from_slice(set);
            return Ok(place);
        }
        budget.reserve(&mut self.words, 1 + count)?;
        self.words.push(count as u32 | LIST);
        for (at, word) in set.iter().enumerate() {
            let bits = (0..32).filter(|bit| word >> bit & 1 == 1);
            self.words.extend(bits.map(|bit| 32 * at as u32 + bit));
        }
        Ok(place)
    }

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

    /// True if the set at `place` has the category that `value`, a number, stands for. The libraries
    /// cut off the fraction, and a number that stands for no category is in no set.
    pub(crate) fn contains(&self, place: u32, value: f32) -> bool {
        if !self.numbers.contains(&value) {
            return false;
        }
        // A fraction below zero becomes 0.
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
        let mut categories = Categories::new(Categories::XGBOOST);
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
    fn sets_of_bits_have_their_categories() {
        let mut budget = Budget::new(&Limits::default(), 1000);
        let mut categories = Categories::new(Categories::LIGHTGBM);
        let sparse: Vec<_> = (0..40).map(|word| u32::from(word == 39)).collect();
        let sets: [&[u32]; 4] = [&[0b101], &[0, 1 << 31, 0], &sparse, &[]];
        let members: [&[u32]; 4] = [&[0, 2], &[63], &[39 * 32], &[]];
        for (set, members) in sets.iter().zip(members) {
            let place = categories.add_bits(set, &mut budget).expect("a valid set");
            for category in [0, 1, 2, 31, 32, 62, 63, 64, 95, 96, 39 * 32, 40 * 32, 1 << 30] {
                let found = categories.contains(place, category as f32);
                assert_eq!(found, members.contains(&category), "{category} in {set:?}");
            }
        }
        assert!(categories.contains(0, -0.5), "a fraction is cut off below zero too");
        assert!(categories.contains(0, 2.9));
        for none in [-1.0, 2_147_483_648.0, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!categories.contains(0, none), "{none} is no category");
        }
    }

    #[test]
    fn a_category_must_be_an_exact_number() {
        let mut budget = Budget::new(&Limits::default(), 1000);
        let added = Categories::new(Categories::XGBOOST).add(&mut [CATEGORIES], &mut budget);
        assert!(matches!(added, Err(Error::Invalid(_))));
    }
}
