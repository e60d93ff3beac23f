//! Tables of numbers in text, as the scripts of testenv write them for fixtures.

use std::{collections::HashMap, fmt::Debug, str::FromStr};

/// A table: its number of columns, and its numbers, row after row.
pub type Table<T> = (usize, Vec<T>);

/// Reads tables by their names. Each begins with a line `NAME ROWS COLUMNS`; a line for each row
/// follows, whose numbers are separated by blanks.
///
/// # Panics
/// Panics if the text has another form.
pub fn read<T: FromStr<Err: Debug>>(text: &str) -> HashMap<String, Table<T>> {
    let mut lines = text.lines();
    let mut tables = HashMap::new();
    while let Some(head) = lines.next() {
        let [name, rows, columns] = head.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{head}")
        };
        let rows = lines.by_ref().take(rows.parse().expect("a number"));
        let values =
            rows.flat_map(|row| row.split(' ')).map(|value| value.parse().expect("a number"));
        tables.insert(name.to_owned(), (columns.parse().expect("a number"), values.collect()));
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_rows_and_columns_that_its_head_says() {
        let tables = read::<f32>("a 2 3\n1 2 3\n4 5 NaN\nb 1 1\n-0.5\n");
        let (columns, values) = &tables["a"];
        assert_eq!((*columns, &values[..5]), (3, &[1.0, 2.0, 3.0, 4.0, 5.0][..]));
        assert!(values[5].is_nan());
        assert_eq!(tables["b"], (1, vec![-0.5]));
    }
}
