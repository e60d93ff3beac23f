//! Names of features.

use std::collections::HashMap;

use outrigger_trees::{Budget, Limits};

use crate::{
    Error, Part,
    read::{Faults, File, Lines, fields, quoted, text, unsigned},
};

/// A table of the ids of features that have names. A name that is a number is that id, and is in
/// no table.
#[derive(Debug, Default)]
pub struct Names {
    ids: HashMap<Box<str>, u64>,
    /// The length of all names, in bytes.
    length: usize,
}

impl Names {
    /// Reads a text file with a line `NAME ID` for each name. The fields are separated by spaces
    /// or tabs.
    ///
    /// # Errors
    /// [`Error`]. A malformed line is an error, and so is a name that is a number or occurs twice.
    pub fn read(file: File<'_>, limits: &Limits) -> Result<Self, Error> {
        let mut budget = Budget::of(limits.memory);
        let mut faults = Faults::new(Part::Names, "line", false);
        let mut lines = Lines::new(file);
        let mut names = Self::default();
        while let Some(line) = lines.next(&mut faults, &mut budget)? {
            let (name, id) = entry(line).map_err(|text| faults.error(text))?;
            names.reserve(name, &mut budget)?;
            if names.ids.insert(name.into(), id).is_some() {
                return Err(
                    faults.error(format!("the name {} is there already", quoted(name.as_bytes())))
                );
            }
            names.length += name.len();
        }
        Ok(names)
    }

    /// The id of a feature: of a number, the number itself; of other names, the id in the table.
    pub fn id(&self, name: &str) -> Option<u64> {
        name.parse().ok().or_else(|| self.ids.get(name).copied())
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Bytes held, estimated.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + bytes(self.ids.capacity()) + self.length
    }

    /// Charges a further name, and makes room for it.
    fn reserve(&mut self, name: &str, budget: &mut Budget) -> Result<(), Error> {
        budget.charge::<u8>(name.len())?;
        let names = self.ids.len();
        if names == self.ids.capacity() {
            // While the table is moved, both its old and its new place are held.
            budget.charge::<u8>(bytes(2 * names.max(16)))?;
            self.ids.reserve(names.max(16));
            budget.release::<u8>(bytes(names));
        }
        Ok(())
    }
}

/// The memory of a hash table for `names` names. At most seven eighths of its slots are taken.
fn bytes(names: usize) -> usize {
    names * (size_of::<(Box<str>, u64)>() + 1) * 8 / 7
}

fn entry(line: &[u8]) -> Result<(&str, u64), String> {
    let mut fields = fields(line);
    let (Some(name), Some(id), None) = (fields.next(), fields.next(), fields.next()) else {
        return Err("it is not a name and an id".to_owned());
    };
    let (name, id) = (text(name)?, unsigned(id)?);
    match name.parse::<u64>() {
        Ok(_) => Err(format!("the name {} is an id itself", quoted(name.as_bytes()))),
        Err(_) => Ok((name, id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Names, Error> {
        let limits = Limits::default();
        Names::read(File { content: &mut text.as_bytes(), size: text.len() as u64 }, &limits)
    }

    #[test]
    fn names_have_the_ids_of_the_table_and_numbers_are_ids() {
        let names = read("age_30 7\nstadt:köln\t18446744073709551615\r\n").expect("names");
        assert_eq!(names.id("age_30"), Some(7));
        assert_eq!(names.id("stadt:köln"), Some(u64::MAX));
        assert_eq!(names.id("12"), Some(12));
        assert_eq!(names.id("age_31"), None);
        assert_eq!(names.len(), 2);
        assert!(read("").expect("no names").is_empty());
    }

    #[test]
    fn malformed_lines_are_errors_with_their_number() {
        for (text, expected) in [
            ("a 1\nb", "line 2: it is not a name and an id"),
            ("a 1\n\nb 2", "line 2: it is not a name"),
            ("a 1 2", "line 1: it is not a name"),
            ("a -1", "line 1: \"-1\" is no id"),
            ("a 1\n5 2", "line 2: the name \"5\" is an id itself"),
            ("a 1\na 1", "line 2: the name \"a\" is there already"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn names_beyond_the_limit_are_refused() {
        let text: String = (0..1000).map(|at| format!("name{at} {at}\n")).collect();
        let limits = Limits { memory: 20_000, ..Limits::default() };
        let file = File { content: &mut text.as_bytes(), size: text.len() as u64 };
        let error = Names::read(file, &limits).expect_err("a limit");
        assert!(matches!(error, Error::Memory { limit: 20_000, .. }), "{error}");
    }
}
