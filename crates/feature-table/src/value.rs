//! Cells as values of features: the types of values that features take, and how a cell becomes one.

use std::borrow::Borrow;

use outrigger_core::DType;
use outrigger_features::metadata::{Encoding, Feature, Size, Words};
use outrigger_proto::outrigger::v1::{
    IntegerList, NumberList, RealList, SparseList, TextList, value::Kind,
};
use outrigger_tables::{Cell, flag, integer, real};

/// The bytes of memory that each byte of a JSON list may take: a value of one digit and a comma takes
/// a cell, and a growing list room for as many again.
const PER_BYTE: usize = size_of::<Cell>();
/// The bytes that a short list may take in any case.
const LEAST: usize = 4096;

/// The type of the values that a feature takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A number.
    Number,
    /// An integer.
    Integer,
    /// True or false.
    Flag,
    /// Text.
    Text,
    /// Several values.
    Vector,
    /// Ids with weights.
    Sparse,
    /// Any, because the feature is not known.
    Unknown,
}

/// The values that a feature takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// Their type.
    pub of: Type,
    /// True if NaN is a value; else it stands for none.
    pub nan: bool,
    /// True if its numbers are float32.
    pub single: bool,
}

impl Takes {
    /// The values of a feature of a tensor of type `dtype`.
    pub fn of(feature: &Feature, dtype: DType) -> Self {
        let is_weight = matches!(feature.size, Size::WeightOf(_));
        let of = match (&feature.encoding, dtype) {
            _ if is_weight => Type::Number,
            _ if feature.size == Size::Sparse => Type::Sparse,
            _ if feature.length > 1 || feature.size != Size::Exact => Type::Vector,
            (Encoding::Vocabulary { words: Words::Integers(_), .. }, _) => Type::Integer,
            (Encoding::HashBuckets(_) | Encoding::Vocabulary { .. }, _) => Type::Text,
            (Encoding::Plain, DType::Float32 | DType::Float64) => Type::Number,
            (Encoding::Plain, DType::Int32 | DType::Int64) => Type::Integer,
            (Encoding::Plain, DType::Bool) => Type::Flag,
            // Features have no other types.
            (Encoding::Plain, _) => Type::Text,
        };
        let is_plain = matches!(feature.encoding, Encoding::Plain);
        let single = is_weight || is_plain && dtype == DType::Float32;
        Self { of, nan: feature.allow_non_finite, single }
    }

    /// Any value, for the feature of a model that does not say which it takes.
    pub fn any(of: Type) -> Self {
        Self { of, nan: true, single: false }
    }
}

/// The value in a cell for a feature; `None` if there is none, which NaN and blanks stand for where the
/// feature has no such values. The model decides whether it takes the value: a text that is not of the
/// type stays text.
///
/// # Errors
/// No feature can have such a value.
pub fn value(cell: &Cell, takes: Takes) -> Result<Option<Kind>, String> {
    let is_blank = |text: &str| {
        !matches!(takes.of, Type::Text | Type::Unknown) && text.trim_ascii().is_empty()
    };
    let kind = match cell {
        Cell::Absent => return Ok(None),
        Cell::Untyped(text) if is_blank(text) => return Ok(None),
        Cell::Flag(flag) => Kind::Flag(*flag),
        Cell::Integer(value) => Kind::Integer(*value),
        Cell::Unsigned(id) if takes.of == Type::Sparse => of_ids(vec![*id]),
        // Features have no type for it.
        Cell::Unsigned(value) if takes.single => Kind::Number(*value as f32),
        Cell::Unsigned(value) => Kind::Real(*value as f64),
        Cell::Single(value) => Kind::Number(*value),
        Cell::Real(value) => Kind::Real(*value),
        Cell::Text(text) => match number(cell).filter(|_| takes.of == Type::Number) {
            Some(value) => Kind::Real(value),
            None => Kind::Text(text.clone()),
        },
        Cell::Untyped(text) => untyped(text, takes)?.unwrap_or_else(|| Kind::Text(text.clone())),
        Cell::List(cells) => all_of(cells, takes)?,
        Cell::Object(members) if takes.of == Type::Sparse => sparse(members)?,
        Cell::Object(_) => return Err("an object, where a value is expected".to_owned()),
    };
    let is_nan = match kind {
        Kind::Number(value) => value.is_nan(),
        Kind::Real(value) => value.is_nan(),
        _ => false,
    };
    Ok(Some(kind).filter(|_| !is_nan || takes.nan))
}

