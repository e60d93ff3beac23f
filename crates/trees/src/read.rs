//! Reads the files of XGBoost, LightGBM and CatBoost.

mod binary;
mod catboost;
mod document;
mod json;
mod lightgbm;
mod lines;
mod model;
mod pull;
mod source;
mod ubjson;

pub(crate) use model::Content;
pub use model::Library;

use std::io::BufRead;

use crate::{Error, Limits, budget::Budget};
use json::Json;
use lines::Lines;
use source::Source;
use ubjson::Ubjson;

/// The part of a file that is read. LightGBM's and CatBoost's are always read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All but the trees, which are counted.
    Header,
    All,
    /// All, for rows of f64.
    Doubles,
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
        [b'{', b'"' | b'}', ..] if is_catboost(source.window(64)?) => {
            catboost::read(&mut Json::new(source), &mut budget)?
        }
        [b'{', b'"' | b'}', ..] => {
            document::read(&mut Json::of_xgboost(source), extent, &mut budget)?
        }
        [b'{', _] => document::read(&mut Ubjson::new(source), extent, &mut budget)?,
        [b't', b'r']
            if matches!(source.window(5)?, [b't', b'r', b'e', b'e', b'\r' | b'\n', ..]) =>
        {
            lightgbm::read(Lines::new(source), extent, &mut budget)?
        }
        [b'C', b'B'] if source.window(4)?.starts_with(b"CBM1") => return Err(catboost::binary()),
        _ => binary::read(&mut source, extent, &mut budget)?,
    };
    Ok((content, budget))
}

/// True if the first key of an object in JSON is one of CatBoost's.
fn is_catboost(window: &[u8]) -> bool {
    let mut parts = window.split(|byte| *byte == b'"').skip(1);
    let key = parts.next().unwrap_or_default();
    catboost::KEYS.iter().any(|known| known.as_bytes() == key)
}

/// The first two bytes that are no white space. They are not consumed.
fn first_bytes(source: &mut Source<'_>) -> Result<[u8; 2], Error> {
    let first = source.window(64)?;
    let mut bytes = first.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    let mut next = || bytes.next().unwrap_or_default();
    Ok([next(), next()])
}
