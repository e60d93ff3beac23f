//! Builds the compact form.

use super::{
    Budget, Compact, EXITS, Nodes, Record, Tables, Top, Values,
    top::{LEVELS, Place},
};
use crate::{
    Error,
    slots::Slots,
    tree::{self, Tree},
};

/// Features that are marked in an array, however few nodes there are.
const DENSE: usize = 1 << 10;

impl Compact {
    /// The features that the trees use, if the trees have a compact form: numerical splits that
    /// take only NaN for missing, and leaves with one value each.
    pub(crate) fn features(trees: &[Tree], budget: &mut Budget) -> Result<Option<Vec<u32>>, Error> {
        if !trees.iter().all(|tree| tree.width == 1 && tree.is_plain) {
            return Ok(None);
        }
        let nodes: usize = trees.iter().map(|tree| tree.nodes.len()).sum();
        // Processors take the indices of a gather for signed numbers.
        if i32::try_from(nodes).is_err() {
            return Ok(None);
        }
        used(trees, budget).map(Some)
    }

    /// Builds the compact form of trees that have one, with the features that they use, and with
    /// tables if they are of use. Each tree is freed when it has been copied.
    pub(crate) fn build(
        trees: Vec<Tree>,
        features: Vec<u32>,
        has_tables: bool,
        budget: &mut Budget,
    ) -> Result<Self, Error> {
        let largest = trees.iter().map(|tree| tree.nodes.len()).max().unwrap_or(0);
        let is_narrow = Nodes::are_narrow(largest, features.len());
        let nodes = trees.iter().map(|tree| tree.nodes.len()).sum();
        let records =
            trees.iter().map(|tree| places(tree).filter(|p| p.is_split(&tree.nodes)).count());
        let mut compact = Self {
            features,
            roots: reserved(trees.len(), budget)?,
            depths: reserved(trees.len(), budget)?,
            nodes: match is_narrow {
                true => Nodes::Narrow(reserved(nodes, budget)?),
                false => Nodes::Wide(reserved(nodes, budget)?),
            },
            values: match trees.first() {
                Some(tree) if tree.doubles() > 0 => Values::Double(reserved(nodes, budget)?),
                _ => Values::Single(reserved(nodes, budget)?),
            },
            ids: reserved(nodes, budget)?,
            tops: reserved(trees.len(), budget)?,
            records: reserved(records.sum(), budget)?,
            tables: Tables::default(),
        };
        let (slots, capacity) = (Slots::new(&compact.features, budget)?, trees.capacity());
        for tree in trees {
            budget.release::<tree::Node>(tree.nodes.len());
            budget.release::<f64>(tree.doubles());
            compact.add(&tree, &slots);
        }
        budget.release::<Tree>(capacity);
        budget.release::<u8>(slots.memory());
        drop(slots);
        // The memory of the trees and slots is free by now. Together with the tables it could exceed
        // what the file allows.
        if has_tables && let Nodes::Narrow(nodes) = &compact.nodes {
            compact.tables = Tables::new(nodes, &compact, budget)?;
        }
        Ok(compact)
    }

    fn add(&mut self, tree: &Tree, slots: &Slots) {
        self.roots.push(self.nodes.len() as u32);
        self.depths.push(tree.depth);
        for (at, node) in tree.nodes.iter().enumerate() {
            if node.is_leaf() {
                self.nodes.push_leaf(at as u32);
            } else {
                let (threshold, slot) = (threshold(*node), slot(*node, slots));
                self.nodes.push_split(threshold, node.left, node.default_left(), slot);
            }
            match &mut self.values {
                Values::Single(values) => values.push(node.value()),
                Values::Double(values) => values.push(tree.double(*node)),
            }
            self.ids.push(node.id);
        }
        let left = self.records.len() as u32;
        self.add_records(tree, slots, true);
        let right = self.records.len() as u32;
        self.add_records(tree, slots, false);
        let end = self.records.len() as u32;
        let mut exits = [0; EXITS];
        for place in places(tree).filter(|place| !place.is_split(&tree.nodes)) {
            exits[place.exit as usize] = place.node as u16;
        }
        self.tops.push(Top { left, right, end, exits });
    }

    /// Adds the records of the splits with this default direction.
    fn add_records(&mut self, tree: &Tree, slots: &Slots, default_left: bool) {
        for place in places(tree).filter(|place| place.is_split(&tree.nodes)) {
            let node = tree.nodes[place.node as usize];
            if node.default_left() == default_left {
                let (threshold, slot) = (threshold(node), slot(node, slots));
                self.records.push(Record { threshold, clear: place.left_exits(), slot });
            }
        }
    }
}

/// The slot of the feature of a split.
fn slot(node: tree::Node, slots: &Slots) -> u32 {
    slots.get(node.feature() as u64).unwrap_or_default() as u32
}

fn reserved<T>(count: usize, budget: &mut Budget) -> Result<Vec<T>, Error> {
    let mut vector = Vec::new();
    budget.reserve(&mut vector, count)?;
    Ok(vector)
}

/// The features that splits use, ascending.
pub(crate) fn used(trees: &[Tree], budget: &mut Budget) -> Result<Vec<u32>, Error> {
    let splits = || {
        let nodes = trees.iter().flat_map(|tree| tree.nodes.iter());
        nodes.filter(|node| !node.is_leaf()).map(|node| node.feature())
    };
    let last = trees.iter().filter_map(|tree| tree.last_feature).max();
    let length = last.map_or(0, |last| last + 1);
    let nodes: usize = trees.iter().map(|tree| tree.nodes.len()).sum();
    let mut features = Vec::new();
    if length <= nodes.max(DENSE) {
        let mut is_used = budget.filled(false, length)?;
        splits().for_each(|feature| is_used[feature] = true);
        budget.reserve(&mut features, is_used.iter().filter(|is_used| **is_used).count())?;
        let numbered = (0..).zip(&is_used).filter(|(_, is_used)| **is_used);
        features.extend(numbered.map(|(feature, _)| feature));
        budget.release::<bool>(length);
        return Ok(features);
    }
    let mut all = Vec::new();
    budget.reserve(&mut all, nodes / 2)?;
    all.extend(splits().map(|feature| feature as u32));
    all.sort_unstable();
    all.dedup();
    budget.reserve(&mut features, all.len())?;
    features.extend_from_slice(&all);
    budget.release::<u32>(all.capacity());
    Ok(features)
}

/// The threshold of a split. XGBoost sends every number right where the threshold is NaN, as where
/// it is negative infinity; but a missing value must go left of it if that is the default.
fn threshold(node: tree::Node) -> f32 {
    if node.value().is_nan() { f32::NEG_INFINITY } else { node.value() }
}

/// The nodes of the top of a tree, and its exits.
fn places(tree: &Tree) -> impl Iterator<Item = Place> {
    let mut places = [Place::ROOT; 2 * EXITS];
    let (mut at, mut count) = (0, 1);
    std::iter::from_fn(move || {
        let place = (at < count).then(|| places[at])?;
        if place.is_split(&tree.nodes) {
            places[count..count + 2].copy_from_slice(&place.children(&tree.nodes));
            count += 2;
        }
        at += 1;
        Some(place)
    })
}

const _: () = assert!(LEVELS == 5 && EXITS == 32, "a mask has a bit for each exit");
