//! Rows of f64 for models that compare in f64, as those of LightGBM do.
//!
//! A value of a feature is replaced by a number in f32 that lies between the same thresholds of the
//! feature, so that the nodes of trees need no more than f32. Nearly always that number is the
//! nearest f32. It decides the comparison with every threshold whose own nearest f32 is another one;
//! only a value that shares it with a threshold is compared in f64. Where thresholds themselves
//! share one even after the distance to one of them has been taken, as those of times within an hour
//! do before it, the number is the rank of the value among the thresholds.

use crate::{
    Error, SparseRows,
    budget::Budget,
    rows::Rows,
    tree::{Tree, ZERO},
};

/// Bits of the table that says which f32 a threshold has, for each threshold.
const BITS: usize = 32;

/// Rows whose values of a feature are replaced one after the other.
const ROWS: usize = 16;

/// Ranks that are exact in f32.
const RANKS: usize = 1 << 24;

/// The features that splits use, ascending.
#[derive(Debug)]
pub(crate) struct Ranks {
    features: Vec<Feature>,
}

/// The number that stands for a value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// The nearest f32 of its distance to another number, or the next one.
    Near,
    /// The number of thresholds below it, minus that for zero: it is 0 for a value of zero alone if
    /// a split takes zero for a missing value.
    Rank(usize),
    /// The value without its fraction: the feature has categories.
    Category,
}

/// A feature.
#[derive(Debug)]
struct Feature {
    column: u32,
    kind: Kind,
    /// The number whose distance is taken first.
    origin: f64,
    /// The thresholds, ascending.
    thresholds: Box<[f64]>,
    /// A bit for the hash of each nearest f32 of a threshold; all bits if every value is compared.
    marks: Box<[u64]>,
    /// The hash is what remains of the product after this shift.
    shift: u32,
}

/// A numerical split's feature and threshold.
type Split = (u32, f64);

impl Ranks {
    /// Replaces the thresholds in f64 of `trees` by those of the numbers that stand for values.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a feature has categories and thresholds, or too many thresholds, and
    /// [`Error::Memory`].
    pub(crate) fn replace(trees: &mut [Tree], budget: &mut Budget) -> Result<Self, Error> {
        let (mut splits, mut categorical) = (Vec::<Split>::new(), Vec::new());
        for tree in &*trees {
            for (node, threshold) in tree.splits() {
                let feature = node.feature() as u32;
                if node.is_categorical() {
                    budget.push(&mut categorical, feature)?;
                } else if node.zero_is_missing() {
                    // Zero has a rank of its own.
                    for around in [0.0_f64.next_down(), 0.0] {
                        budget.push(&mut splits, (feature, around))?;
                    }
                }
                if !node.is_categorical() {
                    budget.push(&mut splits, (feature, threshold))?;
                }
            }
        }
        let mut features = Vec::new();
        splits.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        splits.dedup();
        categorical.sort_unstable();
        categorical.dedup();
        for of_feature in splits.chunk_by(|a, b| a.0 == b.0) {
            let feature = Feature::new(of_feature, budget)?;
            budget.push(&mut features, feature)?;
        }
        for column in &categorical {
            if features.iter().any(|feature: &Feature| feature.column == *column) {
                return Err(Error::Unsupported(format!(
                    "feature {column} has categories in some splits and thresholds in others, which \
                     rows of float64 cannot have"
                )));
            }
            let feature = Feature::of_categories(*column);
            budget.push(&mut features, feature)?;
        }
        features.sort_unstable_by_key(|feature| feature.column);
        budget.release::<Split>(splits.capacity());
        budget.release::<u32>(categorical.capacity());
        let ranks = Self { features };
        for tree in trees {
            budget.release::<f64>(tree.thresholds.len());
            tree.replace_thresholds(|feature, threshold| ranks.threshold(feature, threshold));
        }
        Ok(ranks)
    }

    /// The number below which are those of all values that are at most `threshold`.
    fn threshold(&self, feature: usize, threshold: f64) -> f32 {
        self.feature(feature as u64).map_or(f32::NEG_INFINITY, |it| it.threshold(threshold))
    }

    fn feature(&self, column: u64) -> Option<&Feature> {
        let found = self.features.binary_search_by_key(&column, |it| it.column.into());
        found.ok().map(|at| &self.features[at])
    }

    /// The numbers that stand for the values of `rows`, in columns of the same places.
    pub(crate) fn of_rows<T: Copy + Into<f64>>(&self, rows: Rows<'_, T>) -> Vec<f32> {
        let values = rows.values();
        let width = rows.width();
        let mut numbers = vec![f32::NAN; values.len()];
        // The tables of a feature stay in the first cache for some rows.
        let some = ROWS * width.max(1);
        for (values, numbers) in values.chunks(some).zip(numbers.chunks_mut(some)) {
            for feature in self.features.iter().take_while(|it| (it.column as usize) < width) {
                let mut at = feature.column as usize;
                while let (Some(value), Some(number)) = (values.get(at), numbers.get_mut(at)) {
                    *number = feature.number((*value).into());
                    at += width;
                }
            }
        }
        numbers
    }

