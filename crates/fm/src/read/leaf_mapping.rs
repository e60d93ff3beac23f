//! The features of leaves: `deploy.leaf_mapping` of XGBoost Serving.

use outrigger_trees::{self as trees, Budget, Numbering};

use crate::{
    Error, Part, Skipped,
    read::{
        Fault, Faults, File, Lines,
        lines::{fields, parsed, quoted},
    },
};

/// The leaves whose features are in the table, in the order of trees and leaves.
pub(crate) struct Mapped {
    /// The tree and the number of each leaf.
    pub(crate) leaves: Vec<(u32, u32)>,
    /// The feature of each leaf: its number in the table.
    pub(crate) features: Vec<u32>,
    /// Entries that were skipped.
    pub(crate) skipped: Skipped,
}

/// Reads the mapping for `trees`. `ids` are the features of the table.
pub(crate) fn leaf_mapping(
    file: File<'_>,
    lenient: bool,
    trees: &trees::Model,
    ids: &Numbering,
    budget: &mut Budget,
) -> Result<Mapped, Error> {
    let mut faults = Faults::new(Part::LeafMapping, "line", lenient);
    let mut lines = Lines::new(file);
    let known = Leaves::of(trees, budget)?;
    let trees = known.trees();
    let (leaves, features) = (Numbering::new(budget)?, Vec::new());
    let mut mapping = Mapping { known, leaves, features, table: ids };
    while let Some(line) = lines.next(&mut faults, budget)? {
        let mut pairs = fields(line);
        match tree(pairs.next(), pairs.clone().next(), trees) {
            Ok(tree) => pairs.try_for_each(|pair| mapping.add(tree, pair, &mut faults, budget))?,
            Err(fault) => faults.found(fault)?,
        }
    }
    mapping.sorted(faults.skipped, budget)
}

/// The tree of a line that has at least one pair.
fn tree(tree: Option<&[u8]>, pair: Option<&[u8]>, trees: usize) -> Result<u32, Fault> {
    let field = tree.ok_or("the line is empty")?;
    let found: Option<u32> = parsed(field);
    let tree = found.ok_or_else(|| format!("{} is no tree", quoted(field)))?;
    pair.ok_or("the line has no leaves")?;
    let exists = (tree as usize) < trees;
    exists.then_some(tree).ok_or_else(|| format!("there is no tree {tree}, but {trees} trees"))
}

/// The leaves of all trees.
struct Leaves {
    /// The numbers of the leaves in the file of the trees: ascending for each tree, tree after tree.
    numbers: Vec<u32>,
    /// The number of leaves before those of each tree, and that of all leaves.
    before: Vec<usize>,
}

impl Leaves {
    fn of(trees: &trees::Model, budget: &mut Budget) -> Result<Self, Error> {
        let mut before = budget.filled(0, trees.width(trees::Output::Leaf) + 1)?;
        trees.for_each_leaf(|tree, _| before[tree + 1] += 1);
        let mut count = 0;
        for leaves in &mut before {
            count += *leaves;
            *leaves = count;
        }
        let mut numbers = Vec::new();
        budget.reserve(&mut numbers, count)?;
        trees.for_each_leaf(|_, leaf| numbers.push(leaf));
        for ends in before.windows(2) {
            numbers[ends[0]..ends[1]].sort_unstable();
        }
        Ok(Self { numbers, before })
    }

    /// The number of trees.
    fn trees(&self) -> usize {
        self.before.len() - 1
    }

    /// True if `tree`, which exists, has this leaf.
    fn contains(&self, tree: u32, leaf: u32) -> bool {
        let ends = &self.before[tree as usize..];
        self.numbers[ends[0]..ends[1]].binary_search(&leaf).is_ok()
    }

    /// Frees them.
    fn release(self, budget: &mut Budget) {
        budget.release::<u32>(self.numbers.capacity());
        budget.release::<usize>(self.before.len());
    }
}

struct Mapping<'a> {
    known: Leaves,
    /// The tree (upper half) and the number of each leaf, in the order of the file.
    leaves: Numbering,
    /// The feature of each leaf in the table.
    features: Vec<Option<u32>>,
    table: &'a Numbering,
}

impl Mapping<'_> {
    fn add(
        &mut self,
        tree: u32,
        pair: &[u8],
        faults: &mut Faults,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        let Some((leaf, id)) = leaf_and_feature(pair) else {
            return faults.found(format!("{} is no leaf with a feature", quoted(pair)));
        };
        if !self.known.contains(tree, leaf) {
            return faults.found(format!(
                "tree {tree} has no leaf {leaf}: leaves have the numbers that pred_leaf returns"
            ));
        }
        if !self.leaves.insert(u64::from(tree) << 32 | u64::from(leaf), budget)? {
            return faults.found(format!("leaf {leaf} of tree {tree} is there already"));
        }
        let feature = self.table.get(id).map(|feature| feature as u32);
        Ok(budget.push(&mut self.features, feature)?)
    }

    fn sorted(self, skipped: Skipped, budget: &mut Budget) -> Result<Mapped, Error> {
        self.known.release(budget);
        let pairs = self.leaves.into_ids(budget);
        let mut both: Vec<(u64, u32)> = Vec::new();
        budget.reserve(&mut both, pairs.len())?;
        let known = pairs.iter().zip(&self.features);
        both.extend(known.filter_map(|(leaf, feature)| Some((*leaf, (*feature)?))));
        budget.release::<u64>(pairs.capacity());
        budget.release::<Option<u32>>(self.features.capacity());
        drop((pairs, self.features));
        both.sort_unstable();
        let mut mapped = Mapped { leaves: Vec::new(), features: Vec::new(), skipped };
        budget.reserve(&mut mapped.leaves, both.len())?;
        budget.reserve(&mut mapped.features, both.len())?;
        mapped.leaves.extend(both.iter().map(|(leaf, _)| ((leaf >> 32) as u32, *leaf as u32)));
        mapped.features.extend(both.iter().map(|(_, feature)| *feature));
        budget.release::<(u64, u32)>(both.capacity());
        Ok(mapped)
    }
}

/// A pair of a leaf and the id of its feature.
fn leaf_and_feature(pair: &[u8]) -> Option<(u32, u64)> {
    // Runs of the separator are one separator, and it may begin or end the pair.
    let mut parts = pair.split(|byte| *byte == b':').filter(|part| !part.is_empty());
    let (leaf, id) = (parsed(parts.next()?)?, parts.next()?);
    // XGBoost Serving reads ids as i32 and widens them, so that negative ones become large.
    let widened = parsed::<i32>(id).map(|id| i64::from(id).cast_unsigned());
    let id = widened.or_else(|| parsed(id))?;
    parts.next().is_none().then_some((leaf, id))
}
