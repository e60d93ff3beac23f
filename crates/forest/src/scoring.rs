//! Settings of scoring: the file `options.json` beside a model.

use std::{fs::File, io::Read as _, ops::Range, path::Path};

use outrigger_core::{Failure, without_mark};
use outrigger_trees as trees;
use serde::{Deserialize, de::DeserializeOwned};

use crate::invalid;

pub(crate) const FILE: &str = "options.json";
/// The largest size allowed for the file, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Settings of scoring that are not part of the model's own file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scoring {
    /// The boosting iterations whose trees count.
    pub iterations: Iterations,
    /// A value of a feature that stands for a missing one, as NaN does.
    pub missing: Option<f64>,
    /// True if only the lower 32 bits of the ids of sparse rows count, as in XGBoost Serving.
    pub truncate_ids: bool,
}

/// Boosting iterations of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected \"all\", \"best\" or [first, end]")]
pub enum Iterations {
    /// A set with a name.
    Named(Named),
    /// The first one, and the one after the last.
    Range(u32, u32),
}

/// Sets of iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Named {
    /// All, which is the default of XGBoost's `Booster.predict`.
    All,
    /// Those up to the best one of early stopping, which is the default of XGBoost's interface for
    /// scikit-learn.
    Best,
}

impl Default for Iterations {
    fn default() -> Self {
        Self::Named(Named::All)
    }
}

impl Iterations {
    /// The iterations of a model that count.
    ///
    /// # Errors
    /// IMAGE_INVALID if the model has no best iteration, or not all of the range.
    pub(crate) fn of(self, model: &trees::Header) -> Result<Range<u32>, Failure> {
        let all = 0..model.iterations();
        let (range, problem) = match self {
            Self::Named(Named::All) => return Ok(all),
            Self::Named(Named::Best) => (
                model.best_iteration().map(|best| 0..best.saturating_add(1)),
                "the model has no best iteration".to_owned(),
            ),
            Self::Range(first, end) => {
                (Some(first..end), format!("iterations [{first}, {end}] are not in {all:?}"))
            }
        };
        let range = range.filter(|range| !range.is_empty() && range.end <= all.end);
        range.ok_or_else(|| invalid(format!("{FILE}: {problem}")))
    }
}

impl Scoring {
    /// Reads the settings beside the model in `directory`; the defaults if there is no file. Blocks.
    ///
    /// # Errors
    /// IMAGE_INVALID if the file cannot be read or is not valid.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        read_options(directory)
    }
}

/// Reads the settings beside the model in `directory`; the defaults if there is no file. Blocks.
///
/// # Errors
/// IMAGE_INVALID if the file cannot be read or is not valid.
pub(crate) fn read_options<T: Default + DeserializeOwned>(directory: &Path) -> Result<T, Failure> {
    let path = directory.join(FILE);
    if !path.exists() {
        return Ok(T::default());
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
    read.map_err(|error| invalid(format!("{FILE} cannot be read: {error}")))?;
    serde_json::from_slice(without_mark(text.as_bytes()))
        .map_err(|error| invalid(format!("{FILE} is not valid: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(text: &str) -> Result<Scoring, String> {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join(FILE), text).expect("a file");
        Scoring::read(directory.path()).map_err(|failure| failure.message)
    }

    #[test]
    fn a_model_without_the_file_has_the_defaults() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(Scoring::read(directory.path()), Ok(Scoring::default()));
    }

    #[test]
    fn settings_are_read_and_checked() {
        let some = Scoring {
            iterations: Iterations::Range(0, 42),
            missing: Some(-999.0),
            truncate_ids: true,
        };
        assert_eq!(
            read(r#"{"iterations": [0, 42], "missing": -999, "truncate_ids": true}"#),
            Ok(some)
        );
        let iterations = Iterations::Named(Named::Best);
        let best = Scoring { iterations, ..Scoring::default() };
        assert_eq!(read(r#"{"iterations": "best"}"#), Ok(best));
        for text in ["{}", r#"{"iterations": "all"}"#] {
            assert_eq!(read(text), Ok(Scoring::default()));
        }
        for (text, problem) in [
            (r#"{"iterations": "some"}"#, r#"expected "all", "best" or [first, end]"#),
            (r#"{"iteration": [0, 3]}"#, "unknown field `iteration`"),
            (r#"{"missing": "-999"}"#, "invalid type"),
            (r#"{"uplift": {"arms": []}}"#, "unknown field `uplift`"),
            ("", "options.json is not valid"),
        ] {
            let message = read(text).expect_err(text);
            assert!(message.contains(problem), "{message}");
        }
    }
}
