//! The place of a model in an image.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::Failure;

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

/// The description of models whose files come without metadata.json.
#[derive(Debug, Clone, Copy)]
pub struct Describer {
    /// The name of the file by which such a model is known: one of those that the model's file may
    /// have in its layout.
    pub file: &'static str,
    /// Writes metadata.json for the model in a directory, with at most [`Describer::MEMORY`]. Blocks.
    ///
    /// The failure's reason is IMAGE_INVALID if the model is at fault.
    pub describe: fn(model: &Path) -> Result<String, Failure>,
}

impl Describer {
    /// The most memory that describing a model takes, in bytes.
    pub const MEMORY: u64 = 16 << 20;
}

/// The layouts of the known frameworks, by the framework's name in metadata.json.
#[derive(Debug, Clone, Default)]
pub struct Layouts {
    layouts: BTreeMap<&'static str, PackageLayout>,
    describers: Vec<(PackageLayout, Describer)>,
}

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

/// The names of the files of a package that lie in `/data` beside its model's directory.
const BESIDE: [&str; 3] = ["metadata.json", "golden.jsonl", "profile.json"];

impl PackageLayout {
    /// The place, relative to `/data`, of the file `name` of a model's directory that has the other
    /// files of the package too.
    pub fn place(&self, name: &str) -> String {
        if BESIDE.contains(&name) { name.to_owned() } else { format!("{}/{name}", self.directory) }
    }

    /// The paths that the model's file may have in `directory`.
    pub fn paths(&self, directory: &Path) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(|file| directory.join(file))
    }
}

/// The text without the byte order mark that some editors write before it.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

impl Layouts {
    /// All layouts.
    pub fn all(&self) -> impl Iterator<Item = &PackageLayout> {
        self.layouts.values()
    }

    /// Adds the ways to describe models of some layouts.
    #[must_use]
    pub fn with_describers(
        self,
        describers: impl IntoIterator<Item = (PackageLayout, Describer)>,
    ) -> Self {
        Self { describers: describers.into_iter().collect(), ..self }
    }

    /// The layout of a model whose files come without metadata.json, and the way to describe it.
    /// `holds` returns true for the names of its files. Of several layouts it is the one of which
    /// the most further files are there, and of these the one of which the fewest are missing.
    pub fn describer(&self, holds: impl Fn(&str) -> bool) -> Option<(PackageLayout, Describer)> {
        let known = self.describers.iter().filter(|(_, describer)| holds(describer.file));
        let rank = |(layout, _): &&(PackageLayout, Describer)| {
            let held = layout.parts.iter().filter(|part| holds(part)).count();
            (held, Reverse(layout.parts.len() - held))
        };
        known.max_by_key(rank).copied()
    }

    /// The layouts that a package with this metadata.json may have: that of the framework
    /// that it names, or any if it names none, which is an error that its reader reports.
    ///
    /// # Errors
    /// The framework is not known.
    pub fn of(&self, metadata: &[u8]) -> Result<Vec<PackageLayout>, UnknownFramework> {
        let Ok(Named { framework }) = serde_json::from_slice(without_mark(metadata)) else {
            return Ok(self.all().copied().collect());
        };
        match self.layouts.get(&*framework) {
            Some(layout) => Ok(vec![*layout]),
            None => {
                let known = self.layouts.keys().copied().collect();
                Err(UnknownFramework { framework, known })
            }
        }
    }

    /// The layout of a model whose files lie beside metadata.json, and not in the model's directory.
    /// `metadata` is the content of metadata.json, and `names` are the paths of all files.
    ///
    /// # Errors
    /// The framework is not known.
    pub fn beside<'n>(
        &self,
        metadata: &[u8],
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<Option<PackageLayout>, UnknownFramework> {
        let layouts = self.of(metadata)?;
        // A model whose directory is `/data` itself has no other form.
        let mirrors = |layout: &PackageLayout| {
            let below = |name: &str| Path::new(name).starts_with(layout.directory);
            layout.directory.is_empty() || names.clone().any(below)
        };
        if layouts.iter().any(mirrors) {
            return Ok(None);
        }
        let holds = |layout: &PackageLayout| names.clone().any(|it| layout.files.contains(&it));
        Ok(layouts.into_iter().find(holds))
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
        Self { layouts: layouts.into_iter().collect(), describers: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREES: PackageLayout = PackageLayout {
        directory: "trees",
        files: &["model", "other"],
        parts: &[],
        max_file: 1,
        versioned: false,
    };
    const MACHINE: PackageLayout =
        PackageLayout { directory: "machine", parts: &["a", "b"], ..TREES };
    const DESCRIBER: Describer = Describer { file: "model", describe: |_| Ok(String::new()) };

    #[test]
    fn a_model_may_lie_beside_its_metadata() {
        let layouts: Layouts = [("trees", TREES), ("machine", MACHINE)].into_iter().collect();
        let of = |metadata: &str, names: &[&str]| {
            let found = layouts.beside(metadata.as_bytes(), names.iter().copied());
            found.map(|layout| layout.map(|layout| layout.directory))
        };
        let trees = r#"{"framework": "trees"}"#;
        assert_eq!(of(trees, &["metadata.json", "other"]), Ok(Some("trees")));
        assert_eq!(of(trees, &["metadata.json", "model", "treesome/x"]), Ok(Some("trees")));
        assert_eq!(of(trees, &["metadata.json", "model", "trees/model"]), Ok(None));
        assert_eq!(of(trees, &["metadata.json", "else"]), Ok(None));
        assert!(of(r#"{"framework": "none"}"#, &["model"]).is_err());
        assert_eq!(TREES.place("model"), "trees/model");
        assert_eq!(TREES.place("golden.jsonl"), "golden.jsonl");
    }

    #[test]
    fn the_files_of_a_model_decide_about_its_layout() {
        let layouts = Layouts::default();
        let layouts = layouts.with_describers([TREES, MACHINE].map(|layout| (layout, DESCRIBER)));
        let of = |files: &[&str]| {
            let found = layouts.describer(|name| files.contains(&name));
            found.map(|(layout, _)| layout.directory)
        };
        assert_eq!(of(&["model"]), Some("trees"));
        assert_eq!(of(&["model", "b", "c"]), Some("machine"));
        assert_eq!(of(&["model", "a", "b"]), Some("machine"));
        assert_eq!(of(&["other", "a", "b"]), None, "only the file that is named is known");
    }
}
