//! The data of a tensor in JSON, read into typed bytes in one pass.

mod element;

use bytes::Bytes;
use outrigger_json::{Cursor, Odd};

use self::element::Element;
use super::fields::{Fault, Reading};
use crate::{DataType, Malformed, shape};

/// The reason why data cannot be read.
#[derive(Debug, Clone, Copy)]
enum Stop {
    /// It is no JSON.
    Syntax,
    /// The next element is not of the datatype.
    Element,
    /// There are more elements than the shape has.
    Many,
    /// The arrays are not nested as the shape.
    Nesting,
}

impl From<Odd> for Stop {
    fn from(_: Odd) -> Self {
        Self::Syntax
    }
}

/// Reads data, which are flat or nested like the shape; leniently, nested in any way. Memory is
/// taken only for elements that the text has room for.
///
/// # Errors
/// The text is no JSON, or has other elements than the datatype and the shape say.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    datatype: DataType,
    shape: &[i64],
    reading: Reading,
) -> Result<Bytes, Fault> {
    if !datatype.is_typed() {
        let message = format!(
            "{datatype} has no JSON form: send the tensor as binary data (binary_data_size) or in \
             raw_input_contents over gRPC"
        );
        return Err(Malformed::at("data", message).into());
    }
    if cursor.peek() != Some(b'[') {
        return Err(Malformed::at("data", "is no array").into());
    }
    let expected = shape::elements(shape)?;
    // An element takes at least two characters, its comma included.
    if expected > cursor.rest.len() / 2 {
        return Err(few(expected).into());
    }
    let out = Vec::with_capacity(shape::bytes(shape, datatype)? + texts(*cursor, datatype)?);
    let mut reader = Reader { datatype, shape, reading, expected, count: 0, out };
    let result = reader.of_datatype(cursor);
    if let Err(stop) = result {
        return Err(reader.explain(stop, cursor));
    }
    if reader.count < expected {
        return Err(few(expected).into());
    }
    Ok(reader.out.into())
}

/// The most bytes of all texts in the array that comes next, if it has texts.
fn texts(cursor: Cursor<'_>, datatype: DataType) -> Result<usize, Fault> {
    let mut end = cursor;
    if datatype == DataType::Bytes {
        skip(&mut end)?;
    }
    Ok(cursor.rest.len() - end.rest.len())
}

fn few(expected: usize) -> Malformed {
    Malformed::at("data", format!("fewer elements than the {expected} of the shape"))
}

struct Reader<'s> {
    datatype: DataType,
    shape: &'s [i64],
    reading: Reading,
    expected: usize,
    /// The number of elements read.
    count: usize,
    out: Vec<u8>,
}

impl Reader<'_> {
    fn of_datatype(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        match self.datatype {
            DataType::Bool => self.of::<bool>(cursor),
            DataType::Uint8 => self.of::<u8>(cursor),
            DataType::Uint16 => self.of::<u16>(cursor),
            DataType::Uint32 => self.of::<u32>(cursor),
            DataType::Uint64 => self.of::<u64>(cursor),
            DataType::Int8 => self.of::<i8>(cursor),
            DataType::Int16 => self.of::<i16>(cursor),
            DataType::Int32 => self.of::<i32>(cursor),
            DataType::Int64 => self.of::<i64>(cursor),
            DataType::Fp32 => self.of::<f32>(cursor),
            DataType::Fp64 => self.of::<f64>(cursor),
            DataType::Bytes => self.of::<element::Text>(cursor),
            // Refused before.
            DataType::Fp16 | DataType::Bf16 => Err(Stop::Element),
        }
    }

    fn of<E: Element>(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let shape = self.shape;
        match self.reading {
            Reading::Lenient => self.any::<E>(cursor, 0),
            Reading::Strict if shape.len() > 1 && is_nested(*cursor) => {
                self.nested::<E>(cursor, shape)
            }
            Reading::Strict => cursor.array(|cursor| self.element::<E>(cursor)),
        }
    }

    #[inline]
    fn element<E: Element>(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        if self.count == self.expected {
            return Err(Stop::Many);
        }
        let before = *cursor;
        if E::read(cursor, self.reading, &mut self.out).is_err() {
            *cursor = before;
            return Err(Stop::Element);
        }
        self.count += 1;
        Ok(())
    }

    /// Reads an array with an item for each index of the outermost dimension.
    fn nested<E: Element>(&mut self, cursor: &mut Cursor<'_>, shape: &[i64]) -> Result<(), Stop> {
        let Some((size, inner)) = shape.split_first() else { return self.element::<E>(cursor) };
        let mut items = 0;
        cursor.array(|cursor| {
            items += 1;
            if items > *size || (cursor.peek() == Some(b'[')) == inner.is_empty() {
                return Err(Stop::Nesting);
            }
            self.nested::<E>(cursor, inner)
        })?;
        if items == *size { Ok(()) } else { Err(Stop::Nesting) }
    }

    /// Reads the elements of an array and of all arrays in it.
    fn any<E: Element>(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Stop> {
        if depth > shape::MAX_DIMENSIONS {
            return Err(Stop::Nesting);
        }
        cursor.array(|cursor| match cursor.peek() {
            Some(b'[') => self.any::<E>(cursor, depth + 1),
            _ => self.element::<E>(cursor),
        })
    }

    /// Describes why reading stopped before the text at the cursor.
    #[cold]
    fn explain(&self, stop: Stop, cursor: &Cursor<'_>) -> Fault {
        let Self { datatype, shape, count, .. } = self;
        let message = match stop {
            Stop::Syntax => return Fault::Syntax,
            Stop::Element => match element::describe(cursor) {
                None => return Fault::Syntax,
                Some(found) => {
                    let expected = element::expected(*datatype);
                    format!("element {count} is {found}, but {datatype} takes {expected}")
                }
            },
            Stop::Many => format!("more elements than the {} of the shape", self.expected),
            Stop::Nesting => {
                format!("after {count} elements, the arrays are not nested as the shape {shape:?}")
            }
        };
        Malformed::at("data", message).into()
    }
}

/// True if the first item of the array that comes next is an array.
fn is_nested(mut cursor: Cursor<'_>) -> bool {
    cursor.skip();
    cursor.next() == Some(b'[')
}

/// Skips a value that is read later: an array by its brackets, since a lenient reader takes words
/// in it that are no JSON.
pub(super) fn skip(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    Ok(match cursor.peek() {
        Some(b'[') => cursor.pass(),
        _ => cursor.value(0),
    }?)
}
