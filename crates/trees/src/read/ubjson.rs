//! UBJSON documents (<https://ubjson.org>, draft 12), as XGBoost writes them.

use super::{
    pull::{Document, NESTING, Number, STRING, expected},
    source::{Source, truncated},
};
use crate::{Error, budget::Budget, error::invalid};

/// A UBJSON document.
pub(crate) struct Ubjson<'a> {
    source: Source<'a>,
    /// Objects and arrays around the present value.
    depth: u32,
}

/// Elements of an array.
enum Elements {
    /// Each has a marker; the array has an end.
    Ended,
    /// Each has a marker.
    Counted(u64),
    /// All are of one type, and have no markers.
    Typed(u8, u64),
}

/// Evaluates `$read` with `$number`, which makes a `T` of the bytes of a number of the type
/// `$marker`. Evaluates `$other` if that is no type of numbers.
macro_rules! by_type {
    ($marker:expr, $number:ident => $read:expr, $other:expr) => {
        by_type!(
            $marker, $number => $read, $other,
            b'i' i8 from_integer, b'U' u8 from_integer, b'I' i16 from_integer,
            b'l' i32 from_integer, b'L' i64 from_integer, b'd' f32 from_float, b'D' f64 from_float
        )
    };
    (
        $marker:expr, $number:ident => $read:expr, $other:expr,
        $($of:literal $type:ident $from:ident),*
    ) => {
        match $marker {
            $($of => {
                let $number = |bytes| T::$from($type::from_be_bytes(bytes).into());
                $read
            })*
            _ => $other,
        }
    };
}

impl<'a> Ubjson<'a> {
    pub(crate) fn new(source: Source<'a>) -> Self {
        Self { source, depth: 0 }
    }

    /// A marker. Markers without a meaning are passed over.
    fn marker(&mut self) -> Result<u8, Error> {
        loop {
            match self.source.byte()? {
                b'N' => {}
                marker => return Ok(marker),
            }
        }
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > NESTING {
            return Err(invalid("its values are nested too deep"));
        }
        Ok(())
    }

    /// The bytes that follow, and no more than the file has.
    fn length(&mut self) -> Result<u64, Error> {
        let marker = self.marker()?;
        let length = self.scalar::<u64>(marker)?;
        if length > self.source.remaining() {
            return Err(truncated());
        }
        Ok(length)
    }

    /// The number, or flag, of this marker.
    fn scalar<T: Number>(&mut self, marker: u8) -> Result<T, Error> {
        let number = by_type!(marker, number => number(self.source.array()?), {
            match marker {
                b'T' => T::from_integer(1),
                b'F' => T::from_integer(0),
                _ => return Err(expected("a number", marker)),
            }
        });
        number.ok_or_else(|| invalid("a number is out of range"))
    }

    /// Reads what an array says of its elements, after its first bracket.
    fn elements(&mut self) -> Result<Elements, Error> {
        match self.source.peek()? {
            b'$' => {
                self.source.consume(1);
                let of = self.source.byte()?;
                self.count_follows()?;
                let marker = self.marker()?;
                let count = self.scalar::<u64>(marker)?;
                let bytes = width(of).and_then(|width| count.checked_mul(width));
                match bytes {
                    None => Err(expected("a type of numbers", of)),
                    Some(bytes) if bytes > self.source.remaining() => Err(truncated()),
                    Some(_) => Ok(Elements::Typed(of, count)),
                }
            }
            b'#' => {
                self.count_follows()?;
                Ok(Elements::Counted(self.length()?))
            }
            _ => Ok(Elements::Ended),
        }
    }

    fn count_follows(&mut self) -> Result<(), Error> {
        match self.source.byte()? {
            b'#' => Ok(()),
            other => Err(expected("a count", other)),
        }
    }

