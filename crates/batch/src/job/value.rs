//! The types of a job's settings.

mod forms;
mod model;
mod output;

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, time::Duration};

use bytesize::ByteSize;
use outrigger_oip::DataType;
use outrigger_oip_client::HostConfig;
use serde::{Deserialize, Deserializer, Serializer, de};

pub use self::{
    model::{Model, Package},
    output::Output,
};

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMore<T>(pub Vec<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        forms::one_or_more(deserializer).map(Self)
    }
}

/// A host: `host:port`, an URL, or an object with `endpoint`, `prefix`, `headers`, and `token_file`
/// or `token_env` with `token_header`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host(pub HostConfig);

impl Host {
    /// The host at this endpoint.
    pub fn new(endpoint: &str) -> Self {
        Self(HostConfig::new(endpoint))
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            endpoint: String,
            #[serde(default)]
            prefix: String,
            #[serde(default)]
            headers: BTreeMap<String, String>,
            #[serde(default)]
            token_file: Option<PathBuf>,
            #[serde(default)]
            token_env: Option<String>,
            #[serde(default)]
            token_header: Option<String>,
        }
        let text = |endpoint| Full { endpoint, ..Full::default() };
        let Full { endpoint, prefix, headers, token_file, token_env, token_header } =
            forms::text_or_map(deserializer, text)?;
        if token_file.is_some() && token_env.is_some() {
            return Err(de::Error::custom("either token_file or token_env may be given"));
        }
        let headers = headers.into_iter().collect();
        let host = HostConfig::new(endpoint);
        Ok(Self(HostConfig { prefix, headers, token_file, token_env, token_header, ..host }))
    }
}

/// The columns of an input tensor: a column, a list of columns with one number each, or an object,
/// which may also state the tensor's type and the sizes of a row where the hosts do not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Source {
    /// The columns; the one with the tensor's name if there are none.
    pub columns: Vec<String>,
    /// The type of the tensor, if the hosts do not describe it.
    pub datatype: Option<DataType>,
    /// The sizes of a row, without the first dimension; -1 for any size.
    pub shape: Option<Vec<i64>>,
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            #[serde(default)]
            column: Option<String>,
            #[serde(default)]
            columns: Vec<String>,
            #[serde(default)]
            datatype: Option<String>,
            #[serde(default)]
            shape: Option<Vec<i64>>,
        }
        let text = |column| Full { column: Some(column), ..Full::default() };
        let list = |columns| Full { columns, ..Full::default() };
        let full = forms::text_list_or_map(deserializer, text, list)?;
        let Full { column, mut columns, datatype, shape } = full;
        if column.is_some() && !columns.is_empty() {
            return Err(de::Error::custom("either column or columns may be given"));
        }
        columns.extend(column);
        let named = |name: String| {
            DataType::read(&name).map_err(|malformed| de::Error::custom(malformed.to_string()))
        };
        Ok(Self { columns, datatype: datatype.map(named).transpose()?, shape })
    }
}

/// The compaction of a job's output: a directory, or an object with `to` and `file_size`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The directory of the new output.
    pub to: PathBuf,
    /// The most bytes of the files that become one.
    pub file_size: Size,
}

impl<'de> Deserialize<'de> for Compaction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            to: PathBuf,
            #[serde(default = "super::defaults::file_size")]
            file_size: Size,
        }
        let text = |to: String| Full { to: to.into(), file_size: super::defaults::file_size() };
        let Full { to, file_size } = forms::text_or_map(deserializer, text)?;
        Ok(Self { to, file_size })
    }
}

/// A size in bytes, such as `512MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.parse::<ByteSize>().map(|size| Self(size.as_u64()));
        size.map_err(|_| format!("{text:?} is not a size such as 512MiB or 2GiB"))
    }
}

/// A duration, such as `30s` or `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let period = humantime::parse_duration(text).map(Self);
        period.map_err(|_| format!("{text:?} is not a duration such as 250ms, 30s or 2h"))
    }
}

/// The dead rows that a job may have: a number, or a share in percent of the last rows, and of all
/// rows in the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaxErrors {
    /// At most so many rows.
    Rows(u64),
    /// At most this share of the last rows, and of all rows in the end, from 0 to 1.
    Share(f64),
}

impl FromStr for MaxErrors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is neither a number of rows nor a share such as 1%");
        match text.strip_suffix('%') {
            None => text.parse().map(Self::Rows).map_err(|_| refused()),
            Some(percent) => {
                let percent: f64 = percent.trim().parse().map_err(|_| refused())?;
                let is_share = (0.0..=100.0).contains(&percent);
                if is_share { Ok(Self::Share(percent / 100.0)) } else { Err(refused()) }
            }
        }
    }
}

impl fmt::Display for MaxErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => write!(f, "{rows}"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

macro_rules! from_text {
    ($($type:ty),*) => {
        $(impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                forms::parsed(deserializer)
            }
        })*
    };
}

from_text!(Size, Period, MaxErrors);

/// A tensor's type as its name, for plans.
pub(crate) mod datatype {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        of: &DataType,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(of.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DataType, D::Error> {
        let name = String::deserialize(deserializer)?;
        DataType::named(&name).ok_or_else(|| {
            let value = de::Unexpected::Str(&name);
            de::Error::invalid_value(value, &"a type of the protocol")
        })
    }
}
