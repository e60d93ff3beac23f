//! The covers of nodes, as far as contributions need them.

use crate::{Error, budget::Budget, tree::Tree};

/// For each split of each tree, the part of its cover that its left child has. Two bytes a node are
/// held in place of the covers themselves.
#[derive(Debug)]
pub(crate) struct Covers(Vec<Box<[f32]>>);

impl Covers {
    /// Takes the covers out of the trees. None if a tree has none.
    pub(crate) fn take(trees: &mut [Tree], budget: &mut Budget) -> Result<Option<Self>, Error> {
        let mut all = Vec::new();
        budget.reserve(&mut all, trees.len())?;
        all.extend(trees.iter_mut().map(|tree| std::mem::take(&mut tree.left_parts)));
        // Half of the nodes of a tree are splits, apart from one leaf.
        if all.iter().zip(&*trees).all(|(parts, tree)| parts.len() == tree.nodes.len() / 2) {
            return Ok(Some(Self(all)));
        }
        budget.release::<f32>(all.iter().map(|parts| parts.len()).sum());
        budget.release::<Box<[f32]>>(all.capacity());
        Ok(None)
    }

    /// The parts of the left children of a tree's splits.
    pub(crate) fn of(&self, tree: usize) -> &[f32] {
        &self.0[tree]
    }

    /// The number of trees.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        let parts: usize = self.0.iter().map(|parts| size_of_val(&**parts)).sum();
        size_of::<Box<[f32]>>() * self.0.capacity() + parts
    }
}
