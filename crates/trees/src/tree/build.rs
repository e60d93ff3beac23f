//! Builds a tree from the arrays of a file.

use super::{Categories, Node, Tree};
use crate::{Error, budget::Budget, error::invalid};

/// The arrays of one tree, as a file has them: an element for each node. They are used again for
/// the next tree.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    /// The left child of each node; -1 for a leaf.
    pub(crate) left: Vec<i32>,
    /// The right child of each node. In a tree with vectors, the number of a leaf's vector.
    pub(crate) right: Vec<i32>,
    pub(crate) feature: Vec<u32>,
    /// The threshold of each split, and the value of each leaf.
    pub(crate) condition: Vec<f32>,
    /// The threshold of each split in f64, of models that compare in f64. Empty for others.
    pub(crate) thresholds: Vec<f64>,
    pub(crate) default_left: Vec<u8>,
    /// True for each split that takes zero for a missing value. Empty if none does.
    pub(crate) zero_is_missing: Vec<bool>,
    /// 1 for a categorical split, 0 for any other. Empty if no split is categorical.
    pub(crate) split_type: Vec<u8>,
    pub(crate) categories: Vec<u32>,
    /// Sets of categories as bits, 32 categories a word, in place of `categories`.
    pub(crate) bits: Vec<u32>,
    /// True if numbers stand for categories as in LightGBM.
    pub(crate) lightgbm_categories: bool,
    /// The nodes with a categorical split; for each of them the first and the number of its
    /// `categories`, or of its words of `bits`.
    pub(crate) categorical: Vec<u32>,
    pub(crate) segments: Vec<u64>,
    pub(crate) sizes: Vec<u64>,
    /// Values of a leaf's vector; below 2 if leaves have one value.
    pub(crate) width: usize,
    /// The vectors of the leaves, in the order of the leaves' numbers.
    pub(crate) vectors: Vec<f32>,
    /// A vector for each node, in files without `vectors`.
    pub(crate) weights: Vec<f32>,
    /// The values of the leaves in f64, in place of those in `condition`, in the order of the
    /// leaves' numbers: `width` of each, or one. The number of a leaf is its `right`.
    pub(crate) doubles: Vec<f64>,
    /// The cover of each node: the weight of the training rows that came to it, the sum of their
    /// second derivatives. Empty if the file has none.
    pub(crate) covers: Vec<f32>,
    /// Nodes in breadth-first order.
    order: Vec<u32>,
    /// True for each node that has been reached.
    reached: Vec<bool>,
}

impl Arrays {
    /// Empties the arrays.
    pub(crate) fn clear(&mut self) {
        let Self { left, right, feature, condition, default_left, split_type, .. } = self;
        left.clear();
        right.clear();
        feature.clear();
        condition.clear();
        default_left.clear();
        split_type.clear();
        self.thresholds.clear();
        self.zero_is_missing.clear();
        self.categories.clear();
        self.bits.clear();
        self.lightgbm_categories = false;
        self.categorical.clear();
        self.segments.clear();
        self.sizes.clear();
        self.width = 0;
        self.vectors.clear();
        self.weights.clear();
        self.doubles.clear();
        self.covers.clear();
        self.order.clear();
        self.reached.clear();
    }

    /// Frees the arrays.
    pub(crate) fn free(self, budget: &mut Budget) {
        let integers =
            [&self.feature, &self.categories, &self.bits, &self.categorical, &self.order];
        let floats = [&self.condition, &self.vectors, &self.weights, &self.covers];
        budget.release::<u32>(integers.iter().map(|array| array.capacity()).sum());
        budget.release::<f32>(floats.iter().map(|array| array.capacity()).sum());
        budget.release::<i32>(self.left.capacity() + self.right.capacity());
        budget.release::<u64>(self.segments.capacity() + self.sizes.capacity());
        budget.release::<u8>(self.default_left.capacity() + self.split_type.capacity());
        budget.release::<bool>(self.reached.capacity() + self.zero_is_missing.capacity());
        budget.release::<f64>(self.doubles.capacity() + self.thresholds.capacity());
    }

