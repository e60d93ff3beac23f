//! The binary format of XGBoost before 3.1, little-endian without names of fields.
//!
//! The layouts are those of `LearnerModelParamLegacy`, `GBTreeModelParam`, `TreeParam` and
//! `RegTree::Node` in XGBoost's sources.

use super::{
    Extent,
    model::{Booster, Content},
    source::Source,
};
use crate::{
    Error,
    budget::Budget,
    error::invalid,
    tree::{Arrays, Tree},
};

/// Bytes of the names that are kept, and of an attribute that is read.
const NAME: u64 = 1 << 10;

/// Bytes of a node, and of its statistics.
const NODE: u64 = 20;
const STATISTICS: u64 = 16;

/// Reads `extent` of a model.
pub(crate) fn read(
    source: &mut Source<'_>,
    extent: Extent,
    budget: &mut Budget,
) -> Result<Content, Error> {
    if source.window(4)?.starts_with(b"binf") {
        source.consume(4);
    }
    let mut content = Content::default();
    let has_attributes = learner(source, &mut content)?;
    content.booster = Booster::named(&string(source)?.unwrap_or_default())?;
    trees(source, &mut content, extent, budget)?;
    for _ in 0..content.count {
        let group = u32::from_le_bytes(source.array()?);
        budget.push(&mut content.groups, group)?;
    }
    if content.booster == Booster::Dart {
        weights(source, &mut content, budget)?;
    }
    if has_attributes {
        attributes(source, &mut content)?;
    }
    Ok(content)
}

/// Reads the parameters and the objective. True if attributes follow the booster.
fn learner(source: &mut Source<'_>, content: &mut Content) -> Result<bool, Error> {
    let base = f32::from_le_bytes(source.array()?);
    content.base = vec![base];
    content.features = size(source)?;
    content.classes = size(source)?;
    let has_attributes = i32::from_le_bytes(source.array()?) != 0;
    source.skip(4)?;
    content.version =
        vec![u32::from_le_bytes(source.array()?), u32::from_le_bytes(source.array()?)];
    content.targets = size(source)?;
    source.skip(4 + 25 * 4)?;
    let objective = string(source)?.ok_or_else(|| invalid("the name of its objective is long"))?;
    content.base_is_margin = content.version[0] < 1 && !objective.starts_with("multi:");
    content.objective = objective;
    Ok(has_attributes)
}

/// Reads the trees, or passes over them.
fn trees(
    source: &mut Source<'_>,
    content: &mut Content,
    extent: Extent,
    budget: &mut Budget,
) -> Result<(), Error> {
    content.count = size(source)?;
    content.parallel = size(source)?;
    source.skip(38 * 4)?;
    let mut arrays = Arrays::default();
    for _ in 0..content.count {
        let nodes = nodes(source)?;
        if extent == Extent::Header {
            source.skip((NODE + STATISTICS) * nodes as u64)?;
            continue;
        }
        let tree = tree(source, nodes, &mut arrays, budget)?;
        budget.push(&mut content.trees, tree)?;
    }
    arrays.free(budget);
    Ok(())
}

/// Reads the parameters of a tree, and returns the number of its nodes.
fn nodes(source: &mut Source<'_>) -> Result<usize, Error> {
    source.skip(4)?;
    let count = size(source)?;
    source.skip(3 * 4)?;
    let width = size(source)?;
    if width > 1 {
        return Err(Error::Unsupported("it has leaves with vectors, in the binary format".into()));
    }
    source.skip(31 * 4)?;
    if (count as u64).saturating_mul(NODE + STATISTICS) > source.remaining() {
        return Err(invalid("a tree is longer than the file"));
    }
    Ok(count)
}

/// Reads a tree of `count` nodes.
fn tree(
    source: &mut Source<'_>,
    count: usize,
    arrays: &mut Arrays,
    budget: &mut Budget,
) -> Result<Tree, Error> {
    arrays.clear();
    budget.reserve(&mut arrays.left, count)?;
    budget.reserve(&mut arrays.right, count)?;
    budget.reserve(&mut arrays.feature, count)?;
    budget.reserve(&mut arrays.condition, count)?;
    budget.reserve(&mut arrays.default_left, count)?;
    budget.reserve(&mut arrays.covers, count)?;
    for _ in 0..count {
        source.skip(4)?;
        arrays.left.push(i32::from_le_bytes(source.array()?));
        arrays.right.push(i32::from_le_bytes(source.array()?));
        let split = u32::from_le_bytes(source.array()?);
        arrays.feature.push(split & (u32::MAX >> 1));
        arrays.default_left.push((split >> 31) as u8);
        arrays.condition.push(f32::from_le_bytes(source.array()?));
    }
    for _ in 0..count {
        source.skip(4)?;
        arrays.covers.push(f32::from_le_bytes(source.array()?));
        source.skip(2 * 4)?;
    }
    arrays.tree(budget)
}

/// Reads the weights of the trees of dart.
fn weights(
    source: &mut Source<'_>,
    content: &mut Content,
    budget: &mut Budget,
) -> Result<(), Error> {
    let count = u64::from_le_bytes(source.array()?);
    for _ in 0..count {
        let weight = f32::from_le_bytes(source.array()?);
        budget.push(&mut content.weights, weight)?;
    }
    Ok(())
}

fn attributes(source: &mut Source<'_>, content: &mut Content) -> Result<(), Error> {
    let count = u64::from_le_bytes(source.array()?);
    for _ in 0..count {
        let (key, value) = (string(source)?, string(source)?);
        if key.as_deref() == Some("best_iteration") {
            content.best_iteration = value.and_then(|value| value.parse().ok());
        }
    }
    Ok(())
}

/// A number that is not negative.
fn size(source: &mut Source<'_>) -> Result<usize, Error> {
    let number = i32::from_le_bytes(source.array()?);
    usize::try_from(number).map_err(|_| invalid(format!("a parameter is {number}")))
}

/// A string with its length before it. None if it is longer than names are.
fn string(source: &mut Source<'_>) -> Result<Option<String>, Error> {
    let length = u64::from_le_bytes(source.array()?);
    if length > NAME {
        return source.skip(length).map(|()| None);
    }
    let mut bytes = Vec::new();
    source.append(length as usize, &mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| invalid("a name is not UTF-8"))?;
    Ok(Some(text))
}
