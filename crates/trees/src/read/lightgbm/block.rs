//! One tree of a file, and its form as the arrays of a tree.
//!
//! A file numbers splits and leaves apart: a child that is not negative is a split, and the leaf
//! `i` is `-i - 1`. Among the nodes of the arrays, leaves come behind the splits.

use super::{Line, Lines, linear::Models};
use crate::{
    Error,
    budget::Budget,
    error::invalid,
    tree::{Arrays, Tree, ZERO},
};

/// The bits of a decision type, and the kinds of missing values in two bits above.
const CATEGORICAL: u8 = 1;
const DEFAULT_LEFT: u8 = 2;
const MISSING: u32 = 2;
const MISSING_NONE: u8 = 0;
const MISSING_ZERO: u8 = 1;
const MISSING_NAN: u8 = 2;

/// Words of the largest set whose categories are exact in f32.
const EXACT: u64 = (1 << 24) / 32;

/// The lines of one tree. Their memory is used again for the next tree.
#[derive(Debug, Default)]
pub(super) struct Block {
    leaves: usize,
    /// The number of sets of categories.
    sets: Option<usize>,
    thresholds: Vec<f64>,
    decisions: Vec<u8>,
    /// The first word of each set of categories, and the number of words.
    boundaries: Vec<u64>,
    arrays: Arrays,
    /// True if splits keep their thresholds in f64.
    is_double: bool,
    /// The linear models of the leaves.
    pub(super) models: Models,
}

impl Block {
    /// No lines. Splits keep their thresholds in f64 if `is_double`.
    pub(super) fn new(is_double: bool) -> Self {
        Self { is_double, ..Self::default() }
    }

    /// Reads the lines of a tree, and returns the line behind them.
    pub(super) fn read(
        &mut self,
        lines: &mut Lines<'_>,
        budget: &mut Budget,
    ) -> Result<Line, Error> {
        self.leaves = 0;
        self.sets = None;
        self.thresholds.clear();
        self.decisions.clear();
        self.boundaries.clear();
        self.arrays.clear();
        self.models.clear();
        self.arrays.lightgbm_categories = true;
        let arrays = &mut self.arrays;
        loop {
            let line = lines.next()?;
            let Line::Key(key) = &line else { return Ok(line) };
            match &**key {
                "Tree" => return Ok(line),
                "num_leaves" => self.leaves = lines.number(key)?,
                "num_cat" => self.sets = Some(lines.number(key)?),
                "split_feature" => lines.numbers(&mut arrays.feature, budget)?,
                "threshold" => lines.numbers(&mut self.thresholds, budget)?,
                "decision_type" => lines.numbers(&mut self.decisions, budget)?,
                "left_child" => lines.numbers(&mut arrays.left, budget)?,
                "right_child" => lines.numbers(&mut arrays.right, budget)?,
                "leaf_value" => lines.numbers(&mut arrays.doubles, budget)?,
                "cat_boundaries" => lines.numbers(&mut self.boundaries, budget)?,
                "cat_threshold" => lines.numbers(&mut arrays.bits, budget)?,
                key => self.models.read(key, lines, budget)?,
            }
        }
    }

    /// Builds the tree.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the lines are those of a tree, and [`Error::Memory`].
    pub(super) fn tree(&mut self, budget: &mut Budget) -> Result<Tree, Error> {
        let splits = self.splits()?;
        self.models.complete(&mut self.arrays.doubles, budget)?;
        let arrays = &mut self.arrays;
        if self.is_double {
            budget.reserve(&mut arrays.thresholds, splits)?;
            arrays.thresholds.extend_from_slice(&self.thresholds);
        }
        let nodes = splits + self.leaves;
        budget.reserve(&mut arrays.condition, nodes)?;
        budget.reserve(&mut arrays.default_left, nodes)?;
        budget.reserve(&mut arrays.zero_is_missing, nodes)?;
        budget.reserve(&mut arrays.split_type, nodes)?;
        for at in 0..splits {
            self.add_split(at, splits, budget)?;
        }
        let arrays = &mut self.arrays;
        budget.reserve(&mut arrays.left, self.leaves)?;
        budget.reserve(&mut arrays.right, self.leaves)?;
        budget.reserve(&mut arrays.feature, self.leaves)?;
        arrays.left.resize(nodes, -1);
        arrays.right.extend(0..self.leaves as i32);
        arrays.feature.resize(nodes, 0);
        arrays.condition.resize(nodes, 0.0);
        arrays.default_left.resize(nodes, 0);
        arrays.zero_is_missing.resize(nodes, false);
        arrays.split_type.resize(nodes, 0);
        arrays.tree(budget)
    }

    /// The number of splits, for each of which there is an element of each array.
    fn splits(&mut self) -> Result<usize, Error> {
        let leaves = self.leaves;
        if leaves == 0 {
            return Err(invalid("a tree has no leaves: num_leaves is missing or 0"));
        }
        if leaves > i32::MAX as usize / 2 {
            return Err(invalid(format!("a tree has {leaves} leaves")));
        }
        let sets = self.sets.ok_or_else(|| invalid("a tree has no num_cat"))?;
        let words = self.boundaries.last().map_or(0, |end| *end as usize);
        let splits = leaves - 1;
        let arrays = &mut self.arrays;
        if splits == 0 {
            // LightGBM does not read them either.
            arrays.feature.clear();
            arrays.left.clear();
            arrays.right.clear();
            self.thresholds.clear();
            self.decisions.clear();
        } else if self.decisions.is_empty() {
            return Err(invalid("a tree has no decision_type"));
        }
        let lengths = [
            ("split_feature", arrays.feature.len(), splits),
            ("threshold", self.thresholds.len(), splits),
            ("decision_type", self.decisions.len(), splits),
            ("left_child", arrays.left.len(), splits),
            ("right_child", arrays.right.len(), splits),
            ("leaf_value", arrays.doubles.len(), leaves),
            (
                "cat_boundaries",
                self.boundaries.len(),
                if sets == 0 { 0 } else { sets.saturating_add(1) },
            ),
            ("cat_threshold", arrays.bits.len(), words),
        ];
        match lengths.into_iter().find(|(_, length, expected)| length != expected) {
            None => Ok(splits),
            Some((name, length, _)) => {
                Err(invalid(format!("{name} has {length} elements for {leaves} leaves")))
            }
        }
    }

