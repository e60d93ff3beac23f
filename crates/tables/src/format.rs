//! The formats of files.

use std::{ffi::OsStr, fmt, path::Path, str::FromStr};

use serde::{Deserialize, Serialize};

/// The format of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// RFC 4180, in UTF-8, with a header. An empty cell is an absent value, and a vector is written
    /// as a JSON list.
    Csv,
    /// A JSON object on each line (JSON Lines).
    Jsonl,
    /// Apache Parquet. Scores are written with Snappy.
    Parquet,
}

/// The name, as it is serialized.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = [Self::Csv, Self::Jsonl, Self::Parquet];
        let found = known.into_iter().find(|format| format.to_string() == name);
        found.ok_or_else(|| format!("{name:?} is not csv, jsonl or parquet"))
    }
}

impl Format {
    /// The endings of file names, each with its format.
    const ENDINGS: [(&'static str, Self); 4] = [
        ("csv", Self::Csv),
        ("jsonl", Self::Jsonl),
        ("ndjson", Self::Jsonl),
        ("parquet", Self::Parquet),
    ];

    /// The format that the ending of the file's name states.
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension().and_then(OsStr::to_str)?;
        let mut known = Self::ENDINGS.into_iter();
        known.find(|(name, _)| name.eq_ignore_ascii_case(ending)).map(|(_, format)| format)
    }

    /// The endings that [`Self::of`] knows, for messages: `.csv, .jsonl`.
    pub fn endings() -> String {
        Self::ENDINGS.map(|(name, _)| format!(".{name}")).join(", ")
    }
}

/// The names of the columns whose values are parts of a path, as in `day=2026-11-29/a.parquet`.
pub fn partitions(path: &Path) -> impl Iterator<Item = &str> {
    let parts = path.parent().into_iter().flat_map(Path::components);
    parts.filter_map(|part| Some(part.as_os_str().to_str()?.split_once('=')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_the_name_states_the_format() {
        assert_eq!(Format::of(Path::new("a/b.CSV")), Some(Format::Csv));
        assert_eq!(Format::of(Path::new("b.x.ndjson")), Some(Format::Jsonl));
        assert_eq!(Format::of(Path::new("csv")), None);
        assert_eq!(Format::of(Path::new("b.txt")), None);
        assert_eq!("jsonl".parse(), Ok(Format::Jsonl));
        assert!("JSON".parse::<Format>().is_err());
    }
}
