//! The distribution of a model's features at training time.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

/// The value of `schema` in profile.json.
const SCHEMA: &str = "outrigger.dev/profile/v1";

/// The distribution of a model's features at training time: profile.json.
///
/// ```json
/// {"schema": "outrigger.dev/profile/v1", "features": [
///   {"name": "recency_months", "missing": 0.02, "edges": [1, 3, 6], "shares": [0.2, 0.3, 0.3, 0.18]},
///   {"name": "channel", "out_of_vocabulary": 0.01, "words": ["phone", "web"], "shares": [0.39, 0.6]},
///   {"name": "discount", "entity": "treatment", "edges": [0.1], "shares": [0.7, 0.3]}
/// ]}
/// ```
/// A feature is a user's unless `entity` says that it is a treatment's. A bin includes
/// its upper edge. There is one share more than edges, or one per word. All shares of a
/// feature, `missing` and `out_of_vocabulary` included, add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    features: Vec<Feature>,
}

/// One feature: the categories in which its values are counted, and the share of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    name: String,
    entity: Entity,
    values: Values,
    shares: Vec<f64>,
}

/// The entity that a feature describes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entity {
    /// The user.
    #[default]
    User,
    /// A treatment: one treatment of each request is counted.
    Treatment,
}

#[derive(Debug, Clone, PartialEq)]
enum Values {
    Numbers(Vec<f64>),
    Words(HashMap<String, usize>),
}

/// The value of a feature in a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeatureValue<'v> {
    /// The request has no value.
    Missing,
    /// A number; NaN counts as missing.
    Number(f64),
    /// A word.
    Word(&'v str),
    /// A value that is not in the model's vocabulary.
    OutOfVocabulary,
}

/// The reason why a profile.json is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidProfile {
    /// It is not JSON of the expected structure.
    #[error("not a profile: {0}")]
    Form(#[from] serde_json::Error),
    /// It has another schema.
    #[error("the schema is {0:?}, not {SCHEMA:?}")]
    Schema(String),
    /// It has too many features.
    #[error("there are {0} features, at most {MOST_FEATURES} are allowed")]
    TooMany(usize),
    /// The edges, words and shares of a feature are inconsistent.
    #[error("feature {name:?}: {problem}")]
    Feature {
        /// The feature's name.
        name: String,
        /// The inconsistency.
        problem: &'static str,
    },
}

/// Limits on the features of a profile, and on the bins or words of a feature: every
/// second the judge tests all of them.
const MOST_FEATURES: usize = 200;
const MOST_SHARES: usize = 100;

/// Indices of the categories before those of the bins or words.
const MISSING: usize = 0;
const OTHER: usize = 1;
const FIRST: usize = 2;

impl Profile {
    /// Reads a profile.json.
    ///
    /// # Errors
    /// The profile is invalid.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidProfile> {
        let file: File = serde_json::from_slice(json)?;
        if file.schema != SCHEMA {
            return Err(InvalidProfile::Schema(file.schema));
        }
        if file.features.len() > MOST_FEATURES {
            return Err(InvalidProfile::TooMany(file.features.len()));
        }
        let features = file.features.into_iter().map(Feature::new);
        let features = features.collect::<Result<Vec<_>, _>>()?;
        let mut seen = HashSet::new();
        let twice = features.iter().find(|it| !seen.insert((it.entity, &it.name)));
        if let Some(Feature { name, .. }) = twice {
            let problem = "it occurs twice";
            return Err(InvalidProfile::Feature { name: name.clone(), problem });
        }
        Ok(Self { features })
    }

    /// The features, in the order of the file.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }
}

