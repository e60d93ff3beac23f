//! The schema in the footer, whose nesting is limited before the library reads it: the library calls
//! itself for each level, and a stack that overflows ends the process.

use std::io::{self, Read};

use super::compact::{Compact, LIST, STRUCT, invalid};

/// The most groups and lists within each other.
const MAX_DEPTH: usize = 64;
/// `FileMetaData.schema`.
const SCHEMA: i64 = 2;
/// `SchemaElement.num_children`.
const CHILDREN: i64 = 5;

/// Checks the nesting of the schema in a footer. The library checks everything else.
///
/// # Errors
/// The schema is nested too deeply, or the footer is not valid.
pub(super) fn check(footer: impl Read) -> io::Result<()> {
    Compact { input: footer }.fields(0, |input, id, of| match (id, of) {
        (SCHEMA, LIST) => check_schema(input),
        _ => input.skip(of, 1),
    })
}

/// Reads the elements of the schema, which stand in the order of a walk from its root.
fn check_schema(input: &mut Compact<impl Read>) -> io::Result<()> {
    // For each group that is open, the number of its elements that have not been read.
    let mut open: Vec<i64> = Vec::new();
    input.elements(|input, of| {
        let mut children = 0;
        if of != STRUCT {
            return Err(invalid("the schema is no list of structs"));
        }
        input.fields(2, |input, id, of| match id {
            CHILDREN => input.integer(of).map(|count| children = count),
            _ => input.skip(of, 3),
        })?;
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        match open.len() > MAX_DEPTH {
            true => Err(invalid("its schema has more than 64 groups within each other")),
            false => Ok(()),
        }
    })
}