    /// Builds the tree.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the arrays are those of a tree, and [`Error::Memory`].
    pub(crate) fn tree(&mut self, budget: &mut Budget) -> Result<Tree, Error> {
        self.check_lengths()?;
        let depth = self.sort(budget)?;
        let numbers = match self.lightgbm_categories {
            true => Categories::LIGHTGBM,
            false => Categories::XGBOOST,
        };
        let mut tree = Tree {
            nodes: Box::default(),
            depth,
            last_feature: None,
            is_plain: true,
            categories: Categories::new(numbers),
            vectors: Box::default(),
            width: self.width.max(1),
            doubles: Box::default(),
            thresholds: Box::default(),
            left_parts: self.left_parts(budget)?,
        };
        let sets = self.sets(&mut tree.categories, budget)?;
        let mut nodes = Vec::new();
        budget.reserve(&mut nodes, self.order.len())?;
        let mut vectors = Vec::new();
        let mut doubles = Vec::new();
        let mut thresholds = Vec::new();
        budget.reserve(&mut doubles, self.doubles.len())?;
        budget.reserve(&mut thresholds, self.thresholds.len())?;
        let mut next = 1;
        for id in &self.order {
            let mut node = self.node(*id, &sets)?;
            if self.left[*id as usize] == -1 {
                self.complete_leaf(&mut node, &mut vectors, &mut doubles, budget)?;
            } else {
                node.left = next;
                next += 2;
                thresholds.extend(self.thresholds.get(*id as usize));
                tree.last_feature = tree.last_feature.max(Some(node.feature()));
                tree.is_plain &= !node.is_categorical() && !node.zero_is_missing();
            }
            nodes.push(node);
        }
        budget.release::<(u32, u32)>(sets.capacity());
        tree.nodes = nodes.into_boxed_slice();
        tree.vectors = vectors.into_boxed_slice();
        tree.doubles = doubles.into_boxed_slice();
        tree.thresholds = thresholds.into_boxed_slice();
        Ok(tree)
    }

    /// Completes a leaf: puts its vector, or its values in f64, behind those of other leaves.
    fn complete_leaf(
        &self,
        leaf: &mut Node,
        vectors: &mut Vec<f32>,
        doubles: &mut Vec<f64>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        if !self.doubles.is_empty() {
            leaf.id = self.right[leaf.id as usize].cast_unsigned();
            leaf.content = place(doubles)?;
            doubles.extend_from_slice(self.values(leaf.id)?);
        } else if self.width > 1 {
            leaf.content = place(vectors)?;
            budget.reserve(vectors, self.width)?;
            vectors.extend_from_slice(self.vector(leaf.id)?);
        }
        Ok(())
    }

    fn check_lengths(&self) -> Result<(), Error> {
        let count = self.left.len();
        if count == 0 {
            return Err(invalid("a tree has no nodes"));
        }
        if i32::try_from(count).is_err() {
            return Err(invalid("a tree has too many nodes"));
        }
        let of_nodes = [
            ("right_children", self.right.len()),
            ("split_indices", self.feature.len()),
            ("split_conditions", self.condition.len()),
            ("default_left", self.default_left.len()),
        ];
        for (name, length) in of_nodes {
            if length != count {
                return Err(invalid(format!("{name} has {length} elements for {count} nodes")));
            }
        }
        if ![0, count].contains(&self.zero_is_missing.len()) {
            return Err(invalid("zero_is_missing has not one element for each node"));
        }
        if !self.split_type.is_empty() && self.split_type.len() != count {
            return Err(invalid("split_type has not one element for each node"));
        }
        let sets = self.categorical.len();
        if self.segments.len() != sets || self.sizes.len() != sets {
            return Err(invalid("the arrays of categorical splits differ in length"));
        }
        Ok(())
    }

    /// Puts the nodes that can be reached into breadth-first order, and returns the depth.
    fn sort(&mut self, budget: &mut Budget) -> Result<u32, Error> {
        budget.reserve(&mut self.reached, self.left.len())?;
        self.reached.resize(self.left.len(), false);
        budget.reserve(&mut self.order, self.left.len())?;
        self.reach(0)?;
        let (mut depth, mut at) = (0, 0);
        loop {
            let level = self.order.len();
            while at < level {
                let node = self.order[at] as usize;
                if self.left[node] != -1 {
                    self.reach(self.left[node])?;
                    self.reach(self.right[node])?;
                }
                at += 1;
            }
            if self.order.len() == level {
                return Ok(depth);
            }
            depth += 1;
            if depth > budget.depth() {
                return Err(invalid(format!("a tree has more than {} levels", budget.depth())));
            }
        }
    }

    fn reach(&mut self, node: i32) -> Result<(), Error> {
        let found = usize::try_from(node).ok().and_then(|at| self.reached.get_mut(at));
        match found {
            Some(reached @ false) => *reached = true,
            Some(true) => return Err(invalid(format!("node {node} of a tree has two parents"))),
            None => return Err(invalid(format!("a tree has no node {node}, but a parent of it"))),
        }
        self.order.push(node as u32);
        Ok(())
    }

