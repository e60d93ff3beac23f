//! Types of the settings for transport security and authorization.

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr};

use rustix::process::geteuid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The transport of a listener once a certificate is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Without TLS.
    Plain,
    /// TLS.
    Server,
    /// TLS; callers may present a certificate.
    Optional,
    /// TLS; callers must present a certificate.
    Mutual,
}

/// A right of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Have treatments scored, and explained.
    Predict,
    /// See the states of models and canaries.
    Read,
    /// Load and unload models, promote and abort canaries.
    Change,
    /// Have files of rows scored.
    Validate,
}

/// Rights, written as a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights(u8);

/// The callers that rights are given to: `token:NAME`, `uri:URI`, `dns:NAME`, `cn:NAME`, or `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct CallerName(String);

/// The file of the operator's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorFile {
    /// The path of the file.
    pub path: PathBuf,
    /// Whether the server makes the directory of the file private, as for the default path.
    pub private: bool,
}

/// Rights by caller.
pub type Callers = BTreeMap<CallerName, Rights>;

impl Default for OperatorFile {
    /// The file that is used without `auth.token_file`, below the user's runtime directory or else
    /// the directory for temporary files. `/run/outrigger` is not used: it holds the engine's
    /// socket, so the engine can read it.
    fn default() -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
        let directory = match runtime {
            Some(runtime) => PathBuf::from(runtime).join("outrigger"),
            None => std::env::temp_dir().join(format!("outrigger-{}", geteuid().as_raw())),
        };
        Self { path: directory.join("token"), private: true }
    }
}

impl super::Auth {
    /// The rights of callers without a name, which all others have too. Where no callers are named,
    /// the right to change includes that to validate.
    pub(crate) fn anonymous_rights(&self) -> Rights {
        if self.names_callers() {
            return self.anonymous.unwrap_or_default();
        }
        let usual = || [Right::Predict, Right::Read].into_iter().collect();
        let rights: Rights = self.anonymous.unwrap_or_else(usual);
        let validate = rights.hold(Right::Change).then_some(Right::Validate);
        rights.and(validate.into_iter().collect())
    }

    /// The file of the operator's token; `None` if changes need none, or a credential of the
    /// configuration.
    pub fn operator_file(&self) -> Option<OperatorFile> {
        let set = |path: &PathBuf| OperatorFile { path: path.clone(), private: false };
        let needed = !self.names_callers() && !self.anonymous_rights().hold(Right::Change);
        self.token_file.as_ref().map(set).or_else(|| needed.then(OperatorFile::default))
    }

    fn names_callers(&self) -> bool {
        self.tokens.is_some() || !self.callers.is_empty()
    }
}

impl Right {
    const ALL: [Self; 4] = [Self::Predict, Self::Read, Self::Change, Self::Validate];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::Read => "read",
            Self::Change => "change",
            Self::Validate => "validate",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Rights {
    /// Every right.
    pub fn all() -> Self {
        Right::ALL.into_iter().collect()
    }

    /// Whether the set contains this right.
    pub fn hold(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }

    /// The union of both sets.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |held, right| held | 1 << right as u8))
    }
}

impl Serialize for Rights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(Right::ALL.iter().filter(|right| self.hold(**right)))
    }
}

impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

impl CallerName {
    /// The name that stands for every caller with a proven name.
    pub const ANYBODY: &str = "*";

    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CallerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |(kind, name): (&str, &str)| {
            ["token", "uri", "dns", "cn"].contains(&kind) && !name.is_empty()
        };
        if text == Self::ANYBODY || text.split_once(':').is_some_and(named) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?} is not token:NAME, uri:URI, dns:NAME, cn:NAME or *"))
    }
}

impl TryFrom<String> for CallerName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
