//! The interface to documents of named values: JSON and UBJSON.

use crate::{Error, budget::Budget, error::invalid};

/// Values inside one another. More are refused, in place of a deep recursion.
pub(crate) const NESTING: u32 = 64;

/// Bytes of a string that is kept, and of a key.
pub(crate) const STRING: usize = 1 << 20;

/// A document that is read once, from its beginning to its end. Each method reads one value, and
/// fails if the value is of another type.
pub(crate) trait Document: Sized {
    /// An object: `visit` is called with each key, and must read its value.
    fn object(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, &str) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// An object called `name` with a value for each of `keys`, at most 32: one that lacks a key is
    /// not read as if the key's value were empty.
    fn object_of(
        &mut self,
        name: &str,
        keys: &[&str],
        visit: &mut dyn FnMut(&mut Self, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut found = 0_u32;
        self.object(&mut |document, key| {
            if let Some(at) = keys.iter().position(|known| *known == key) {
                found |= 1 << at;
            }
            visit(document, key)
        })?;
        match keys.get(found.trailing_ones() as usize) {
            Some(key) => Err(invalid(format!("{name} has no {key}"))),
            None => Ok(()),
        }
    }

    /// An array: `visit` is called for each element, and must read it.
    fn array(&mut self, visit: &mut dyn FnMut(&mut Self) -> Result<(), Error>)
    -> Result<(), Error>;

    /// An array of numbers, which are appended to `into`.
    fn numbers<T: Number>(&mut self, into: &mut Vec<T>, budget: &mut Budget) -> Result<(), Error>;

    /// A string.
    fn string(&mut self) -> Result<String, Error>;

    /// A value of any type, which is ignored.
    fn skip(&mut self) -> Result<(), Error>;
}

/// A number of an array.
pub(crate) trait Number: Copy {
    const ZERO: Self;

    /// The number equal to `integer`.
    fn from_integer(integer: i64) -> Option<Self>;

    /// The number nearest to `float`.
    fn from_float(float: f64) -> Option<Self>;

    /// The number that `text` is.
    fn from_text(text: &str) -> Option<Self>;
}

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl Number for $type {
            const ZERO: Self = 0.0;

            fn from_integer(integer: i64) -> Option<Self> {
                Some(integer as $type)
            }

            fn from_float(float: f64) -> Option<Self> {
                Some(float as $type)
            }

            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

floats! { f32 f64 }

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            const ZERO: Self = 0;

            fn from_integer(integer: i64) -> Option<Self> {
                integer.try_into().ok()
            }

            fn from_float(_: f64) -> Option<Self> {
                None
            }

            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

integers! { u8 u32 u64 i32 }

/// The error of a value that is not of the type that is expected.
pub(crate) fn expected(type_: &str, found: u8) -> Error {
    if found == 0 {
        return invalid(format!("it ends where {type_} is expected"));
    }
    invalid(format!("a value begins with {:?} where {type_} is expected", char::from(found)))
}
