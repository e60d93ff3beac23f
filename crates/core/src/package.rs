//! The place of a model in an image.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// The place in an image that holds a model of one framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageLayout {
    /// The model's directory, relative to `/data`.
    pub directory: &'static str,
    /// The names that the model's file may have. The model's directory holds one of them.
    pub files: &'static [&'static str],
    /// The names of further files of the model, all of which its directory holds.
    pub parts: &'static [&'static str],
    /// The largest size allowed for each of these files, in bytes.
    pub max_file: u64,
    /// The model may also be one level down, in the only directory whose name is a
    /// number.
    pub versioned: bool,
}

/// The layouts of the known frameworks, by the framework's name in metadata.json.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layouts(BTreeMap<&'static str, PackageLayout>);

/// A framework that no known engine runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine runs models of {framework}; known frameworks: {}", known.join(", "))]
pub struct UnknownFramework {
    /// The framework's name in metadata.json.
    pub framework: String,
    /// The names of the known frameworks.
    pub known: Vec<&'static str>,
}

/// The part of metadata.json that is read before the rest.
#[derive(Deserialize)]
struct Named {
    framework: String,
}

impl PackageLayout {
    /// The paths that the model's file may have in `directory`.
    pub fn paths(&self, directory: &Path) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(|file| directory.join(file))
    }
}

impl Layouts {
    /// All layouts.
    pub fn all(&self) -> impl Iterator<Item = &PackageLayout> {
        self.0.values()
    }

    /// The layouts that a package with this metadata.json may have: that of the framework
    /// that it names, or any if it names none, which is an error that its reader reports.
    ///
    /// # Errors
    /// The framework is not known.
    pub fn of(&self, metadata: &[u8]) -> Result<Vec<PackageLayout>, UnknownFramework> {
        let Ok(Named { framework }) = serde_json::from_slice(metadata) else {
            return Ok(self.all().copied().collect());
        };
        match self.0.get(&*framework) {
            Some(layout) => Ok(vec![*layout]),
            None => Err(UnknownFramework { framework, known: self.0.keys().copied().collect() }),
        }
    }

    /// The places of metadata.json, relative to `/data`: there, or beside a model's directory.
    pub fn metadata(&self) -> Vec<String> {
        let parent = |layout: &PackageLayout| Some(layout.directory.rsplit_once('/')?.0);
        let beside = self.all().filter_map(parent);
        let beside = beside.map(|parent| format!("{parent}/metadata.json"));
        ["metadata.json".to_owned()].into_iter().chain(beside).collect()
    }
}

impl FromIterator<(&'static str, PackageLayout)> for Layouts {
    fn from_iter<T: IntoIterator<Item = (&'static str, PackageLayout)>>(layouts: T) -> Self {
        Self(layouts.into_iter().collect())
    }
}
