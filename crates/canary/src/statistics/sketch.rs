//! A quantile sketch with a relative error: `DDSketch`.
//!
//! Masson, Rim & Lee, "DDSketch: a fast and fully-mergeable quantile sketch with
//! relative-error guarantees" (VLDB 2019). Bin `i` holds the magnitudes in
//! `(γ^(i-1), γ^i]` with `γ = (1 + a) / (1 - a)`; magnitudes out of range go to the
//! nearest bin, so that memory is bounded and merging stays associative.

use serde::{Deserialize, Serialize};

use super::Merge;

/// The relative error of a quantile between [`Sketch::LEAST`] and [`Sketch::MOST`].
pub const ACCURACY: f64 = 0.01;

/// Counts of values by magnitude and sign.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sketch {
    negative: Bins,
    zero: u64,
    positive: Bins,
}

impl Sketch {
    /// Smaller magnitudes count as zero.
    pub const LEAST: f64 = 1e-9;
    /// Larger magnitudes count as this one.
    pub const MOST: f64 = 1e9;

    /// Counts a value; NaN is not counted.
    pub fn record(&mut self, value: f64) {
        if value.abs() < Self::LEAST {
            self.zero += 1;
        } else if value > 0.0 {
            self.positive.add(index_of(value), 1);
        } else if value < 0.0 {
            self.negative.add(index_of(-value), 1);
        }
    }

    /// Counts a value of bin `index`; bins out of range count as the first or the last.
    pub(super) fn record_bin(&mut self, index: i32) {
        self.positive.add(index.clamp(FIRST, LAST), 1);
    }

    /// Number of counted values.
    pub fn count(&self) -> u64 {
        self.negative.count() + self.zero + self.positive.count()
    }

    /// Number of values above the upper edge of bin `index`.
    pub fn above(&self, index: i32) -> u64 {
        self.positive.above(index)
    }

    /// The value that a share `quantile` of the values does not exceed; `None` if the
    /// sketch is empty.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let last = self.count().checked_sub(1)?;
        let mut rank = (quantile.clamp(0.0, 1.0) * last as f64).floor() as u64;
        let negative = self.negative.iter().rev().map(|(index, count)| (-middle(index), count));
        let positive = self.positive.iter().map(|(index, count)| (middle(index), count));
        for (value, count) in negative.chain([(0.0, self.zero)]).chain(positive) {
            if rank < count {
                return Some(value);
            }
            rank -= count;
        }
        None
    }

    /// Every count multiplied by `factor` and rounded.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self {
            negative: self.negative.scaled(factor),
            zero: scaled(self.zero, factor),
            positive: self.positive.scaled(factor),
        }
    }
}

impl Merge for Sketch {
    fn merge(&mut self, other: &Self) {
        self.negative.merge(&other.negative);
        self.zero += other.zero;
        self.positive.merge(&other.positive);
    }
}

/// `ln((1 + ACCURACY) / (1 - ACCURACY))`.
const LN_GAMMA: f64 = 0.020_000_666_706_669_524;

/// The bin of a positive value.
pub(crate) fn index_of(value: f64) -> i32 {
    bin(place(value))
}

/// The position of a value among the edges: `n` at the upper edge of bin `n`.
pub(super) fn place(value: f64) -> f64 {
    steps_of_log(value.clamp(Sketch::LEAST, Sketch::MOST).ln())
}

/// The bin of a position.
pub(super) fn bin(place: f64) -> i32 {
    // Rounds up; `ceil` is a function call on older processors.
    let whole = place as i32;
    whole + i32::from(place > f64::from(whole))
}

/// The bin of [`Sketch::LEAST`].
pub(crate) const FIRST: i32 = -1036;
/// The bin of [`Sketch::MOST`].
pub(crate) const LAST: i32 = 1037;

/// True if `index` is within the sketch's range.
pub(crate) fn is_bin(index: i32) -> bool {
    (FIRST..=LAST).contains(&index)
}

/// The upper edge of a bin.
pub(crate) fn edge(index: i32) -> f64 {
    (f64::from(index) * LN_GAMMA).exp()
}

/// The distance in bins of two values whose ratio is `ratio`.
pub(crate) fn steps(ratio: f64) -> f64 {
    steps_of_log(ratio.ln())
}

/// The distance in bins of two values whose ratio has the logarithm `log`.
pub(super) fn steps_of_log(log: f64) -> f64 {
    log * (1.0 / LN_GAMMA)
}

/// The value with the same relative distance to both edges of a bin.
fn middle(index: i32) -> f64 {
    edge(index) * (1.0 - ACCURACY)
}

pub(super) fn scaled(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).round() as u64
}

/// Counts by index; covers the range from the first to the last bin that is not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SavedBins")]
struct Bins {
    first: i32,
    counts: Vec<u64>,
}