impl Feature {
    fn new(entry: Entry) -> Result<Self, InvalidProfile> {
        let Entry { name, entity, missing, out_of_vocabulary, edges, words, shares } = entry;
        let wrong = |problem| InvalidProfile::Feature { name: name.clone(), problem };
        let (values, expected) = match (edges, words) {
            (Some(edges), None) => {
                if !edges.is_sorted_by(|a, b| a < b) {
                    return Err(wrong("the edges do not ascend"));
                }
                let bins = edges.len() + 1;
                (Values::Numbers(edges), bins)
            }
            (None, Some(words)) => {
                let count = words.len();
                let index: HashMap<_, _> = words.into_iter().zip(FIRST..).collect();
                if index.len() != count {
                    return Err(wrong("a word occurs twice"));
                }
                (Values::Words(index), count)
            }
            _ => return Err(wrong("one of edges and words is needed")),
        };
        if expected > MOST_SHARES {
            return Err(wrong("there are more than 100 bins or words"));
        }
        if shares.len() != expected {
            return Err(wrong("there is not one share for each bin or word"));
        }
        let shares = [missing, out_of_vocabulary].into_iter().chain(shares).collect::<Vec<_>>();
        let whole = shares.iter().sum::<f64>();
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) || (whole - 1.0).abs() > 1e-3 {
            return Err(wrong("the shares do not add up to 1"));
        }
        Ok(Self { name, entity, values, shares })
    }

    /// The feature's name in metadata.json.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The entity that the feature describes.
    pub fn entity(&self) -> Entity {
        self.entity
    }

    /// True if its values are words rather than numbers.
    pub fn has_words(&self) -> bool {
        matches!(self.values, Values::Words(_))
    }

    /// The category in which a value is counted.
    pub fn category(&self, value: FeatureValue<'_>) -> usize {
        match (&self.values, value) {
            (_, FeatureValue::Missing) => MISSING,
            (_, FeatureValue::Number(number)) if number.is_nan() => MISSING,
            (Values::Numbers(edges), FeatureValue::Number(number)) => {
                FIRST + edges.partition_point(|edge| *edge < number)
            }
            (Values::Words(words), FeatureValue::Word(word)) => {
                words.get(word).copied().unwrap_or(OTHER)
            }
            // Includes a word where the profile has numbers, and the reverse.
            _ => OTHER,
        }
    }

    /// The share of each category at training time.
    pub(crate) fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// The feature and a category, as text for reports.
    pub(crate) fn place(&self, category: usize) -> String {
        format!("{}: {}", self.name, self.label(category))
    }

    /// A category, as text for reports.
    pub(crate) fn label(&self, category: usize) -> String {
        match (category, &self.values) {
            (MISSING, _) => "missing".to_owned(),
            (OTHER, _) => "out of vocabulary".to_owned(),
            (_, Values::Numbers(edges)) => match edges.get(category - FIRST) {
                Some(edge) => format!("up to {edge}"),
                None => "above the last edge".to_owned(),
            },
            (_, Values::Words(words)) => {
                let word = words.iter().find(|(_, index)| **index == category);
                word.map_or_else(String::new, |(word, _)| format!("{word:?}"))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    features: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    entity: Entity,
    #[serde(default)]
    missing: f64,
    #[serde(default)]
    out_of_vocabulary: f64,
    edges: Option<Vec<f64>>,
    words: Option<Vec<String>>,
    shares: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(features: &str) -> Result<Profile, InvalidProfile> {
        Profile::parse(format!(r#"{{"schema": "{SCHEMA}", "features": [{features}]}}"#).as_bytes())
    }

    #[test]
    fn values_fall_into_their_categories() {
        let numbers =
            r#"{"name": "n", "missing": 0.1, "edges": [1, 3], "shares": [0.2, 0.3, 0.4]}"#;
        let words = r#"{"name": "w", "words": ["phone", "web"], "shares": [0.4, 0.6]}"#;
        let profile = profile(&format!("{numbers}, {words}")).unwrap();
        let [numbers, words] = profile.features() else { panic!("two features") };
        let number = |number| numbers.category(FeatureValue::Number(number));
        assert_eq!([0.0, 1.0, 1.5, 3.0, 9.0, f64::NAN].map(number), [2, 2, 3, 3, 4, MISSING]);
        let word = |word| words.category(FeatureValue::Word(word));
        assert_eq!(["phone", "web", "letter"].map(word), [2, 3, OTHER]);
        assert_eq!(words.category(FeatureValue::Missing), MISSING);
        assert_eq!(numbers.category(FeatureValue::OutOfVocabulary), OTHER);
        assert_eq!(numbers.shares(), [0.1, 0.0, 0.2, 0.3, 0.4]);
        assert_eq!([numbers.label(3), words.label(3)], ["up to 3", "\"web\""]);
    }

    #[test]
    fn inconsistent_features_are_refused() {
        for wrong in [
            r#"{"name": "a", "edges": [3, 1], "shares": [0.2, 0.3, 0.5]}"#,
            r#"{"name": "a", "edges": [1], "shares": [0.2, 0.3, 0.5]}"#,
            r#"{"name": "a", "edges": [1], "shares": [0.2, 0.3]}"#,
            r#"{"name": "a", "edges": [1], "shares": [1.2, -0.2]}"#,
            r#"{"name": "a", "words": ["x", "x"], "shares": [0.5, 0.5]}"#,
            r#"{"name": "a", "words": ["x"], "edges": [], "shares": [1]}"#,
            r#"{"name": "a", "shares": [1]}"#,
            r#"{"name": "a", "words": ["x"], "shares": [1], "mean": 3}"#,
            r#"{"name": "a", "words": ["x"], "shares": [1], "entity": "seed"}"#,
            r#"{"name": "a", "words": ["x"], "shares": [1]}, {"name": "a", "words": ["y"], "shares": [1]}"#,
        ] {
            assert!(profile(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(
            Profile::parse(br#"{"schema": "v2", "features": []}"#),
            Err(InvalidProfile::Schema(_))
        ));
    }
}
