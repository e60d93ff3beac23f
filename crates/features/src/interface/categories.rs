//! Compares the vocabularies of an input with the categories that the model has for its columns.

use std::ops::Range;

use outrigger_core::Categories;

use super::InterfaceError;
use crate::metadata::{Encoding, Input, Words};

/// Words of a list that an error shows.
const SHOWN: usize = 16;

/// The vocabulary of a feature.
struct Vocabulary {
    /// The number of the feature.
    feature: usize,
    columns: Range<usize>,
    words: Vec<String>,
}

/// Checks that the words of vocabularies are the categories of their columns, in the same order: a
/// word's position is the code that the model knows. Where the model has no more than the order of the
/// columns, vocabularies are compared one by one if there are as many as lists of categories, and else
/// none may have the categories of a list in another order.
///
/// # Errors
/// The first vocabulary with other words.
pub(super) fn check(
    path: &str,
    input: &Input,
    categories: &[Categories],
) -> Result<(), InterfaceError> {
    let vocabularies = vocabularies(input);
    let is_placed = categories.iter().all(|list| list.column.is_some());
    let is_one_by_one = vocabularies.len() == categories.len();
    for (at, Vocabulary { feature, columns, words }) in vocabularies.iter().enumerate() {
        let mut lists = categories.iter();
        let list = if is_placed {
            // A file may be read in two ways, of which one is right.
            let mut own =
                lists.filter(|list| list.column.is_some_and(|column| columns.contains(&column)));
            let first = own.next();
            if own.any(|list| are_equal(words, &list.words)) { None } else { first }
        } else if is_one_by_one {
            lists.nth(at)
        } else if lists.clone().any(|list| are_equal(words, &list.words)) {
            None
        } else {
            lists.find(|list| are_equal(&sorted(words), &sorted(&list.words)))
        };
        if let Some(list) = list.filter(|list| !are_equal(words, &list.words)) {
            let [file, model] = shown([words, &list.words]);
            return Err(InterfaceError {
                path: format!("{path}.features[{feature}].vocabulary"),
                file: format!("its words are {file}"),
                model: format!("the categories of the column are {model}"),
            });
        }
    }
    Ok(())
}

fn vocabularies(input: &Input) -> Vec<Vocabulary> {
    let mut end = 0;
    let found = input.features.iter().enumerate().filter_map(|(index, feature)| {
        let first = end;
        end += feature.length;
        let Encoding::Vocabulary { words, .. } = &feature.encoding else { return None };
        let words = match words {
            Words::Texts(words) => words.iter().map(|word| word.to_string()).collect(),
            Words::Integers(words) => words.iter().map(i64::to_string).collect(),
        };
        Some(Vocabulary { feature: index, columns: first..end, words })
    });
    found.collect()
}

fn sorted(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    words.sort_unstable();
    words
}

fn are_equal(words: &[String], categories: &[String]) -> bool {
    words.len() == categories.len() && words.iter().zip(categories).all(|(a, b)| is_equal(a, b))
}

/// True if a word stands for a category: the libraries and people write numbers and flags in different
/// ways, and characters that a file has lost are [`char::REPLACEMENT_CHARACTER`].
fn is_equal(word: &str, category: &str) -> bool {
    const LOST: char = char::REPLACEMENT_CHARACTER;
    let number = |text: &str| text.parse::<f64>().ok().filter(|it| it.is_finite());
    let may_be = |(own, other): (char, char)| own == other || other == LOST;
    let is_cut = || {
        category.contains(LOST)
            && word.chars().count() == category.chars().count()
            && word.chars().zip(category.chars()).all(may_be)
    };
    word == category
        || number(word).is_some_and(|it| number(category) == Some(it))
        || matches!(category, "true" | "false") && word.eq_ignore_ascii_case(category)
        || is_cut()
}

/// Both lists, or what follows the first difference in long ones.
fn shown(lists: [&[String]; 2]) -> [String; 2] {
    let [a, b] = lists;
    let same = a.iter().zip(b).take_while(|(a, b)| is_equal(a, b)).count();
    let start = if a.len().max(b.len()) > SHOWN { same } else { 0 };
    lists.map(|words| {
        let some: Vec<_> = words.iter().skip(start).take(SHOWN).collect();
        let rest = words.len().saturating_sub(start + some.len());
        let before = if start > 0 { format!("from position {start} on ") } else { String::new() };
        let after = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        format!("{before}{some:?}{after}")
    })
}
