//! Cells as values of features.

use outrigger_proto::outrigger::v1::{
    IntegerList, NumberList, RealList, SparseList, TextList, value::Kind,
};
use outrigger_tables::Cell;

use crate::features::Type;

/// The bytes of memory that each byte of a JSON list may take: a value of one digit and a comma takes
/// a cell, and a growing list room for as many again.
const PER_BYTE: usize = size_of::<Cell>();
/// The bytes that a short list may take in any case.
const LEAST: usize = 4096;

/// The value in a cell for a feature of type `of`; `None` if there is none, which NaN and blanks stand
/// for where they are no values of the type. The model decides whether it takes the value: a text that is
/// not of the type stays text.
///
/// # Errors
/// No feature can have such a value.
pub(crate) fn value(cell: &Cell, of: Type) -> Result<Option<Kind>, String> {
    let is_number = matches!(of, Type::Number | Type::Integer | Type::Flag);
    let is_blank =
        |text: &str| !matches!(of, Type::Text | Type::Unknown) && text.trim_ascii().is_empty();
    let kind = match cell {
        Cell::Absent => return Ok(None),
        Cell::Untyped(text) if is_blank(text) => return Ok(None),
        Cell::Flag(flag) => Kind::Flag(*flag),
        Cell::Integer(value) => Kind::Integer(*value),
        // Features have no type for it.
        Cell::Unsigned(value) => Kind::Real(*value as f64),
        Cell::Single(value) => Kind::Number(*value),
        Cell::Real(value) => Kind::Real(*value),
        Cell::Text(text) => Kind::Text(text.clone()),
        Cell::Untyped(text) => untyped(text, of)?.unwrap_or_else(|| Kind::Text(text.clone())),
        Cell::List(cells) => list(cells)?,
        Cell::Object(members) if of == Type::Sparse => sparse(members)?,
        Cell::Object(_) => return Err("an object, where a value is expected".to_owned()),
    };
    let is_nan = match kind {
        Kind::Number(value) => value.is_nan(),
        Kind::Real(value) => value.is_nan(),
        _ => false,
    };
    Ok(Some(kind).filter(|_| !(is_nan && is_number)))
}

/// The value of a cell of CSV; `None` if the text is not of the type.
fn untyped(text: &str, of: Type) -> Result<Option<Kind>, String> {
    let text = text.trim_ascii();
    let integer = || text.parse().ok().map(Kind::Integer);
    let real = || text.parse().ok().map(Kind::Real);
    let flag = || {
        let words = [("true", true), ("false", false)];
        let word = words.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
        word.map(|(_, flag)| Kind::Flag(flag))
    };
    Ok(match of {
        Type::Text => None,
        Type::Number | Type::AnyNumber => real().or_else(flag),
        Type::Integer => integer().or_else(real).or_else(flag),
        Type::Flag => flag().or_else(integer).or_else(real),
        Type::Vector => vector(text)?,
        Type::Sparse => match parsed(text, '{') {
            Some(Cell::Object(members)) => Some(sparse(&members)?),
            _ => vector(text)?.or_else(integer),
        },
        // "nan" and "inf" may be words.
        Type::Unknown if text.bytes().any(|byte| byte.is_ascii_digit()) => match vector(text)? {
            Some(list) => Some(list),
            None => integer().or_else(real),
        },
        Type::Unknown => match vector(text)? {
            Some(list) => Some(list),
            None => flag(),
        },
    })
}

/// The values of a JSON list; `None` if the text is not one, or takes more memory than values that
/// are not lists.
fn vector(text: &str) -> Result<Option<Kind>, String> {
    match parsed(text, '[') {
        Some(Cell::List(cells)) => list(&cells).map(Some),
        _ => Ok(None),
    }
}

/// The JSON value of a text that begins with `first`.
fn parsed(text: &str, first: char) -> Option<Cell> {
    let most = PER_BYTE * text.len() + LEAST;
    let json = text.starts_with(first).then(|| Cell::parse(text.as_bytes(), most));
    json.and_then(Result::ok)
}

