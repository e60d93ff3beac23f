//! A user sent as a nested object, read without decoding: a feature's name is the path to
//! its leaf, joined by dots; a list is a vector; null is absence.

mod entries;
mod path;

use super::{
    merged::{ListKind, Merged, Piece},
    stop::Stop,
    unknown::{self, Unknown},
};
use crate::{
    entries::{Entries, STRANGERS},
    place::{Place, given_twice, object_value},
    plan::Fields,
    value::{Scalar, put_mixed},
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};
use entries::entries;
use path::Path;

/// Finds the features of a validated object, by their slots. Features that the model does
/// not name are counted.
///
/// # Errors
/// A feature is given twice, by different paths of keys, or one is an object.
pub(super) fn features<'r>(
    object: &[&'r [u8]],
    fields: &Fields,
    unknown: &mut Unknown,
    place: &Place,
) -> Result<Vec<(usize, Merged<'r>)>, Stop> {
    let path = Path::new(fields.longest_name().max(unknown::NAME_BYTES));
    let given = vec![false; fields.len()];
    let left = Entries(fields.len() + STRANGERS);
    let mut walk = Walk { fields, unknown, place, path, given, left, found: Vec::new() };
    walk.descend(object)?;
    Ok(walk.found)
}

/// The traversal of an object's leaves, in the order of keys.
struct Walk<'w, 'r> {
    fields: &'w Fields,
    unknown: &'w mut Unknown,
    place: &'w Place,
    path: Path,
    /// For every slot, whether its feature has been found.
    given: Vec<bool>,
    /// The entries that the object may still have.
    left: Entries,
    found: Vec<(usize, Merged<'r>)>,
}

impl<'r> Walk<'_, 'r> {
    /// Recursion is bounded: validation limits the nesting of objects.
    fn descend(&mut self, object: &[&'r [u8]]) -> Result<(), Stop> {
        for entry in entries(object, &mut self.left)? {
            let (key, value) = entry.read()?;
            let parent = self.path.push(key);
            match value {
                Merged::Absent => {}
                Merged::Object(_) if self.fields.takes_no_object(self.path.bytes()) => {
                    let feature = String::from_utf8_lossy(self.path.bytes());
                    return Err(object_value(&feature, self.place).into());
                }
                Merged::Object(parts) => self.descend(&parts)?,
                value => self.leaf(value)?,
            }
            self.path.truncate(parent);
        }
        Ok(())
    }

    fn leaf(&mut self, value: Merged<'r>) -> Result<(), Stop> {
        let path = self.path.bytes();
        let Some(slot) = self.fields.keys.find(path) else {
            self.unknown.add(path, 1);
            return Ok(());
        };
        if std::mem::replace(&mut self.given[slot], true) {
            return Err(given_twice(&String::from_utf8_lossy(path), self.place).into());
        }
        self.found.push((slot, value));
        Ok(())
    }
}

/// Reads a field of a `google.protobuf.Value`.
fn field<'r>(
    number: u32,
    wire_type: WireType,
    rest: &mut Reader<'r>,
) -> Result<Option<Piece<'r>>, Malformed> {
    Ok(Some(match number {
        1 => {
            rest.varint_field(wire_type)?;
            Piece::Null
        }
        2 => Piece::One(Scalar::Real(f64::from_le_bytes(rest.fixed64_field(wire_type)?))),
        3 => Piece::One(Scalar::Text(rest.bytes_field(wire_type)?)),
        4 => Piece::One(Scalar::Flag(rest.varint_field(wire_type)? != 0)),
        5 => Piece::Object(rest.bytes_field(wire_type)?),
        6 => Piece::List(ListKind::Values, rest.bytes_field(wire_type)?),
        _ => {
            rest.skip(number, wire_type, MAX_DEPTH)?;
            return Ok(None);
        }
    }))
}

/// Writes an element of a list, a `google.protobuf.Value`.
pub(super) fn put_element(value: &[u8], to: &mut Vec<u8>) -> Result<(), Malformed> {
    let scalar = match Merged::of(value, field)? {
        Merged::One(scalar) => scalar,
        _ => Scalar::Other,
    };
    put_mixed(scalar, to);
    Ok(())
}
