//! The weights of all features in one array.

use outrigger_trees::{Budget, Numbering};

use crate::Error;

/// The number of no feature.
pub(crate) const NO_FEATURE: u32 = u32::MAX;

/// The sizes of a factorisation machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The number of classes; 1 for a binary model.
    pub(crate) classes: usize,
    /// The length of a feature's vector, which is k in the formulas.
    pub(crate) factors: usize,
    /// True for a softmax model, false for a binary one.
    pub(crate) softmax: bool,
}

impl Shape {
    /// The length of a vector in the table: zeros follow it, so that loops have fixed steps.
    pub(crate) fn padded(self) -> usize {
        match self.factors {
            0..=4 => self.factors.next_multiple_of(4),
            factors => factors.next_multiple_of(8),
        }
    }

    /// Numbers before the vector: the weight, and the squared norm in a binary model.
    fn head(self) -> usize {
        if self.softmax { 1 } else { 2 }
    }

    /// Numbers of a feature for one class.
    fn of_class(self) -> usize {
        self.head() + self.padded()
    }

    /// Numbers of a feature.
    fn stride(self) -> usize {
        self.classes * self.of_class()
    }

    /// Numbers of a feature in a file: for each class the weight and the vector.
    pub(crate) fn in_file(self) -> usize {
        self.classes * (1 + self.factors)
    }

    /// Writes the numbers of a feature in a file to its place in the table.
    fn write(self, values: &[f32], place: &mut [f32]) {
        let classes = values.chunks_exact(1 + self.factors);
        for (values, place) in classes.zip(place.chunks_exact_mut(self.of_class())) {
            place[0] = values[0];
            if !self.softmax {
                place[1] = values[1..].iter().fold(0.0, |norm, value| norm + value * value);
            }
            place[self.head()..][..self.factors].copy_from_slice(&values[1..]);
        }
    }
}

/// The numbers of one feature for one class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub(crate) weight: f32,
    /// The squared norm of the vector, a sum in f32. Without meaning in a softmax model.
    pub(crate) norm: f32,
    /// The vector, and zeros.
    pub(crate) vector: &'a [f32],
}

/// All features of a factorisation machine. Those with an id come first, those of leaves follow in
/// the order of trees and leaves, so that the leaves of a row are close to each other.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) shape: Shape,
    /// The bias of each class.
    pub(crate) bias: Vec<f32>,
    pub(crate) ids: Numbering,
    values: Vec<f32>,
}

impl Table {
    /// The numbers of a feature for a class.
    #[inline]
    pub(crate) fn weights(&self, feature: u32, class: usize) -> Weights<'_> {
        let size = self.shape.of_class();
        let start = feature as usize * self.shape.stride() + class * size;
        let values = &self.values[start..start + size];
        let head = self.shape.head();
        Weights { weight: values[0], norm: values[head - 1], vector: &values[head..] }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        let numbers = self.bias.capacity() + self.values.capacity();
        size_of::<f32>() * numbers + self.ids.memory()
    }
}

/// Numbers of a block.
const BLOCK: usize = 1 << 14;

/// A table whose number of features is not known yet. It grows by blocks, and so needs no second
/// place for all of its numbers until it is complete.
#[derive(Debug)]
pub(crate) struct Growing {
    shape: Shape,
    bias: Vec<f32>,
    ids: Numbering,
    blocks: Vec<Vec<f32>>,
}