    /// The numbers that stand for the weights of `rows`.
    pub(crate) fn of_weights(&self, rows: SparseRows<'_>) -> Vec<f32> {
        rows.map_weights(|id, weight| {
            self.feature(id).map_or(weight, |feature| feature.number(weight.into()))
        })
    }

    /// Bytes held outside of the structure.
    pub(crate) fn memory(&self) -> usize {
        let of_feature =
            |feature: &Feature| size_of_val(&*feature.thresholds) + size_of_val(&*feature.marks);
        size_of::<Feature>() * self.features.capacity()
            + self.features.iter().map(of_feature).sum::<usize>()
    }
}

impl Feature {
    /// The feature of some splits, with their thresholds in ascending order.
    fn new(splits: &[Split], budget: &mut Budget) -> Result<Self, Error> {
        let mut thresholds = Vec::new();
        budget.reserve(&mut thresholds, splits.len())?;
        thresholds.extend(splits.iter().map(|split| split.1).filter(|it| !it.is_nan()));
        thresholds.dedup();
        let column = splits[0].0;
        let count = thresholds.len();
        let middle = thresholds.get(count / 2).copied().unwrap_or_default();
        let has_zero = thresholds.contains(&0.0_f64.next_down());
        let origin = [0.0, middle].into_iter().find(|it| !has_zero && differ(&thresholds, *it));
        let kind = match origin {
            Some(_) => Kind::Near,
            None if count < RANKS => Kind::Rank(thresholds.partition_point(|it| *it < 0.0)),
            None => {
                let text = format!("feature {column} has {count} thresholds");
                return Err(Error::Unsupported(text));
            }
        };
        let mut marks = ALL.into();
        let mut shift = ALL_SHIFT;
        if let Some(origin) = origin {
            let bits = (BITS * count).next_power_of_two().clamp(64, 1 << 31);
            (marks, shift) = (budget.filled(0, bits / 64)?.into_boxed_slice(), 32 - bits.ilog2());
            for threshold in &thresholds {
                let at = hash(near(*threshold, origin), shift);
                marks[at / 64] |= 1_u64 << (at % 64);
            }
        }
        let thresholds = thresholds.into_boxed_slice();
        let origin = origin.unwrap_or_default();
        Ok(Self { column, kind, origin, thresholds, marks, shift })
    }

    fn of_categories(column: u32) -> Self {
        let thresholds = Box::default();
        let marks = ALL.into();
        Self { column, kind: Kind::Category, origin: 0.0, thresholds, marks, shift: ALL_SHIFT }
    }

    /// The number that stands for a value. NaN stands for NaN.
    #[inline(always)]
    fn number(&self, value: f64) -> f32 {
        let value = if value.abs() <= f64::from(ZERO) { 0.0 } else { value };
        let near = near(value, self.origin);
        let at = hash(near, self.shift);
        match self.marks[at / 64] >> (at % 64) & 1 {
            0 => near,
            _ => self.compared(value, near),
        }
    }

    /// The number for a value that may be next to a threshold.
    #[cold]
    fn compared(&self, value: f64, near: f32) -> f32 {
        let below = self.thresholds.partition_point(|threshold| *threshold < value);
        match self.kind {
            _ if value.is_nan() => f32::NAN,
            Kind::Near => {
                let last =
                    below.checked_sub(1).map(|at| self::near(self.thresholds[at], self.origin));
                if last == Some(near) { near.next_up() } else { near }
            }
            Kind::Rank(zero) => rank(below, zero),
            Kind::Category => value.trunc() as f32,
        }
    }

    /// The number below which are those of all values that are at most `threshold`.
    fn threshold(&self, threshold: f64) -> f32 {
        match self.kind {
            _ if threshold.is_nan() => f32::NEG_INFINITY,
            Kind::Near => near(threshold, self.origin).next_up(),
            Kind::Rank(zero) => {
                rank(self.thresholds.partition_point(|it| *it < threshold) + 1, zero)
            }
            Kind::Category => 0.0,
        }
    }
}

/// The marks, and their shift, of features of which every value is compared.
const ALL: [u64; 1] = [u64::MAX];
const ALL_SHIFT: u32 = 26;

/// The nearest f32 of the distance of a value to another one; zero without a sign.
#[inline(always)]
fn near(value: f64, origin: f64) -> f32 {
    (value - origin) as f32 + 0.0
}

fn rank(below: usize, zero: usize) -> f32 {
    (below as i64 - zero as i64) as f32
}

/// The leading bits of a hash, by Knuth's factor for multiplication.
#[inline(always)]
fn hash(number: f32, shift: u32) -> usize {
    (number.to_bits().wrapping_mul(0x9E37_79B1) >> shift) as usize
}

/// True if the nearest f32 of all distances are finite, and of no two thresholds the same.
fn differ(thresholds: &[f64], origin: f64) -> bool {
    thresholds.iter().all(|it| near(*it, origin).is_finite())
        && thresholds.windows(2).all(|it| near(it[0], origin) != near(it[1], origin))
}

#[cfg(test)]
mod tests;