/// The members of a sparse list: `ids` or `names`, and `weights`.
fn sparse(members: &[(String, Cell)]) -> Result<Kind, String> {
    let mut sparse = SparseList::default();
    for (key, cell) in members {
        let cells = match cell {
            Cell::Absent => continue,
            Cell::List(cells) => cells,
            _ => return Err(format!("{key}: not a list")),
        };
        let wrong = |expected| format!("{key}: not a list of {expected}");
        match key.as_str() {
            "ids" => sparse.ids = all(cells, id).ok_or_else(|| wrong("ids"))?,
            "names" => sparse.names = all(cells, text).ok_or_else(|| wrong("texts"))?,
            "weights" => {
                let weights = all(cells, number).ok_or_else(|| wrong("numbers"))?;
                sparse.weights = weights.into_iter().map(|weight| weight as f32).collect();
            }
            _ => return Err(format!("{key}: a sparse list has ids or names, and weights")),
        }
    }
    Ok(Kind::Sparse(sparse))
}

fn id(cell: &Cell) -> Option<u64> {
    match cell {
        Cell::Integer(id) => u64::try_from(*id).ok(),
        Cell::Unsigned(id) => Some(*id),
        _ => None,
    }
}

fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn list(cells: &[Cell]) -> Result<Kind, String> {
    let numbers = all(cells, |cell| match cell {
        Cell::Single(value) => Some(*value),
        _ => None,
    });
    if let Some(values) = numbers {
        return Ok(Kind::Numbers(NumberList { values }));
    }
    let integers = all(cells, |cell| match cell {
        Cell::Integer(value) => Some(*value),
        Cell::Flag(flag) => Some((*flag).into()),
        _ => None,
    });
    if let Some(values) = integers {
        return Ok(Kind::Integers(IntegerList { values }));
    }
    if let Some(values) = all(cells, text) {
        return Ok(Kind::Texts(TextList { values }));
    }
    let reals = all(cells, number);
    let reals = reals.ok_or("a list of nulls, lists, objects or different types")?;
    Ok(Kind::Reals(RealList { values: reals }))
}

/// The number in a cell that has one.
pub(crate) fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Integer(value) => Some(*value as f64),
        Cell::Unsigned(value) => Some(*value as f64),
        Cell::Single(value) => Some((*value).into()),
        Cell::Real(value) => Some(*value),
        Cell::Untyped(text) => text.trim_ascii().parse().ok(),
        _ => None,
    }
}

