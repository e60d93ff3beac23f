//! Fields that the objects of messages have in common.

use std::sync::Arc;

use outrigger_json::{
    Cursor, Odd,
    number::{self, Number},
};

use crate::{DataType, Malformed, Parameter, Parameters, shape};

/// The tolerance of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// For requests: all that the protocol does not have is refused.
    Strict,
    /// For responses: takes all that known servers write.
    Lenient,
}

/// The reason why a message cannot be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is no JSON from the cursor on.
    Syntax,
    /// It is JSON, but not a message of the protocol.
    Malformed(Box<Malformed>),
}

impl From<Odd> for Fault {
    fn from(_: Odd) -> Self {
        Self::Syntax
    }
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed.into())
    }
}

impl Fault {
    /// Puts `parent` in front of the path.
    pub(super) fn within(self, parent: &str) -> Self {
        match self {
            Self::Syntax => Self::Syntax,
            Self::Malformed(malformed) => malformed.within(parent).into(),
        }
    }

    /// The fault of a message of which `rest` was not read.
    pub(super) fn into_malformed(self, text: &[u8], rest: &[u8]) -> Malformed {
        match self {
            Self::Malformed(malformed) if malformed.field.is_empty() => {
                Malformed::new(format!("the body {}", malformed.message))
            }
            Self::Malformed(malformed) => *malformed,
            Self::Syntax if text.trim_ascii().is_empty() => Malformed::new("the body is empty"),
            Self::Syntax => {
                let at = text.len() - rest.len();
                Malformed::new(format!("the body is no JSON at byte {at}"))
            }
        }
    }
}

/// Reads an object: calls `member` with each key, before its value is read. `member` returns true
/// if it has read the value; others are skipped.
pub(super) fn object<'a>(
    cursor: &mut Cursor<'a>,
    mut member: impl FnMut(&[u8], &mut Cursor<'a>) -> Result<bool, Fault>,
) -> Result<(), Fault> {
    if cursor.next().is_some_and(|byte| byte != b'{') {
        // Refused as JSON if it is none.
        let mut other = *cursor;
        return match other.value(0) {
            Ok(()) => Err(Malformed::new("is no object").into()),
            Err(Odd) => Err(Fault::Syntax),
        };
    }
    cursor.object(|key, cursor| {
        if !member(&key.read()?, cursor)? {
            cursor.value(0)?;
        }
        Ok(())
    })
}

/// Reads an array of objects; `item` reads each, with its index.
pub(super) fn array<'a>(
    cursor: &mut Cursor<'a>,
    field: &str,
    mut item: impl FnMut(usize, &mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if cursor.peek() != Some(b'[') {
        return Err(Malformed::at(field, "is no array").into());
    }
    let mut index = 0;
    cursor.array(|cursor| {
        item(index, cursor).map_err(|fault| fault.within(&format!("{field}[{index}]")))?;
        index += 1;
        Ok(())
    })
}

/// Stores a value under its key.
///
/// # Errors
/// There is one.
pub(super) fn put<T>(place: &mut Option<T>, value: T, key: &str) -> Result<bool, Fault> {
    match place.replace(value) {
        None => Ok(true),
        Some(_) => Err(Malformed::at(key, "is given twice").into()),
    }
}

/// Reads the word `null` if it comes next.
pub(super) fn is_null(cursor: &mut Cursor<'_>) -> bool {
    cursor.accept(b"null")
}

/// Reads a string.
pub(super) fn text(cursor: &mut Cursor<'_>, key: &str) -> Result<String, Fault> {
    if cursor.peek() != Some(b'"') {
        return Err(Malformed::at(key, "is no string").into());
    }
    let text = cursor.text()?.read()?.into_owned();
    String::from_utf8(text).map_err(|_| Fault::Syntax)
}

/// Reads the name of a tensor.
pub(super) fn name(cursor: &mut Cursor<'_>) -> Result<Arc<str>, Fault> {
    Ok(text(cursor, "name")?.into())
}

/// Reads a datatype.
pub(super) fn datatype(cursor: &mut Cursor<'_>) -> Result<DataType, Fault> {
    Ok(DataType::read(&text(cursor, "datatype")?)?)
}

/// Reads a shape.
pub(super) fn shape(cursor: &mut Cursor<'_>) -> Result<Vec<i64>, Fault> {
    if cursor.peek() != Some(b'[') {
        return Err(Malformed::at("shape", "is no array").into());
    }
    let mut shape = Vec::new();
    cursor.array(|cursor| {
        let index = shape.len();
        if index == shape::MAX_DIMENSIONS {
            let message = format!("more than {index} dimensions");
            return Err(Fault::from(Malformed::at("shape", message)));
        }
        match number::read(&mut cursor.rest) {
            Some(Number::Integer(size)) => shape.push(size),
            _ => {
                let message = "is no whole number of at most 63 bits";
                return Err(Malformed::at(format!("shape[{index}]"), message).into());
            }
        }
        Ok(())
    })?;
    shape::elements(&shape)?;
    Ok(shape)
}

/// Reads parameters: an object of strings, numbers and booleans, or null.
pub(super) fn parameters(cursor: &mut Cursor<'_>) -> Result<Parameters, Fault> {
    let mut parameters = Parameters::default();
    if is_null(cursor) {
        return Ok(parameters);
    }
    object(cursor, |key, cursor| {
        let name = str::from_utf8(key).map_err(|_| Fault::Syntax)?;
        let value = parameter(cursor, name)?;
        parameters.insert(name, value)?;
        Ok(true)
    })
    .map_err(|fault| match fault {
        Fault::Malformed(malformed) if malformed.field.is_empty() => {
            malformed.within("parameters").into()
        }
        fault => fault,
    })?;
    Ok(parameters)
}

/// Reads parameters; leniently, those of another form are skipped.
pub(super) fn parameters_as(
    reading: Reading,
    cursor: &mut Cursor<'_>,
) -> Result<Parameters, Fault> {
    let before = *cursor;
    match (parameters(cursor), reading) {
        (Err(_), Reading::Lenient) => {
            *cursor = before;
            cursor.value(0)?;
            Ok(Parameters::default())
        }
        (read, _) => read,
    }
}

fn parameter(cursor: &mut Cursor<'_>, name: &str) -> Result<Parameter, Fault> {
    Ok(match cursor.peek() {
        Some(b'"') => Parameter::Text(text(cursor, name)?),
        Some(b't') => cursor.word("true").map(|()| Parameter::Bool(true))?,
        Some(b'f') => cursor.word("false").map(|()| Parameter::Bool(false))?,
        Some(b'-' | b'0'..=b'9') => number_parameter(cursor)?,
        _ => {
            let field = format!("parameters[{name:?}]");
            return Err(Malformed::at(field, "is no string, number or boolean").into());
        }
    })
}

fn number_parameter(cursor: &mut Cursor<'_>) -> Result<Parameter, Fault> {
    let before = cursor.rest;
    Ok(match number::read(&mut cursor.rest).ok_or(Odd)? {
        Number::Integer(value) => Parameter::Integer(value),
        Number::Real(value) => {
            let text = &before[..before.len() - cursor.rest.len()];
            let whole = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            whole.map_or(Parameter::Real(value), Parameter::Unsigned)
        }
    })
}