    /// Adds the sets of categories. Returns, sorted, each node with the place of its set.
    fn sets(
        &mut self,
        categories: &mut Categories,
        budget: &mut Budget,
    ) -> Result<Vec<(u32, u32)>, Error> {
        let mut sets = Vec::new();
        budget.reserve(&mut sets, self.categorical.len())?;
        let segments = self.segments.iter().zip(&self.sizes);
        for (node, (start, size)) in self.categorical.iter().zip(segments) {
            let end = start.checked_add(*size).and_then(|end| usize::try_from(end).ok());
            let range = end.map(|end| *start as usize..end);
            let added = if self.bits.is_empty() {
                let set = range.and_then(|range| self.categories.get_mut(range));
                set.map(|set| categories.add(set, budget))
            } else {
                let set = range.and_then(|range| self.bits.get(range));
                set.map(|set| categories.add_bits(set, budget))
            };
            let place =
                added.ok_or_else(|| invalid("a set of categories is not in the file"))??;
            sets.push((*node, place));
        }
        sets.sort_unstable();
        Ok(sets)
    }

    /// The node without its child.
    fn node(&self, id: u32, sets: &[(u32, u32)]) -> Result<Node, Error> {
        let at = id as usize;
        let content = self.condition[at].to_bits();
        if self.left[at] == -1 {
            return Ok(Node { content, left: 0, split: 0, id });
        }
        let mut split = self.feature[at];
        if split >= Node::FEATURES {
            return Err(invalid(format!("feature {split} of a split is out of range")));
        }
        if self.default_left[at] != 0 {
            split |= Node::DEFAULT_LEFT;
        }
        if self.zero_is_missing.get(at) == Some(&true) {
            split |= Node::ZERO_IS_MISSING;
        }
        match self.split_type.get(at) {
            None | Some(0) => Ok(Node { content, left: 0, split, id }),
            Some(1) => {
                let set = sets.binary_search_by_key(&id, |(node, _)| *node);
                let set = set.map_err(|_| invalid("a categorical split has no categories"))?;
                let split = split | Node::CATEGORICAL;
                Ok(Node { content: sets[set].1, left: 0, split, id })
            }
            Some(other) => Err(invalid(format!("{other} is no type of a split"))),
        }
    }

    /// The part of the cover of each split that its left child has, in the order of the splits.
    /// Empty if the file has no covers, or numbers that are none.
    fn left_parts(&self, budget: &mut Budget) -> Result<Box<[f32]>, Error> {
        let mut parts = Vec::new();
        if self.covers.len() != self.left.len() {
            return Ok(Box::default());
        }
        budget.reserve(&mut parts, self.order.len() / 2)?;
        for node in self.order.iter().map(|node| *node as usize) {
            if self.left[node] == -1 {
                continue;
            }
            let children = [self.left[node], self.right[node]];
            let [left, right] = children.map(|child| f64::from(self.covers[child as usize]));
            let (both, is_root) = (left + right, parts.is_empty());
            // No row of the training came to a split without cover. Its children count alike.
            let part = if both > 0.0 { left / both } else { 0.5 };
            if left.min(right) < 0.0 || !both.is_finite() || is_root && both == 0.0 {
                budget.release::<f32>(parts.capacity());
                return Ok(Box::default());
            }
            parts.push(part as f32);
        }
        Ok(parts.into_boxed_slice())
    }

    /// The vector of a leaf.
    fn vector(&self, id: u32) -> Result<&[f32], Error> {
        let (vectors, number) = match self.vectors.is_empty() {
            true => (&self.weights, usize::try_from(id).ok()),
            false => (&self.vectors, usize::try_from(self.right[id as usize]).ok()),
        };
        let vector = number.and_then(|number| element(vectors, number, self.width));
        vector.ok_or_else(|| invalid(format!("leaf {id} of a tree has no vector")))
    }

    /// The values of a leaf in f64.
    fn values(&self, leaf: u32) -> Result<&[f64], Error> {
        let values = element(&self.doubles, leaf as usize, self.width.max(1));
        values.ok_or_else(|| invalid(format!("leaf {leaf} of a tree has no value")))
    }
}

/// The place of the next values behind those of other leaves.
fn place<T>(values: &[T]) -> Result<u32, Error> {
    u32::try_from(values.len()).map_err(|_| invalid("the values of its leaves are too many"))
}

/// The element with this number of an array whose elements have `width` values each.
fn element<T>(values: &[T], number: usize, width: usize) -> Option<&[T]> {
    let start = number.checked_mul(width)?;
    values.get(start..start.checked_add(width)?)
}
