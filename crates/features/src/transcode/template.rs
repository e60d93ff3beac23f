//! The template: treatments with the same keys in the same order as the one before, so
//! that only their ids and values need to be read.

mod block;
mod shape;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_variables))]
mod windows;

use super::unknown::Unknown;
use crate::{
    column::Buffer,
    plan::{Fields, InputPlan},
    tally::Tally,
    wire::{Reader, is_text},
};
use block::Block;
use shape::Shape;

/// The number of treatments written at once.
const SEVERAL: usize = 4;
/// The number of misses allowed before the first hit.
const FEW: u32 = 4;

/// The template of a call's treatments; within a request it is used as long as it pays
/// off.
#[derive(Debug)]
pub(super) struct Template<'p> {
    inputs: &'p [InputPlan],
    fields: &'p Fields,
    traced: bool,
    shape: Option<Shape<'p>>,
    pub(super) trusted: bool,
    pub(super) hits: u32,
    misses: u32,
}

impl<'p> Template<'p> {
    /// Creates a template. It is only used for calls that are not traced, as it records
    /// no origins.
    pub(super) fn new(inputs: &'p [InputPlan], fields: &'p Fields, traced: bool) -> Self {
        Self { inputs, fields, traced, shape: None, trusted: !traced, hits: 0, misses: 0 }
    }

    /// Starts the next request, which may match the template better or worse than the one
    /// before.
    pub(super) fn begin_request(&mut self) {
        (self.trusted, self.hits, self.misses) = (!self.traced, 0, 0);
    }

    /// Writes treatments to the rows from `row` on, as long as they match the template;
    /// returns their number and appends their ids, in UTF-8, to `ids`. The rows of the
    /// remaining treatments may have been overwritten.
    pub(super) fn apply<'r>(
        &mut self,
        treatments: &[&'r [u8]],
        row: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
        unknown: &mut Unknown,
        mut ids: Option<&mut Vec<&'r [u8]>>,
    ) -> usize {
        let Some(shape) = &self.shape else { return 0 };
        let block = shape.block();
        let mut applied = 0;
        'all: for bodies in treatments.chunks(SEVERAL) {
            if let (Some(block), Some(bodies)) = (block, bodies.first_chunk::<SEVERAL>())
                && let Some(several) = write_several(block, bodies, row + applied, buffers)
            {
                if let Some(ids) = &mut ids {
                    ids.extend(several);
                }
                unknown.count += shape.strangers * SEVERAL as u64;
                applied += SEVERAL;
                continue;
            }
            for body in bodies {
                let written = write_one(shape, body, row + applied, buffers, tally);
                let Some((id, strangers)) = written else { break 'all };
                if let Some(ids) = &mut ids {
                    ids.push(id);
                }
                unknown.count += strangers;
                applied += 1;
            }
        }
        self.hits += u32::try_from(applied).expect("treatments are limited");
        applied
    }

    /// Takes a treatment that was just packed by another method, without an error, as the
    /// template of the next one.
    pub(super) fn learn(&mut self, body: &[u8]) {
        if !self.trusted {
            return;
        }
        self.misses += 1;
        if self.misses > FEW + self.hits / 4 {
            (self.trusted, self.shape) = (false, None);
            return;
        }
        self.shape =
            split(body).and_then(|(_, features)| Shape::of(features, self.inputs, self.fields));
    }
}

/// Writes one treatment if it has the template's shape; returns its id, and the number of
/// its features that the model does not name.
#[inline]
fn write_one<'r>(
    shape: &Shape<'_>,
    body: &'r [u8],
    row: usize,
    buffers: &mut [Buffer],
    tally: &mut Tally,
) -> Option<(&'r [u8], u64)> {
    let (id, features) = split(body)?;
    let counts = tally.counts;
    let strangers = shape.write(features, row, buffers, tally).filter(|_| is_text(id));
    if strangers.is_none() {
        tally.counts = counts;
    }
    Some((id, strangers?))
}

/// Writes several treatments at once if all have exactly these features; returns their
/// ids.
#[inline]
fn write_several<'r, const N: usize>(
    block: &Block,
    bodies: &[&'r [u8]; N],
    row: usize,
    buffers: &mut [Buffer],
) -> Option<[&'r [u8]; N]> {
    let (mut ids, mut features) = ([&[][..]; N], [&[][..]; N]);
    for (index, body) in bodies.iter().enumerate() {
        (ids[index], features[index]) = split(body)?;
    }
    let are_texts = ids.iter().all(|id| is_text(id));
    (are_texts && block.write_several(features, row, buffers)).then_some(ids)
}

/// Splits a treatment that begins with its id: the id, and the features.
#[inline]
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = Reader::new(body);
    let id = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    Some((id, rest.rest()))
}

#[cfg(test)]
mod tests;