/// The value of a cell of CSV; `None` if the text is not of the type.
fn untyped(text: &str, takes: Takes) -> Result<Option<Kind>, String> {
    let text = text.trim_ascii();
    let whole = || integer(text).map(Kind::Integer);
    let number = || match takes.single.then(|| real(text)).flatten() {
        Some(single) => Some(Kind::Number(single)),
        None => real(text).map(Kind::Real),
    };
    let parsed_integer = || text.parse().ok().map(Kind::Integer);
    let word = || flag(text).map(Kind::Flag);
    // "nan" and "inf" may be words.
    let has_digit = || text.bytes().any(|byte| byte.is_ascii_digit());
    Ok(match takes.of {
        Type::Text => None,
        Type::Number => number().or_else(word),
        Type::Integer => whole().or_else(number),
        Type::Flag => word().or_else(whole).or_else(number),
        Type::Vector => vector(text, takes)?,
        Type::Sparse => match parsed(text, '{') {
            Some(Cell::Object(members)) => Some(sparse(&members)?),
            _ => match vector(text, takes)? {
                None => parsed_integer().or_else(|| Some(of_ids(vec![text.parse().ok()?]))),
                list => list,
            },
        },
        Type::Unknown if has_digit() => match vector(text, takes)? {
            None => parsed_integer().or_else(number),
            list => list,
        },
        Type::Unknown => vector(text, takes)?.or_else(word),
    })
}

/// The values of a JSON list; `None` if the text is not one, or takes more memory than values that
/// are not lists.
fn vector(text: &str, takes: Takes) -> Result<Option<Kind>, String> {
    match parsed(text, '[') {
        Some(Cell::List(cells)) => all_of(&cells, takes).map(Some),
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
            "ids" => sparse.ids = all(cells.iter(), id).ok_or_else(|| wrong("ids"))?,
            "names" => sparse.names = all(cells.iter(), text).ok_or_else(|| wrong("texts"))?,
            "weights" => {
                sparse.weights = all(cells.iter(), Cell::single).ok_or_else(|| wrong("numbers"))?;
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

/// The number of a cell, also as the text of one that is not finite (the JSON mapping of Protocol
/// Buffers), as batch jobs read it.
fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Text(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
            text.parse().ok()
        }
        _ => cell.real(),
    }
}

/// The value of a list. For features of several values, those of lists in it follow each other.
///
/// # Errors
/// As [`list`].
fn all_of(cells: &[Cell], takes: Takes) -> Result<Kind, String> {
    fn flatten<'a>(cells: &'a [Cell], into: &mut Vec<&'a Cell>) {
        for cell in cells {
            match cell {
                Cell::List(cells) => flatten(cells, into),
                _ => into.push(cell),
            }
        }
    }
    let is_nested = cells.iter().any(|cell| matches!(cell, Cell::List(_)));
    if !is_nested || !matches!(takes.of, Type::Vector | Type::Sparse) {
        return list(cells.iter(), takes);
    }
    let mut values = Vec::new();
    flatten(cells, &mut values);
    list(values.into_iter(), takes)
}

/// The value of several cells, each of which is there.
///
/// # Errors
/// Their types differ, or no feature has such values.
pub(crate) fn list(
    cells: impl Iterator<Item: Borrow<Cell>> + Clone,
    takes: Takes,
) -> Result<Kind, String> {
    let single = |cell: &Cell| match cell {
        Cell::Single(value) => Some(*value),
        _ => None,
    };
    if let Some(values) = all(cells.clone(), single) {
        return Ok(Kind::Numbers(NumberList { values }));
    }
    let whole = |cell: &Cell| match cell {
        Cell::Integer(value) => Some(*value),
        Cell::Flag(flag) => Some((*flag).into()),
        _ => None,
    };
    if let Some(values) = all(cells.clone(), whole) {
        return Ok(Kind::Integers(IntegerList { values }));
    }
    if takes.of == Type::Sparse
        && let Some(ids) = all(cells.clone(), id)
    {
        return Ok(of_ids(ids));
    }
    if let Some(values) = all(cells.clone(), text) {
        return Ok(Kind::Texts(TextList { values }));
    }
    if takes.single
        && let Some(values) = all(cells.clone(), Cell::single)
    {
        return Ok(Kind::Numbers(NumberList { values }));
    }
    let reals = all(cells, number);
    let reals = reals.ok_or("a list of nulls, lists, objects or different types")?;
    Ok(Kind::Reals(RealList { values: reals }))
}

fn of_ids(ids: Vec<u64>) -> Kind {
    Kind::Sparse(SparseList { ids, ..SparseList::default() })
}

