//! A map by model whose copies share all parts that are equal, so that a copy with one change costs
//! the same for any number of models.

use std::{
    array,
    collections::BTreeSet,
    fmt,
    hash::{BuildHasher as _, RandomState},
    ops::Index,
    sync::Arc,
};

use outrigger_core::ModelName;

/// The number of shelves, and of buckets on each. Up to about a thousand models, most buckets hold
/// one; beyond that a look-up compares a few names more.
const FAN: usize = 32;

type Bucket<V> = Arc<Vec<(ModelName, V)>>;
type Shelf<V> = Arc<[Bucket<V>; FAN]>;

/// A map by model. A copy shares all buckets with the original until one of them changes.
#[derive(Clone)]
pub struct ModelMap<V> {
    hasher: RandomState,
    shelves: [Shelf<V>; FAN],
}

impl<V> Default for ModelMap<V> {
    fn default() -> Self {
        let shelf: Shelf<V> = Arc::new(array::from_fn(|_| Bucket::default()));
        Self { hasher: RandomState::new(), shelves: array::from_fn(|_| Arc::clone(&shelf)) }
    }
}

impl<V> ModelMap<V> {
    /// The value of `name`.
    pub fn get(&self, name: &ModelName) -> Option<&V> {
        let (shelf, bucket) = self.place(name);
        let bucket = &self.shelves[shelf][bucket];
        bucket.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Whether `name` has a value.
    pub fn contains_key(&self, name: &ModelName) -> bool {
        self.get(name).is_some()
    }

    /// The models and their values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&ModelName, &V)> {
        let buckets = self.shelves.iter().flat_map(|shelf| shelf.iter());
        let mut all: Vec<_> =
            buckets.flat_map(|it| it.iter()).map(|(name, value)| (name, value)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// The values, in the order of their models' names.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The number of models.
    pub fn len(&self) -> usize {
        self.shelves.iter().flat_map(|shelf| shelf.iter()).map(|bucket| bucket.len()).sum()
    }

    /// Whether there is no model.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The models whose values may differ from those of an earlier copy. Finding them costs the
    /// same for any number of equal models.
    pub fn changed_since(&self, before: &Self) -> BTreeSet<ModelName> {
        let shelves = self.shelves.iter().zip(&before.shelves);
        let shelves = shelves.filter(|(now, before)| !Arc::ptr_eq(now, before));
        let buckets = shelves.flat_map(|(now, before)| now.iter().zip(before.iter()));
        let buckets = buckets.filter(|(now, before)| !Arc::ptr_eq(now, before));
        let names = buckets.flat_map(|(now, before)| now.iter().chain(before.iter()));
        names.map(|(name, _)| name.clone()).collect()
    }

    fn place(&self, name: &ModelName) -> (usize, usize) {
        let hash = self.hasher.hash_one(name) as usize;
        (hash % FAN, hash / FAN % FAN)
    }
}

impl<V: Clone> ModelMap<V> {
    pub(crate) fn insert(&mut self, name: ModelName, value: V) {
        let bucket = self.bucket(&name);
        match bucket.iter_mut().find(|(own, _)| *own == name) {
            Some(entry) => entry.1 = value,
            None => bucket.push((name, value)),
        }
    }

    pub(crate) fn remove(&mut self, name: &ModelName) {
        self.bucket(name).retain(|(own, _)| own != name);
    }

    fn bucket(&mut self, name: &ModelName) -> &mut Vec<(ModelName, V)> {
        let (shelf, bucket) = self.place(name);
        Arc::make_mut(&mut Arc::make_mut(&mut self.shelves[shelf])[bucket])
    }
}

impl<V> Index<&ModelName> for ModelMap<V> {
    type Output = V;

    fn index(&self, name: &ModelName) -> &V {
        self.get(name).expect("the model is known")
    }
}

impl<V: Clone> FromIterator<(ModelName, V)> for ModelMap<V> {
    fn from_iter<I: IntoIterator<Item = (ModelName, V)>>(values: I) -> Self {
        let mut map = Self::default();
        values.into_iter().for_each(|(name, value)| map.insert(name, value));
        map
    }
}

impl<V: PartialEq> PartialEq for ModelMap<V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<V: fmt::Debug> fmt::Debug for ModelMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> ModelName {
        format!("model-{number}").parse().expect("a valid name")
    }

    fn numbers(count: usize) -> ModelMap<usize> {
        (0..count).map(|number| (name(number), number)).collect()
    }

    #[test]
    fn it_holds_what_was_put_in_last() {
        let mut map = numbers(5000);
        for number in (0..5000).step_by(3) {
            map.insert(name(number), number + 1);
            map.remove(&name(number + 1));
        }
        for number in 0..5000 {
            let expected = [Some(number + 1), None, Some(number)][number % 3];
            assert_eq!(map.get(&name(number)).copied(), expected);
        }
        assert_eq!(map.len(), map.iter().count());
        assert!(map.iter().is_sorted());
        assert_eq!(map, map.iter().map(|(name, value)| (name.clone(), *value)).collect());
    }

    #[test]
    fn a_copy_shows_its_changes_and_leaves_the_original() {
        let before = numbers(1000);
        let mut after = before.clone();
        assert_eq!(after.changed_since(&before), BTreeSet::new());
        after.insert(name(7), 0);
        after.remove(&name(8));
        after.insert(name(2000), 1);
        let changed = after.changed_since(&before);
        assert!([7, 8, 2000].iter().all(|number| changed.contains(&name(*number))));
        assert!(changed.len() < 30, "{changed:?}");
        assert_eq!(before, numbers(1000));
    }
}