    /// Adds what the arrays say about a split.
    fn add_split(&mut self, at: usize, splits: usize, budget: &mut Budget) -> Result<(), Error> {
        let (decision, threshold) = (self.decisions[at], self.thresholds[at]);
        let missing = decision >> MISSING & 3;
        if missing > MISSING_NAN {
            return Err(invalid(format!("{decision} is no decision_type")));
        }
        for child in [&mut self.arrays.left[at], &mut self.arrays.right[at]] {
            *child = node(*child, splits, self.leaves)?;
        }
        if decision & CATEGORICAL != 0 {
            return self.add_set(at, budget);
        }
        let (arrays, left) = (&mut self.arrays, decision & DEFAULT_LEFT != 0);
        let zero_left = 0.0 <= threshold;
        // Where no value was missing in the training, one that is missing counts as zero.
        let default_left = if missing == MISSING_NONE { zero_left } else { left };
        // All numbers are at most infinity, so they go left; in the arrays none is less than its
        // opposite, and they go right.
        let swapped = threshold == f64::INFINITY && !self.is_double;
        if swapped {
            std::mem::swap(&mut arrays.left[at], &mut arrays.right[at]);
        }
        arrays.condition.push(if swapped { f32::NEG_INFINITY } else { less(threshold) });
        arrays.default_left.push(u8::from(default_left != swapped));
        arrays.zero_is_missing.push(missing == MISSING_ZERO && left != zero_left);
        arrays.split_type.push(0);
        Ok(())
    }

    /// Adds the set of a categorical split. Its categories go left in LightGBM, and right in the
    /// arrays. A missing value is in no set.
    fn add_set(&mut self, at: usize, budget: &mut Budget) -> Result<(), Error> {
        let (set, arrays) = (self.thresholds[at], &mut self.arrays);
        let found = self.boundaries.get(set as usize..).and_then(|rest| rest.first_chunk());
        let Some([start, end]) = found.copied().filter(|_| set >= 0.0) else {
            return Err(invalid(format!("a tree has no set of categories {set}")));
        };
        let size = end.checked_sub(start).ok_or_else(|| invalid("cat_boundaries descends"))?;
        if self.is_double && size > EXACT {
            return Err(Error::Unsupported(
                "it has categories from 2^24 on, which rows of float64 cannot have".to_owned(),
            ));
        }
        budget.push(&mut arrays.categorical, at as u32)?;
        budget.push(&mut arrays.segments, start)?;
        budget.push(&mut arrays.sizes, size)?;
        std::mem::swap(&mut arrays.left[at], &mut arrays.right[at]);
        arrays.condition.push(0.0);
        arrays.default_left.push(1);
        arrays.zero_is_missing.push(false);
        arrays.split_type.push(1);
        Ok(())
    }
}

/// The node of the arrays that is the child `child` of a file.
fn node(child: i32, splits: usize, leaves: usize) -> Result<i32, Error> {
    let (number, first, count) =
        if child < 0 { (!child, splits, leaves) } else { (child, 0, splits) };
    if number as usize >= count {
        return Err(invalid(format!("a tree has no node {child}, but a parent of it")));
    }
    Ok(first as i32 + number)
}

/// The number for which `x < less(threshold)` is `x <= threshold` in f64 for every f32 x, but that
/// all numbers from -[`ZERO`] to [`ZERO`] are zero. The threshold is not infinity.
fn less(threshold: f64) -> f32 {
    if threshold.is_nan() {
        // No number is less than or equal to it.
        return f32::NEG_INFINITY;
    }
    let zero = f64::from(ZERO);
    if (-zero..0.0).contains(&threshold) {
        return -ZERO;
    }
    let threshold = if (0.0..zero).contains(&threshold) { zero } else { threshold };
    let nearest = threshold as f32;
    let below = if f64::from(nearest) > threshold { nearest.next_down() } else { nearest };
    below.next_up()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_in_f32_decide_as_those_in_f64() {
        let thresholds = [
            0.1,
            -0.1,
            1.0,
            0.3,
            -3.5,
            1e300,
            -1e300,
            f64::MAX,
            f64::NEG_INFINITY,
            3.5e38,
            -3.5e38,
            16_777_217.0,
            1e-30,
            -1e-30,
            f64::NAN,
            1e-35,
            f64::from(ZERO),
            -f64::from(ZERO),
            1e-40,
            -1e-40,
            0.0,
            -0.0,
            1e-320,
        ];
        for threshold in thresholds {
            let near = threshold as f32;
            let values = [near, near.next_up(), near.next_down(), f32::MAX, f32::MIN];
            let zeros = [0.0, -0.0, ZERO, -ZERO, ZERO.next_up(), -ZERO.next_up(), 1e-40, -1e-40];
            let others = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
            for value in values.into_iter().chain(zeros).chain(others) {
                let zeroed = if value.abs() <= ZERO { 0.0 } else { value };
                let expected = f64::from(zeroed) <= threshold;
                assert_eq!(value < less(threshold), expected, "{value:e} <= {threshold:e}");
            }
        }
    }
}