/// The values of all cells; `None` if one of them is of another kind.
fn all<T>(
    cells: impl Iterator<Item: Borrow<Cell>>,
    value: impl Fn(&Cell) -> Option<T>,
) -> Option<Vec<T>> {
    cells.map(|cell| value(cell.borrow())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(of: Type) -> Takes {
        Takes { of, nan: false, single: false }
    }

    fn csv(text: &str, of: Type) -> Option<Kind> {
        value(&Cell::Untyped(text.to_owned()), takes(of)).expect("a value")
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
        assert_eq!(csv("7.0", Type::Integer), Some(Kind::Integer(7)));
        assert_eq!(csv("True", Type::Number), Some(Kind::Flag(true)));
        assert_eq!(csv("True", Type::Flag), Some(Kind::Flag(true)));
        assert_eq!(csv("0", Type::Flag), Some(Kind::Integer(0)));
        let integers = IntegerList { values: vec![1, 2] };
        assert_eq!(csv("[1, 2]", Type::Vector), Some(Kind::Integers(integers)));
    }

    #[test]
    fn nan_and_blanks_are_no_values_where_no_text_is_expected() {
        for of in [Type::Number, Type::Integer, Type::Flag, Type::Sparse] {
            for cell in [Cell::Real(f64::NAN), Cell::Single(f32::NAN)] {
                assert_eq!(value(&cell, takes(of)), Ok(None), "{of:?}");
            }
            assert_eq!([csv(" ", of), csv("nan", Type::Number)], [None, None], "{of:?}");
        }
        let text = |text: &str, of| value(&Cell::Text(text.to_owned()), takes(of));
        assert_eq!(
            [text("NaN", Type::Number), text("nan", Type::Number)],
            [Ok(None), Ok(text_kind("nan"))]
        );
        assert_eq!(text("Infinity", Type::Number), Ok(Some(Kind::Real(f64::INFINITY))));
        assert_eq!(text("NaN", Type::Text), Ok(text_kind("NaN")));
        let all = Takes { nan: true, ..takes(Type::Number) };
        let nan = value(&Cell::Real(f64::NAN), all).expect("a value");
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
            value(&cell, takes(Type::Sparse)).map(|kind| kind.expect("a value"))
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
        let list = |json: &str| {
            value(&Cell::parse(json.as_bytes(), LEAST).expect("JSON"), takes(Type::Vector))
        };
        let reals = RealList { values: vec![1.0, 0.5] };
        assert_eq!(list("[1, 0.5]"), Ok(Some(Kind::Reals(reals))));
        let texts = TextList { values: vec!["a".to_owned()] };
        assert_eq!(list(r#"["a"]"#), Ok(Some(Kind::Texts(texts))));
        let integers = IntegerList { values: vec![1, 2, 3] };
        assert_eq!(list("[[1, 2], [[3]]]"), Ok(Some(Kind::Integers(integers))));
        for wrong in [r#"[1, "a"]"#, "[[1, null]]", "[null]", r#"{"a": 1}"#] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
        assert_eq!(value(&Cell::Absent, takes(Type::Text)), Ok(None));
        let mixed = RealList { values: vec![1.0, 0.5] };
        assert_eq!(list("[true, 0.5]"), Ok(Some(Kind::Reals(mixed))));
        let infinite = RealList { values: vec![1.0, f64::NEG_INFINITY] };
        assert_eq!(list(r#"[1, "-Infinity"]"#), Ok(Some(Kind::Reals(infinite))));
    }

    #[test]
    fn integers_above_2_to_63_are_rounded_once() {
        // The float64 next to it is the middle of two float32.
        let large = (1_u64 << 63) + (1 << 39) + 1;
        assert_ne!(large as f32, large as f64 as f32);
        let single = Takes { single: true, ..takes(Type::Number) };
        let cell = Cell::Unsigned(large);
        assert_eq!(value(&cell, single), Ok(Some(Kind::Number(large as f32))));
        assert_eq!(value(&cell, takes(Type::Number)), Ok(Some(Kind::Real(large as f64))));
        let values = vec![large as f32, 1.0];
        let list = Cell::List(vec![cell.clone(), Cell::Integer(1)]);
        assert_eq!(value(&list, single), Ok(Some(Kind::Numbers(NumberList { values }))));
        let text = Cell::Untyped(large.to_string());
        assert_eq!(value(&text, single), Ok(Some(Kind::Number(large as f32))));
        // As an id it is exact.
        let ids = Kind::Sparse(SparseList { ids: vec![large], ..SparseList::default() });
        for cell in [cell.clone(), text, Cell::List(vec![cell])] {
            assert_eq!(value(&cell, takes(Type::Sparse)), Ok(Some(ids.clone())));
        }
    }
}
