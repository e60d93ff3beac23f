//! Reads the files of XGBoost.

mod binary;
mod document;
mod json;
mod model;
mod pull;
mod source;
mod ubjson;

pub(crate) use model::Content;

use std::io::BufRead;

use crate::{Error, Limits, budget::Budget};
use json::Json;
use source::Source;
use ubjson::Ubjson;

/// The part of a file that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All but the trees, which are counted.
    Header,
    All,
}

/// Reads `extent` of a model file of `size` bytes. Its format is recognised by its first bytes.
pub(crate) fn read(
    source: &mut dyn BufRead,
    size: u64,
    limits: &Limits,
    extent: Extent,
) -> Result<(Content, Budget), Error> {
    let mut budget = Budget::new(limits, size);
    let mut source = Source::new(source, size, &mut budget)?;
    let content = match first_bytes(&mut source)? {
        [b'{', b'"' | b'}', ..] => document::read(&mut Json::new(source), extent, &mut budget)?,
        [b'{', _] => document::read(&mut Ubjson::new(source), extent, &mut budget)?,
        _ => binary::read(&mut source, extent, &mut budget)?,
    };
    Ok((content, budget))
}

/// The first two bytes that are no white space. They are not consumed.
fn first_bytes(source: &mut Source<'_>) -> Result<[u8; 2], Error> {
    let first = source.window(64)?;
    let mut bytes = first.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    let mut next = || bytes.next().unwrap_or_default();
    Ok([next(), next()])
}