impl Bins {
    fn add(&mut self, index: i32, count: u64) {
        self.cover(index);
        self.counts[(index - self.first) as usize] += count;
    }

    fn cover(&mut self, index: i32) {
        if self.counts.is_empty() {
            self.first = index;
        }
        if index < self.first {
            let missing = (self.first - index) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = index;
        }
        let needed = (index - self.first) as usize + 1;
        if needed > self.counts.len() {
            self.counts.resize(needed, 0);
        }
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn above(&self, index: i32) -> u64 {
        let from = (index + 1).saturating_sub(self.first).max(0) as usize;
        self.counts.get(from..).unwrap_or_default().iter().sum()
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (i32, u64)> {
        let bins = self.counts.iter().copied().enumerate();
        bins.map(|(offset, count)| (self.first + offset as i32, count))
    }

    fn scaled(&self, factor: f64) -> Self {
        let mut scaled_bins = Self::default();
        for (index, count) in self.iter() {
            let count = scaled(count, factor);
            if count > 0 {
                scaled_bins.add(index, count);
            }
        }
        scaled_bins
    }

    fn merge(&mut self, other: &Self) {
        for (index, count) in other.iter() {
            if count > 0 {
                self.add(index, count);
            }
        }
    }
}

/// The serialised bins before validation.
#[derive(Deserialize)]
struct SavedBins {
    first: i32,
    counts: Vec<u64>,
}

impl TryFrom<SavedBins> for Bins {
    type Error = &'static str;

    fn try_from(SavedBins { first, counts }: SavedBins) -> Result<Self, Self::Error> {
        let last = i32::try_from(counts.len()).ok().and_then(|count| first.checked_add(count - 1));
        if counts.is_empty() || (is_bin(first) && last.is_some_and(is_bin)) {
            Ok(Self { first, counts })
        } else {
            Err("bins out of a sketch's range")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_constants_match_their_definitions() {
        assert_eq!(LN_GAMMA, 2.0 * ACCURACY.atanh());
        assert_eq!([FIRST, LAST], [Sketch::LEAST, Sketch::MOST].map(index_of));
    }

    #[test]
    fn memory_is_bounded() {
        let mut sketch = Sketch::default();
        for value in [0.0, 1e-300, 5e-324, 1e300, -1e300, f64::INFINITY, f64::NAN] {
            sketch.record(value);
        }
        assert_eq!(sketch.count(), 6);
        assert!(sketch.positive.counts.len() + sketch.negative.counts.len() < 5000);
        assert_eq!(Sketch::default().quantile(0.5), None);
    }

    #[test]
    fn bins_out_of_range_are_refused() {
        let read = |bins: &str| serde_json::from_str::<Bins>(bins);
        assert!(read(r#"{"first": 0, "counts": []}"#).is_ok());
        assert!(read(r#"{"first": -195, "counts": [1, 0, 2]}"#).is_ok());
        assert!(read(r#"{"first": -2000000000, "counts": [1]}"#).is_err());
        assert!(read(r#"{"first": 2147483647, "counts": [1, 1]}"#).is_err());
        assert!(read(r#"{"first": 1037, "counts": [1, 1]}"#).is_err());
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        let value = prop_oneof![
            -1e6..1e6,
            (-20.0..20.0f64).prop_map(f64::exp),
            Just(0.0),
            (-20.0..20.0f64).prop_map(|exponent| -exponent.exp())
        ];
        prop::collection::vec(value, 1..300)
    }

    fn sketch_of(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        values.iter().for_each(|value| sketch.record(*value));
        sketch
    }

    proptest! {
        #[test]
        fn quantiles_are_within_the_relative_error(
            mut values in values(), quantile in 0.0..=1.0f64,
        ) {
            let found = sketch_of(&values).quantile(quantile).unwrap();
            values.sort_unstable_by(f64::total_cmp);
            let exact = values[(quantile * (values.len() - 1) as f64) as usize];
            let error = (found - exact).abs();
            prop_assert!(error <= exact.abs() * ACCURACY * 1.000_001, "{} for {}", found, exact);
        }

        #[test]
                fn values_above_an_edge_are_counted_exactly(values in values(), index in -900..900) {
            let above = values.iter().filter(|value| index_of(value.max(1e-9)) > index);
            let positive = above.filter(|value| **value >= Sketch::LEAST).count() as u64;
            prop_assert_eq!(sketch_of(&values).above(index), positive);
            for value in values.into_iter().filter(|value| *value >= Sketch::LEAST) {
                // Only rounding may place a value outside its bin's edges.
                prop_assert!(value <= edge(index_of(value)) * (1.0 + 1e-12));
                prop_assert!(value >= edge(index_of(value) - 1) * (1.0 - 1e-12));
            }
        }
    }
}
