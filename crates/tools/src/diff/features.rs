//! The features that differ between two packages.

use std::sync::Arc;

use outrigger_features::{
    Metadata,
    metadata::{Absence, Encoding, Feature, Raw, Size, Words},
};
use serde::Serialize;

use super::Change;
use crate::inspect::{self, FeatureReport};

/// A feature that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeatureChange {
    /// The kinds of its changes.
    pub kinds: Vec<FeatureChangeKind>,
    /// `user` or `treatment`.
    pub entity: &'static str,
    /// Its name in requests.
    pub name: String,
    /// Its place in A; `None` if it was added.
    pub a: Option<FeatureReport>,
    /// Its place in B; `None` if it was removed.
    pub b: Option<FeatureReport>,
    /// The keys of its definition in metadata.json that differ.
    pub definition: Vec<Change>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureChangeKind {
    /// B has the feature, A does not.
    Added,
    /// A has the feature, B does not.
    Removed,
    /// It is in another tensor or at another position.
    Moved,
    /// It has another dtype or length.
    Retyped,
    /// It is encoded or replaced by a default in another way.
    Redefined,
}

impl FeatureChangeKind {
    /// The kind in text and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Moved => "moved",
            Self::Retyped => "retyped",
            Self::Redefined => "redefined",
        }
    }
}

/// A feature with its place.
type Placed<'a> = (FeatureReport, &'a Feature);

fn placed(metadata: &Metadata) -> Vec<Placed<'_>> {
    let features = metadata.inputs.iter().flat_map(|input| &input.features);
    inspect::features(metadata).into_iter().zip(features).collect()
}

