//! The model of a job.

use std::{num::NonZeroU32, path::PathBuf};

use serde::{Deserialize, Deserializer, de};

use super::forms;

/// A model: `name`, `{name: name, version: "3", row_by_row: true}`, or a package, which the job serves itself:
/// `{package: REF|DIR}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    /// Its name on the hosts. That of a package is for the status.
    pub name: String,
    /// Its version; `None`: the one that answers at the start of the job. That of a package is its
    /// digest.
    pub version: Option<String>,
    /// True if it takes one row in a request, in tensors without a dimension for rows.
    pub row_by_row: bool,
    /// The package, if the model is not on hosts.
    pub package: Option<Package>,
}

/// A package whose model engines of the job score with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// An image or a directory, as `outrigger validate` takes it.
    pub source: String,
    /// The `tensorflow_model_server` that runs a model of TensorFlow in place of the local engine.
    pub engine: Option<PathBuf>,
    /// The processes that are started, each of which is a host. Models that run in this process have
    /// one host.
    pub instances: NonZeroU32,
}

impl Model {
    /// The model with this name, in the version that the hosts choose.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The model of a package, in one engine.
    pub fn packaged(package: Package) -> Self {
        Self { name: package.name().to_owned(), package: Some(package), ..Self::default() }
    }
}

impl Package {
    /// The package at this place, in one engine.
    pub fn new(source: &str) -> Self {
        Self { source: source.to_owned(), engine: None, instances: NonZeroU32::MIN }
    }

    /// The last part of the source's name, without a tag or digest.
    fn name(&self) -> &str {
        let source = self.source.strip_prefix("oci:").unwrap_or(&self.source);
        let path = source.split('@').next().unwrap_or(source).trim_end_matches('/');
        let last = path.rsplit('/').next().unwrap_or(path);
        match last.split(':').next().unwrap_or(last) {
            "" | "." | ".." => "model",
            name => name,
        }
    }
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            #[serde(default)]
            name: Option<String>,
            #[serde(default)]
            version: Option<String>,
            #[serde(default)]
            row_by_row: bool,
            #[serde(default)]
            package: Option<String>,
            #[serde(default)]
            engine: Option<PathBuf>,
            #[serde(default)]
            instances: Option<NonZeroU32>,
        }
        let text = |name| Full { name: Some(name), ..Full::default() };
        let Full { name, version, row_by_row, package, engine, instances } =
            forms::text_or_map(deserializer, text)?;
        if package.is_none() && (engine.is_some() || instances.is_some()) {
            return Err(de::Error::custom("engine and instances are for a package"));
        }
        if package.is_some() && row_by_row {
            return Err(de::Error::custom("row_by_row is for a model on hosts"));
        }
        let of_source = |source: String| Package {
            engine,
            instances: instances.unwrap_or(NonZeroU32::MIN),
            ..Package::new(&source)
        };
        let model = match package.map(of_source) {
            Some(package) => Self::packaged(package),
            None if name.is_none() => {
                return Err(de::Error::custom("a model has a name or a package"));
            }
            None => Self::default(),
        };
        Ok(Self { name: name.unwrap_or(model.name), version, row_by_row, package: model.package })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_the_name_of_its_source() {
        for (source, name) in [
            ("churn/", "churn"),
            ("/models/churn", "churn"),
            ("registry.example:5000/team/churn:latest", "churn"),
            ("registry.example/team/churn@sha256:00", "churn"),
            ("oci:layouts/churn:3", "churn"),
            (".", "model"),
            ("/", "model"),
        ] {
            assert_eq!(Package::new(source).name(), name, "{source}");
        }
    }
}
