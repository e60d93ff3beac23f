//! The template: treatments whose text differs from the one before in its values alone, so that
//! their keys need not be read.

use std::borrow::Cow;

use outrigger_json::{Cursor, Read};

use super::row::Row;
use crate::column::Buffer;

/// The most values of a treatment that are learned.
const MOST: usize = 4096;
/// The number of misses allowed before the first hit.
const FEW: u32 = 4;

/// The use of a value of a treatment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Id,
    /// A feature, by its slot; `None` if the model does not name it.
    Feature(Option<usize>),
}

/// The text of a treatment without its values.
#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    pieces: Vec<Piece<'a>>,
    /// The text after the last value.
    tail: &'a [u8],
    /// The rest of the request after the last value that was learned.
    after: &'a [u8],
}

/// A value, and the text between the one before and it.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    before: &'a [u8],
    target: Target,
}

impl<'a> Shape<'a> {
    /// Starts a treatment, at the beginning of `rest`.
    fn begin(&mut self, rest: &'a [u8]) {
        self.pieces.clear();
        self.after = rest;
    }

    /// Learns a value that begins at `rest` and is followed by `after`.
    #[inline]
    pub(super) fn learn(&mut self, rest: &'a [u8], target: Target, after: &'a [u8]) {
        if self.pieces.len() <= MOST {
            self.pieces.push(Piece { before: until(self.after, rest), target });
        }
        self.after = after;
    }

    /// Ends the treatment, which `rest` follows.
    fn end(&mut self, rest: &'a [u8]) {
        self.tail = until(self.after, rest);
    }
}

/// The part of `text` before `rest`, with which it ends.
fn until<'a>(text: &'a [u8], rest: &[u8]) -> &'a [u8] {
    &text[..text.len() - rest.len()]
}

/// The template of a request's treatments, which is used as long as it pays off.
#[derive(Debug)]
pub(super) struct Template<'a> {
    pub(super) shape: Shape<'a>,
    /// True if `shape` was learned from a whole treatment.
    learned: bool,
    trusted: bool,
    hits: u32,
    misses: u32,
}

impl<'a> Template<'a> {
    pub(super) fn new() -> Self {
        Self { shape: Shape::default(), learned: false, trusted: true, hits: 0, misses: 0 }
    }

    /// Reads a treatment that has the template's shape, and returns its id. `None` if it has
    /// another one; part of it may then have been read.
    #[inline]
    pub(super) fn apply(
        &mut self,
        cursor: &mut Cursor<'a>,
        row: &mut Row<'_>,
        buffers: &mut [Buffer],
        depth: u32,
    ) -> Read<Option<Cow<'a, [u8]>>> {
        if !self.learned {
            return Ok(None);
        }
        let mut id = Cow::Borrowed(&[][..]);
        for piece in &self.shape.pieces {
            // The values of an object have names of their own.
            if !cursor.accept(piece.before) || cursor.peek() == Some(b'{') {
                return Ok(None);
            }
            match piece.target {
                Target::Feature(slot) => row.value(slot, cursor, buffers, depth)?,
                Target::Id => id = read_id(cursor)?,
            }
        }
        if !cursor.accept(self.shape.tail) {
            return Ok(None);
        }
        self.hits += 1;
        Ok(Some(id))
    }

    /// Starts to learn the treatment at the beginning of `rest`.
    pub(super) fn begin(&mut self, rest: &'a [u8]) {
        self.learned = false;
        self.shape.begin(rest);
    }

    /// Takes the treatment as the template of the next one; `rest` follows it.
    pub(super) fn end(&mut self, rest: &'a [u8]) {
        self.misses += 1;
        self.trusted &= self.misses <= FEW + self.hits / 4;
        self.learned = self.trusted && self.shape.pieces.len() <= MOST;
        self.shape.end(rest);
    }
}

/// Reads a treatment's id: a string, or null.
pub(super) fn read_id<'a>(cursor: &mut Cursor<'a>) -> Read<Cow<'a, [u8]>> {
    if cursor.peek() == Some(b'n') {
        cursor.word("null")?;
        return Ok(Cow::Borrowed(&[]));
    }
    cursor.text()?.read()
}