/// The values of all cells; `None` if one of them is of another kind.
fn all<T>(cells: &[Cell], value: impl Fn(&Cell) -> Option<T>) -> Option<Vec<T>> {
    cells.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &str, of: Type) -> Option<Kind> {
        value(&Cell::Untyped(text.to_owned()), of).expect("a value")
    }

    fn text_kind(text: &str) -> Option<Kind> {
        Some(Kind::Text(text.to_owned()))
    }

    #[test]
    fn a_cell_of_csv_has_the_type_of_its_feature() {
        assert_eq!(csv("007", Type::Text), text_kind("007"));
        assert_eq!(csv("7", Type::Number), Some(Kind::Real(7.0)));
        assert_eq!(csv(" 1e3", Type::Number), Some(Kind::Real(1000.0)));
        assert_eq!(csv("-inf", Type::Number), Some(Kind::Real(f64::NEG_INFINITY)));
        assert_eq!(csv("7", Type::Integer), Some(Kind::Integer(7)));
        assert_eq!(csv("7.0", Type::Integer), Some(Kind::Real(7.0)));
        assert_eq!(csv("True", Type::Number), Some(Kind::Flag(true)));
        assert_eq!(csv("True", Type::Flag), Some(Kind::Flag(true)));
        assert_eq!(csv("0", Type::Flag), Some(Kind::Integer(0)));
        let integers = IntegerList { values: vec![1, 2] };
        assert_eq!(csv("[1, 2]", Type::Vector), Some(Kind::Integers(integers)));
    }

    #[test]
    fn nan_and_blanks_are_no_values_where_no_text_is_expected() {
        for of in [Type::Number, Type::Integer, Type::Flag] {
            for cell in [Cell::Real(f64::NAN), Cell::Single(f32::NAN)] {
                assert_eq!(value(&cell, of), Ok(None), "{of:?}");
            }
            assert_eq!([csv(" ", of), csv("nan", Type::Number)], [None, None], "{of:?}");
        }
        let nan = value(&Cell::Real(f64::NAN), Type::AnyNumber).expect("a value");
        assert!(matches!(nan, Some(Kind::Real(value)) if value.is_nan()));
        assert_eq!((csv(" ", Type::Text), csv("", Type::Vector)), (text_kind(" "), None));
    }

    #[test]
    fn a_text_of_another_type_stays_text_for_the_model_to_refuse() {
        for of in [Type::Number, Type::Integer, Type::Flag, Type::Vector, Type::Sparse] {
            assert_eq!(csv("1 2", of), text_kind("1 2"));
        }
    }

    #[test]
    fn the_type_of_an_unknown_feature_is_recognized() {
        assert_eq!(csv("7", Type::Unknown), Some(Kind::Integer(7)));
        assert_eq!(csv("-1.5", Type::Unknown), Some(Kind::Real(-1.5)));
        assert_eq!(csv("false", Type::Unknown), Some(Kind::Flag(false)));
        for word in ["nan", "Infinity", "2026-11-25", "[a", "web"] {
            assert_eq!(csv(word, Type::Unknown), text_kind(word), "{word}");
        }
        let reals = RealList { values: vec![0.5] };
        assert_eq!(csv("[0.5]", Type::Unknown), Some(Kind::Reals(reals)));
    }

    #[test]
    fn a_sparse_list_has_ids_or_names_with_weights() {
        let sparse = |json: &str| {
            let cell = Cell::parse(json.as_bytes(), LEAST).expect("JSON");
            value(&cell, Type::Sparse).map(|kind| kind.expect("a value"))
        };
        let of_ids = Kind::Sparse(SparseList {
            ids: vec![1, u64::MAX],
            weights: vec![0.5, 2.0],
            names: Vec::new(),
        });
        let json = r#"{"ids": [1, 18446744073709551615], "weights": [0.5, 2]}"#;
        assert_eq!(sparse(json), Ok(of_ids.clone()));
        assert_eq!(csv(json, Type::Sparse), Some(of_ids));
        let names = vec!["a".to_owned()];
        let of_names = SparseList { names, ..SparseList::default() };
        let json = r#"{"names": ["a"], "weights": null}"#;
        assert_eq!(sparse(json), Ok(Kind::Sparse(of_names)));
        assert_eq!(sparse("[3]"), Ok(Kind::Integers(IntegerList { values: vec![3] })));
        assert_eq!(csv("3", Type::Sparse), Some(Kind::Integer(3)));
        for (wrong, message) in [
            (r#"{"ids": [-1]}"#, "ids: not a list of ids"),
            (r#"{"ids": 1}"#, "ids: not a list"),
            (r#"{"names": [1]}"#, "names: not a list of texts"),
            (r#"{"weights": ["a"]}"#, "weights: not a list of numbers"),
            (r#"{"id": [1]}"#, "id: a sparse list has ids or names, and weights"),
        ] {
            assert_eq!(sparse(wrong), Err(message.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn a_list_has_values_of_one_type() {
        let list =
            |json: &str| value(&Cell::parse(json.as_bytes(), LEAST).expect("JSON"), Type::Vector);
        let reals = RealList { values: vec![1.0, 0.5] };
        assert_eq!(list("[1, 0.5]"), Ok(Some(Kind::Reals(reals))));
        let texts = TextList { values: vec!["a".to_owned()] };
        assert_eq!(list(r#"["a"]"#), Ok(Some(Kind::Texts(texts))));
        for wrong in [r#"[1, "a"]"#, "[[1]]", "[null]", r#"{"a": 1}"#] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
        assert_eq!(value(&Cell::Absent, Type::Text), Ok(None));
    }
}
