//! Tables of nodes, for vectors that permute their elements: they find an element of a table in a few
//! instructions, without a gather.
//!
//! The tables of a tree have the nodes of the levels 5 to 7 at their places in a complete tree: 32, 64
//! and 128 of them. Those for one row have the nodes of the levels 0 to 4 of 16 trees: a part for
//! each place, with an element for each tree. A leaf of a higher level is at all places below it.

use super::{Compact, EXITS, LEVELS, Node};
use crate::{Error, budget::Budget};

/// Lanes of the vectors of the kernels.
pub(crate) const LANES: usize = 16;

/// Levels that have a table of each tree.
const TABLES: u32 = 3;

/// Nodes of a complete tree with [`LEVELS`] levels.
pub(crate) const SPLITS: usize = EXITS - 1;

/// The thresholds and the links of 16 nodes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Part {
    pub(crate) thresholds: [f32; LANES],
    pub(crate) links: [u32; LANES],
}

impl Part {
    const LEAVES: Self = Self { thresholds: [f32::NAN; LANES], links: [Node::CHILD; LANES] };

    fn set(&mut self, lane: usize, node: Node) {
        (self.thresholds[lane], self.links[lane]) = (node.threshold, node.link);
    }
}

/// The tables of all trees. Empty for processors without such vectors, where nodes are wide, and for
/// small trees.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The tables of the levels, from the highest one on, tree after tree.
    levels: Vec<Part>,
    /// The first part of each tree in `levels`, and the end.
    places: Vec<u32>,
    /// The highest levels of every 16 trees.
    tops: Vec<[Part; SPLITS]>,
}

impl Tables {
    /// The tables of `trees`, whose nodes are `nodes`. None of trees so small that the nodes of 16
    /// would fill less than half of the table of their tops.
    pub(super) fn new(nodes: &[Node], trees: &Compact, budget: &mut Budget) -> Result<Self, Error> {
        let (mut tables, count) = (Self::default(), trees.roots.len());
        if nodes.len() < count * SPLITS.div_ceil(2) {
            return Ok(tables);
        }
        let levels = |tree: usize| levels(trees.depths[tree], trees.range(tree).len());
        let parts = (0..count).map(|tree| (EXITS / LANES) * ((1 << levels(tree)) - 1));
        budget.reserve(&mut tables.levels, parts.sum())?;
        budget.reserve(&mut tables.places, count + 1)?;
        budget.reserve(&mut tables.tops, count.div_ceil(LANES))?;
        tables.places.push(0);
        for tree in 0..count {
            tables.add(&nodes[trees.range(tree)], levels(tree), &trees.tops[tree].exits);
        }
        Ok(tables)
    }

    /// Adds a tree with these nodes, these exits from its top, and so many levels below it that have
    /// tables.
    fn add(&mut self, nodes: &[Node], levels: u32, exits: &[u16; EXITS]) {
        let number = self.places.len() - 1;
        let children = |place: u32| nodes[place as usize].children(place);
        if number.is_multiple_of(LANES) {
            self.tops.push([Part::LEAVES; SPLITS]);
        }
        let top = self.tops.last_mut().expect("a part of 16 trees");
        let mut places = [0; 2 * EXITS];
        for (place, part) in top.iter_mut().enumerate() {
            let node = places[place];
            part.set(number % LANES, nodes[node as usize]);
            places[2 * place + 1..2 * place + 3].copy_from_slice(&children(node));
        }
        let mut level: Vec<_> = exits.iter().map(|exit| u32::from(*exit)).collect();
        for _ in 0..levels {
            for places in level.as_chunks::<LANES>().0 {
                let mut part = Part::LEAVES;
                for (lane, place) in places.iter().enumerate() {
                    part.set(lane, nodes[*place as usize]);
                }
                self.levels.push(part);
            }
            level = level.into_iter().flat_map(children).collect();
        }
        self.places.push(self.levels.len() as u32);
    }

    /// The tables of the levels of a tree: none, or 2, 6 or 14 parts.
    #[inline(always)]
    pub(crate) fn levels(&self, tree: usize) -> &[Part] {
        match self.places.get(tree..tree + 2) {
            Some(&[first, end]) => &self.levels[first as usize..end as usize],
            _ => &[],
        }
    }

    /// The highest levels of `M` times 16 trees, from 16 times `number` on, if there are tables.
    #[inline(always)]
    pub(crate) fn tops<const M: usize>(&self, number: usize) -> Option<&[[Part; SPLITS]; M]> {
        self.tops.get(number..)?.first_chunk()
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.levels) + size_of_val(&*self.places) + size_of_val(&*self.tops)
    }
}

/// The number of tables of a tree of this depth with so many nodes. A table that its nodes would fill
/// to less than a half is left out, so that a tree has at most 28 bytes of tables for each node.
fn levels(depth: u32, nodes: usize) -> u32 {
    let deep = depth.saturating_sub(LEVELS).min(TABLES);
    (0..deep).take_while(|level| nodes >= (EXITS / 2) << level).count() as u32
}