impl Growing {
    pub(crate) fn new(shape: Shape, bias: Vec<f32>, budget: &mut Budget) -> Result<Self, Error> {
        let ids = Numbering::new(budget)?;
        Ok(Self { shape, bias, ids, blocks: Vec::new() })
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn ids(&self) -> &Numbering {
        &self.ids
    }

    /// Adds a feature, with its numbers as in a file. False if the table has it already.
    pub(crate) fn add(
        &mut self,
        id: u64,
        values: &[f32],
        budget: &mut Budget,
    ) -> Result<bool, Error> {
        let feature = self.ids.len();
        if !self.ids.insert(id, budget)? {
            return Ok(false);
        }
        if feature.is_multiple_of(self.features_of_block()) {
            let block = budget.filled(0.0, self.features_of_block() * self.shape.stride())?;
            budget.push(&mut self.blocks, block)?;
        }
        self.write(feature, values);
        Ok(true)
    }

    /// Gives other numbers to a feature that the table has.
    pub(crate) fn replace(&mut self, id: u64, values: &[f32]) {
        if let Some(feature) = self.ids.get(id) {
            self.write(feature, values);
        }
    }

    /// The table, in which copies of the features `leaves` follow the others.
    pub(crate) fn complete(mut self, leaves: &[u32], budget: &mut Budget) -> Result<Table, Error> {
        let (shape, features, stride) = (self.shape, self.ids.len(), self.shape.stride());
        if features + leaves.len() > NO_FEATURE as usize {
            let text = format!("it has more than {NO_FEATURE} features");
            return Err(Error::Unsupported(text));
        }
        let mut values = Vec::new();
        let length = (features + leaves.len()) * stride;
        budget.charge::<f32>(length)?;
        values.reserve_exact(length);
        for block in std::mem::take(&mut self.blocks) {
            let numbers = block.len().min(features * stride - values.len());
            values.extend_from_slice(&block[..numbers]);
            budget.release::<f32>(block.capacity());
        }
        for leaf in leaves {
            let start = *leaf as usize * stride;
            values.extend_from_within(start..start + stride);
        }
        self.ids.shrink(budget);
        Ok(Table { shape, bias: self.bias, ids: self.ids, values })
    }

    fn features_of_block(&self) -> usize {
        (BLOCK / self.shape.stride()).max(1)
    }

    fn write(&mut self, feature: usize, values: &[f32]) {
        let (block, at) = (feature / self.features_of_block(), feature % self.features_of_block());
        let stride = self.shape.stride();
        let place = &mut self.blocks[block][at * stride..][..stride];
        self.shape.write(values, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(shape: Shape, budget: &mut Budget) -> Growing {
        Growing::new(shape, vec![0.0; shape.classes], budget).expect("memory")
    }

    #[test]
    fn features_keep_their_numbers_when_the_table_is_complete() {
        for (classes, factors, softmax) in
            [(1, 8, false), (3, 2, true), (1, 0, false), (2, 0, true)]
        {
            let shape = Shape { classes, factors, softmax };
            let mut budget = Budget::of(u64::MAX);
            let mut table = growing(shape, &mut budget);
            let features = 3 * BLOCK / shape.stride() + 1;
            let values = |feature: usize| -> Vec<_> {
                (0..shape.in_file()).map(|at| (feature * 7 + at) as f32).collect()
            };
            for feature in 0..features {
                let id = 5 * feature as u64;
                assert!(table.add(id, &values(feature + 1), &mut budget).expect("memory"));
                assert!(!table.add(id, &values(0), &mut budget).expect("memory"));
                table.replace(id, &values(feature));
            }
            let last = features as u32 - 1;
            let table = table.complete(&[last, 0], &mut budget).expect("memory");
            let expected = (0..features).chain([features - 1, 0]);
            for (feature, values) in expected.map(values).enumerate() {
                for (class, values) in values.chunks(1 + factors).enumerate() {
                    let found = table.weights(feature as u32, class);
                    assert_eq!(found.weight, values[0]);
                    assert_eq!(found.vector[..factors], values[1..]);
                    assert!(found.vector[factors..].iter().all(|value| *value == 0.0));
                    let norm = values[1..].iter().map(|value| value * value).sum::<f32>();
                    assert!(softmax || found.norm == norm);
                }
            }
            assert_eq!(table.ids.get(5), Some(1));
        }
    }
}
