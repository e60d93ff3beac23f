//! The weights of all features in one array.

use outrigger_trees::{self as trees, Budget, Numbering};

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
    /// Numbers before the vector: the weight, and the negative squared norm in a binary model.
    pub(crate) fn head(self) -> usize {
        if self.softmax { 1 } else { 2 }
    }

    /// Numbers of a feature for one class. Zeros follow a vector, so that all are quads.
    pub(crate) fn of_class(self) -> usize {
        match self.factors {
            0 => self.head(),
            factors => (self.head() + factors).next_multiple_of(4),
        }
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
                place[1] = -values[1..].iter().fold(0.0, |norm, value| norm + value * value);
            }
            place[self.head()..][..self.factors].copy_from_slice(&values[1..]);
        }
    }
}

/// All features of a factorisation machine. Those with an id come first, those of leaves follow in
/// the order of trees and leaves, so that the leaves of a row are close to each other. The last one
/// has zeros, which change no sum: leaves without a feature have it.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) shape: Shape,
    /// The bias of each class.
    pub(crate) bias: Vec<f32>,
    /// The number of the feature with an id.
    pub(crate) ids: trees::Numbers,
    values: Vec<f32>,
}

impl Table {
    /// The number of a feature whose numbers are all 0.
    pub(crate) fn zeros(&self) -> u32 {
        (self.values.len() / self.shape.stride() - 1) as u32
    }

    /// The numbers of all features for a class, from the number `from` on.
    pub(crate) fn numbers(&self, class: usize, from: usize) -> Numbers<'_> {
        let from = class * self.shape.of_class() + from;
        Numbers { values: &self.values[from..], stride: self.shape.stride() }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        let numbers = self.bias.capacity() + self.values.capacity();
        size_of::<f32>() * numbers + self.ids.memory()
    }
}

/// Some of the numbers of all features for a class: the weight, in a binary model the negative
/// squared norm of the vector, which is a sum in f32, and the vector.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<'a> {
    values: &'a [f32],
    /// The distance between those of two features.
    stride: usize,
}

impl Numbers<'_> {
    /// The first 4 times `N` numbers of a feature that has a vector.
    #[inline(always)]
    pub(crate) fn quads<const N: usize>(self, feature: u32) -> [[f32; 4]; N] {
        let (quads, _) = self.values[feature as usize * self.stride..].as_chunks();
        *quads.first_chunk().expect("the numbers of a feature")
    }

    /// The weight alone of a feature, in a quad.
    #[inline(always)]
    pub(crate) fn weight(self, feature: u32) -> [[f32; 4]; 1] {
        [[self.values[feature as usize * self.stride], 0.0, 0.0, 0.0]]
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

    /// The table, in which copies of the features `leaves` follow the others, and a feature of zeros
    /// follows them.
    pub(crate) fn complete(mut self, leaves: &[u32], budget: &mut Budget) -> Result<Table, Error> {
        let (shape, features, stride) = (self.shape, self.ids.len(), self.shape.stride());
        if features + leaves.len() >= NO_FEATURE as usize {
            let text = format!("it has {NO_FEATURE} features or more");
            return Err(Error::Unsupported(text));
        }
        // Frees memory before there are two places for all numbers.
        let ids = self.ids.complete(budget)?;
        let mut values = Vec::new();
        let length = (features + leaves.len() + 1) * stride;
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
        values.resize(length, 0.0);
        Ok(Table { shape, bias: self.bias, ids, values })
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
                    if factors == 0 {
                        let [weight] = table.numbers(class, 0).weight(feature as u32);
                        assert_eq!(weight, [values[0], 0.0, 0.0, 0.0]);
                        continue;
                    }
                    let quad = |from| table.numbers(class, from).quads::<1>(feature as u32)[0];
                    let found = (0..shape.of_class()).step_by(4).flat_map(quad);
                    let found: Vec<_> = found.collect();
                    let (head, vector) = found.split_at(shape.head());
                    let norm = values[1..].iter().map(|value| value * value).sum::<f32>();
                    assert_eq!(*head, [values[0], -norm][..shape.head()]);
                    assert_eq!(vector[..factors], values[1..]);
                    assert!(vector[factors..].iter().all(|value| *value == 0.0));
                }
            }
            assert_eq!(table.ids.get(5), Some(1));
        }
    }
}
