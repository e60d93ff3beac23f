//! The features of leaves: `deploy.leaf_mapping` of XGBoost Serving.

use outrigger_trees::{Budget, Numbering};

use crate::{
    Error, Part,
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
    pub(crate) skipped: u64,
}

/// Reads the mapping for `trees` trees. `ids` are the features of the table.
pub(crate) fn leaf_mapping(
    file: File<'_>,
    lenient: bool,
    trees: usize,
    ids: &Numbering,
    budget: &mut Budget,
) -> Result<Mapped, Error> {
    let mut faults = Faults::new(Part::LeafMapping, "line", lenient);
    let mut lines = Lines::new(file);
    let mut mapping = Mapping { leaves: Numbering::new(budget)?, features: Vec::new(), table: ids };
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

struct Mapping<'a> {
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
        if !self.leaves.insert(u64::from(tree) << 32 | u64::from(leaf), budget)? {
            return faults.found(format!("leaf {leaf} of tree {tree} is there already"));
        }
        let feature = self.table.get(id).map(|feature| feature as u32);
        Ok(budget.push(&mut self.features, feature)?)
    }

    fn sorted(self, skipped: u64, budget: &mut Budget) -> Result<Mapped, Error> {
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
