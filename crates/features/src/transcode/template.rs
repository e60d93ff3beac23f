//! Treatments like the one before: where they have the same keys in the same
//! order, nothing but their ids and their values need be looked at.

mod block;
mod shape;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_variables))]
mod windows;

use super::{
    fields::Fields,
    tally::Tally,
    unknown::Unknown,
    wire::{Reader, is_text},
};
use crate::{column::Buffer, plan::InputPlan};
use shape::Shape;

/// As many misses are allowed before any hit.
const FEW: u32 = 4;

/// The template of a call's treatments, as long as there is use for one in a request.
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
    /// Only for calls that are not traced: nothing is said about origins.
    pub(super) fn new(inputs: &'p [InputPlan], fields: &'p Fields, traced: bool) -> Self {
        Self { inputs, fields, traced, shape: None, trusted: !traced, hits: 0, misses: 0 }
    }

    /// Begins with the next request, which may keep to its order better or worse than the
    /// one before.
    pub(super) fn begin_request(&mut self) {
        (self.trusted, self.hits, self.misses) = (!self.traced, 0, 0);
    }

    /// Writes a treatment's features, if it is like the one before; says its id,
    /// in UTF-8. `None` says nothing about the treatment, and may have written
    /// anything to its row.
    #[inline]
    pub(super) fn apply<'r>(
        &mut self,
        body: &'r [u8],
        row: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
        unknown: &mut Unknown,
    ) -> Option<&'r [u8]> {
        let shape = self.shape.as_ref()?;
        let (id, features) = split(body)?;
        let counts = tally.counts;
        let strangers = shape.write(features, row, buffers, tally);
        match strangers.filter(|_| is_text(id)) {
            Some(strangers) => {
                unknown.count += strangers;
                self.hits += 1;
                Some(id)
            }
            None => {
                tally.counts = counts;
                None
            }
        }
    }

    /// Takes a treatment that has just been packed in another way, and without
    /// complaint, as the next one's template.
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

/// The id of a treatment that begins with one, and its features.
#[inline]
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = Reader::new(body);
    let id = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    Some((id, rest.rest()))
}

#[cfg(test)]
mod tests;