/// The features that differ: those of A in its order, then those that only B has.
pub(super) fn changes(a: &Metadata, b: &Metadata) -> Vec<FeatureChange> {
    let (a, b) = (placed(a), placed(b));
    let find = |features: &[Placed<'_>], wanted: &Placed<'_>| {
        let key = |(place, _): &Placed<'_>| (place.entity, place.name.clone());
        features.iter().position(|feature| key(feature) == key(wanted))
    };
    let of_a =
        a.iter().filter_map(|feature| change(Some(feature), find(&b, feature).map(|at| &b[at])));
    let added = b.iter().filter(|feature| find(&a, feature).is_none());
    of_a.chain(added.filter_map(|feature| change(None, Some(feature)))).collect()
}

fn change(a: Option<&Placed<'_>>, b: Option<&Placed<'_>>) -> Option<FeatureChange> {
    let (named, _) = a.or(b)?;
    let (mut kinds, mut definition) = (Vec::new(), Vec::new());
    match (a, b) {
        (None, _) => kinds.push(FeatureChangeKind::Added),
        (_, None) => kinds.push(FeatureChangeKind::Removed),
        (Some((at_a, of_a)), Some((at_b, of_b))) => {
            definition = redefined(of_a, of_b);
            let moved = (&at_a.tensor, at_a.offset) != (&at_b.tensor, at_b.offset);
            let retyped = (at_a.dtype, at_a.length) != (at_b.dtype, at_b.length);
            kinds.extend(moved.then_some(FeatureChangeKind::Moved));
            kinds.extend(retyped.then_some(FeatureChangeKind::Retyped));
            kinds.extend((!definition.is_empty()).then_some(FeatureChangeKind::Redefined));
        }
    }
    let place = |feature: Option<&Placed<'_>>| feature.map(|(place, _)| place.clone());
    (!kinds.is_empty()).then(|| FeatureChange {
        kinds,
        entity: named.entity,
        name: named.name.clone(),
        a: place(a),
        b: place(b),
        definition,
    })
}

/// The keys of metadata.json that define a feature, beside its place.
const KEYS: [&str; 10] = [
    "max",
    "id",
    "padding",
    "default",
    "required",
    "missing",
    "vocabulary",
    "out_of_vocabulary",
    "hash_buckets",
    "allow_non_finite",
];

fn redefined(a: &Feature, b: &Feature) -> Vec<Change> {
    let mut changes = Vec::new();
    for key in KEYS {
        let (of_a, of_b) = match (key, words(a), words(b)) {
            ("vocabulary", Some(of_a), Some(of_b)) => differing_words(&of_a, &of_b),
            _ => (value(a, key), value(b, key)),
        };
        if of_a != of_b {
            changes.push(Change { subject: key.to_owned(), a: of_a, b: of_b });
        }
    }
    changes
}

/// The value of a key, as text; `None` if the feature does not have it.
fn value(feature: &Feature, key: &str) -> Option<String> {
    let truth = |is_true: bool| is_true.then(|| "true".to_owned());
    match (key, &feature.absence, &feature.encoding) {
        ("max", ..) => match feature.size {
            Size::Padded(_) | Size::Ragged | Size::Sparse => Some(feature.length.to_string()),
            Size::Exact | Size::WeightOf(_) => None,
        },
        ("id", ..) => match feature.size {
            Size::WeightOf(id) => Some(id.to_string()),
            _ => None,
        },
        ("padding", ..) => match &feature.size {
            Size::Padded(padding) => Some(raw(padding)),
            _ => None,
        },
        ("default", Absence::Default(values), _) => {
            Some(values.iter().map(raw).collect::<Vec<_>>().join(", "))
        }
        ("required", absence, _) => truth(*absence == Absence::Required),
        ("missing", Absence::Nan, _) => Some("nan".to_owned()),
        ("vocabulary", ..) => words(feature).map(|words| format!("{} words", words.len())),
        ("out_of_vocabulary", _, Encoding::Vocabulary { out_of_vocabulary, .. }) => {
            out_of_vocabulary.map(|other| match feature.size {
                Size::Sparse => other.cast_unsigned().to_string(),
                _ => other.to_string(),
            })
        }
        ("hash_buckets", _, Encoding::HashBuckets(buckets)) => Some(buckets.to_string()),
        ("allow_non_finite", ..) => truth(feature.allow_non_finite),
        _ => None,
    }
}

fn raw(value: &Raw) -> String {
    match value {
        Raw::Real(value) => value.to_string(),
        Raw::Integer(value) => value.to_string(),
        Raw::Flag(value) => value.to_string(),
        Raw::Text(value) => format!("{value:?}"),
        Raw::Id(value) => value.to_string(),
    }
}

fn words(feature: &Feature) -> Option<Vec<String>> {
    match &feature.encoding {
        Encoding::Vocabulary { words: Words::Texts(words), ids, .. } => {
            let word = |(index, word): (usize, &Arc<str>)| match ids.get(index) {
                Some(id) => format!("{word:?} = {id}"),
                None => format!("{word:?}"),
            };
            Some(words.iter().enumerate().map(word).collect())
        }
        Encoding::Vocabulary { words: Words::Integers(words), .. } => {
            Some(words.iter().map(i64::to_string).collect())
        }
        _ => None,
    }
}

/// The sizes of two vocabularies, with the first word that differs.
fn differing_words(a: &[String], b: &[String]) -> (Option<String>, Option<String>) {
    let both = a.iter().zip(b).position(|(a, b)| a != b);
    let first = both.unwrap_or(a.len().min(b.len()));
    let text = |words: &[String]| match words.get(first) {
        Some(word) => format!("{} words, {word} at {first}", words.len()),
        None => format!("{} words", words.len()),
    };
    (Some(text(a)), Some(text(b)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FeatureChangeKind::*, *};

    fn metadata(inputs: &Value) -> Metadata {
        let text = json!({
            "schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": inputs,
            "outputs": [{"tensor": "s", "name": "score", "kind": "per_treatment"}],
        });
        Metadata::parse(text.to_string().as_bytes()).expect("metadata")
    }

    fn numeric(tensor: &str, dtype: &str, features: &Value) -> Value {
        json!({"tensor": tensor, "entity": "user", "dtype": dtype, "features": features})
    }

    /// The changes of features, each as its name and kinds.
    fn kinds(a: &Value, b: &Value) -> Vec<(String, Vec<FeatureChangeKind>)> {
        let changes = changes(&metadata(a), &metadata(b));
        changes.into_iter().map(|change| (change.name, change.kinds)).collect()
    }

    #[test]
    fn features_are_added_removed_moved_and_retyped() {
        let required = |name: &str| json!({"name": name, "required": true});
        let a = json!([
            numeric("u", "float32", &json!([required("x"), required("y")])),
            numeric("v", "int64", &json!([required("z")]))
        ]);
        assert_eq!(kinds(&a, &a), []);
        let b = json!([
            numeric("u", "float32", &json!([required("y"), required("z")])),
            numeric("v", "int64", &json!([required("w")]))
        ]);
        let expected = [
            ("x", vec![Removed]),
            ("y", vec![Moved]),
            ("z", vec![Moved, Retyped]),
            ("w", vec![Added]),
        ];
        assert_eq!(kinds(&a, &b), expected.map(|(name, kinds)| (name.to_owned(), kinds)));
        let longer = json!([
            numeric(
                "u",
                "float32",
                &json!([
            {"name": "x", "length": 2, "required": true}, required("y")])
            ),
            numeric("v", "int64", &json!([required("z")]))
        ]);
        let expected = [("x", vec![Retyped]), ("y", vec![Moved])];
        assert_eq!(kinds(&a, &longer), expected.map(|(name, kinds)| (name.to_owned(), kinds)));
    }

    #[test]
    fn a_list_in_place_of_a_vector_redefines_a_feature() {
        let with = |key: &str, padding: Value| {
            let mut feature = json!({"name": "x", key: 2, "required": true});
            feature
                .as_object_mut()
                .expect("an object")
                .extend((!padding.is_null()).then(|| ("padding".to_owned(), padding)));
            json!([numeric("u", "float32", &json!([feature]))])
        };
        let definition = |a: &Value, b: &Value| {
            let changes = changes(&metadata(a), &metadata(b)).remove(0).definition;
            changes.into_iter().map(|it| (it.subject, it.a, it.b)).collect::<Vec<_>>()
        };
        let change = |subject: &str, a: Option<&str>, b: &str| {
            (subject.to_owned(), a.map(str::to_owned), Some(b.to_owned()))
        };
        let (vector, list) = (with("length", Value::Null), with("max", json!(-1)));
        let expected = [change("max", None, "2"), change("padding", None, "-1")];
        assert_eq!(definition(&vector, &list), expected);
        let expected = [change("padding", Some("-1"), "0")];
        assert_eq!(definition(&list, &with("max", json!(0))), expected);
    }

    #[test]
    fn another_default_and_another_word_redefine_a_feature() {
        let with = |feature: Value| json!([numeric("u", "int64", &json!([feature]))]);
        let words = |words: &[&str], default: &str| {
            with(json!({"name": "x", "vocabulary": words, "out_of_vocabulary": 9,
                "default": default}))
        };
        let definition = |a: &Value, b: &Value| {
            let mut changes = changes(&metadata(a), &metadata(b));
            assert_eq!(changes[0].kinds, [Redefined]);
            changes.remove(0).definition
        };
        let change = |subject: &str, a: Option<&str>, b: Option<&str>| Change {
            subject: subject.to_owned(),
            a: a.map(str::to_owned),
            b: b.map(str::to_owned),
        };
        let a = words(&["a", "b", "c"], "a");
        let expected = [
            change("default", Some("\"a\""), Some("\"c\"")),
            change("vocabulary", Some("3 words, \"b\" at 1"), Some("2 words, \"c\" at 1")),
        ];
        assert_eq!(definition(&a, &words(&["a", "c"], "c")), expected);
        let expected = [
            change("default", Some("\"a\""), None),
            change("required", None, Some("true")),
            change("vocabulary", Some("3 words"), None),
            change("out_of_vocabulary", Some("9"), None),
        ];
        assert_eq!(definition(&a, &with(json!({"name": "x", "required": true}))), expected);
    }
}