    /// Reads the elements of an array without a type, each with the marker that it begins with.
    fn items(
        &mut self,
        count: Option<u64>,
        visit: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.enter()?;
        let mut read = 0;
        loop {
            match count {
                Some(count) if read == count => break,
                None if self.source.peek()? == b']' => {
                    self.source.consume(1);
                    break;
                }
                _ => visit(self)?,
            }
            read += 1;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Appends `count` numbers of the type `of`.
    fn typed<T: Number>(&mut self, of: u8, count: u64, into: &mut Vec<T>) -> Result<(), Error> {
        by_type!(of, number => self.each(count, into, number), {
            Err(expected("a type of numbers", of))
        })
    }

    fn each<T: Number, const N: usize>(
        &mut self,
        count: u64,
        into: &mut Vec<T>,
        number: impl Fn([u8; N]) -> Option<T>,
    ) -> Result<(), Error> {
        let mut missing = count;
        while missing > 0 {
            let window = self.source.window(N)?;
            let (numbers, _) = window.as_chunks::<N>();
            let here = numbers.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
            if here == 0 {
                return Err(truncated());
            }
            // Without an early end, so that vectors of numbers are read.
            let mut all_fit = true;
            into.extend(numbers[..here].iter().map(|bytes| {
                let number = number(*bytes);
                all_fit &= number.is_some();
                number.unwrap_or(T::ZERO)
            }));
            if !all_fit {
                return Err(invalid("a number is out of range"));
            }
            self.source.consume(here * N);
            missing -= here as u64;
        }
        Ok(())
    }

    /// A string without its marker.
    fn text(&mut self) -> Result<String, Error> {
        let length = self.length()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= STRING);
        let length = length.ok_or_else(|| invalid("a string is too long"))?;
        let mut bytes = Vec::with_capacity(length);
        self.source.append(length, &mut bytes)?;
        String::from_utf8(bytes).map_err(|_| invalid("a string is not UTF-8"))
    }

    fn expect(&mut self, marker: u8, what: &str) -> Result<(), Error> {
        match self.marker()? {
            found if found == marker => Ok(()),
            found => Err(expected(what, found)),
        }
    }
}

impl Document for Ubjson<'_> {
    fn object(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.expect(b'{', "an object")?;
        self.enter()?;
        while self.source.peek()? != b'}' {
            let key = self.text()?;
            visit(self, &key)?;
        }
        self.source.consume(1);
        self.depth -= 1;
        Ok(())
    }

    fn array(
        &mut self,
        visit: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.expect(b'[', "an array")?;
        match self.elements()? {
            Elements::Ended => self.items(None, visit),
            Elements::Counted(count) => self.items(Some(count), visit),
            Elements::Typed(..) => Err(invalid("an array of numbers is not expected here")),
        }
    }

    fn numbers<T: Number>(&mut self, into: &mut Vec<T>, budget: &mut Budget) -> Result<(), Error> {
        self.expect(b'[', "an array")?;
        let count = match self.elements()? {
            Elements::Typed(of, count) => {
                let elements = usize::try_from(count).map_err(|_| truncated())?;
                budget.reserve(into, elements)?;
                return self.typed(of, count, into);
            }
            Elements::Ended => None,
            Elements::Counted(count) => Some(count),
        };
        self.items(count, &mut |document| {
            let marker = document.marker()?;
            let number = document.scalar(marker)?;
            budget.push(into, number)
        })
    }

    fn string(&mut self) -> Result<String, Error> {
        self.expect(b'S', "a string")?;
        self.text()
    }

    fn skip(&mut self) -> Result<(), Error> {
        // An object or array is read as such, so its marker must not be consumed here.
        match self.source.peek()? {
            b'{' => return self.object(&mut |document, _| document.skip()),
            b'[' => {
                self.source.consume(1);
                return match self.elements()? {
                    Elements::Typed(of, count) => {
                        self.source.skip(width(of).unwrap_or(1).saturating_mul(count))
                    }
                    Elements::Ended => self.items(None, &mut |document| document.skip()),
                    Elements::Counted(count) => {
                        self.items(Some(count), &mut |document| document.skip())
                    }
                };
            }
            _ => {}
        }
        match self.marker()? {
            b'S' | b'H' => {
                let length = self.length()?;
                self.source.skip(length)
            }
            b'Z' | b'T' | b'F' => Ok(()),
            b'C' => self.source.skip(1),
            marker => match width(marker) {
                Some(width) => self.source.skip(width),
                None => Err(expected("a value", marker)),
            },
        }
    }
}

/// Bytes of a number of this type.
fn width(marker: u8) -> Option<u64> {
    match marker {
        b'i' | b'U' => Some(1),
        b'I' => Some(2),
        b'l' | b'd' => Some(4),
        b'L' | b'D' => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
