//! The kinds of model packages.

use std::{
    fs::{self, DirEntry, Metadata},
    io,
    path::{Path, PathBuf},
};

use outrigger_core::{Describer, Failure, Interface, Layouts, PackageLayout};

use crate::PackagedModel;

/// A kind of models, named by `framework` in metadata.json.
#[derive(Debug, Clone, Copy)]
pub struct Framework {
    /// The name in metadata.json.
    pub name: &'static str,
    /// The place of the model in an image.
    pub layout: PackageLayout,
    /// The most memory that reading a model takes, in bytes, by the size of its files in bytes.
    pub reading: fn(size: u64) -> u64,
    /// Reads the interface of the signature called `signature` from the model's files. A framework
    /// without uplift models refuses them: [`PackagedModel::without_uplift`].
    ///
    /// The failure's reason is IMAGE_INVALID if the model is at fault.
    pub interface: fn(model: &PackagedModel, signature: &str) -> Result<Interface, Failure>,
    /// A file in the model's directory that is a part of the model too, or a directory whose files
    /// are, if it exists.
    pub others: Option<&'static str>,
    /// The description of models whose files come without metadata.json.
    pub describer: Option<Describer>,
    /// A remark for people about the files in a package's directory, which decides nothing. Blocks.
    pub remark: Option<fn(package: &Path) -> Option<String>>,
}

impl Framework {
    /// The model's file in `directory`, if it holds one. Blocks.
    pub fn file(&self, directory: &Path) -> Option<PathBuf> {
        self.layout.paths(directory).find(|file| file.is_file())
    }

    /// The size of the model's files in `directory` in bytes, if it holds all of them. Blocks.
    fn size(&self, directory: &Path) -> Option<u64> {
        let parts = self.layout.parts.iter().map(|part| directory.join(part));
        let files = [self.file(directory)?].into_iter().chain(parts);
        let main: u64 =
            files.map(|file| Some(fs::metadata(file).ok()?.len())).sum::<Option<_>>()?;
        let others = self.others.map(|others| directory.join(others));
        let file = others.iter().filter_map(|path| fs::metadata(path).ok());
        let listed = others.iter().filter_map(|path| fs::read_dir(path).ok()).flatten();
        let size = |entry: io::Result<DirEntry>| fs::metadata(entry.ok()?.path()).ok();
        let others = file.chain(listed.filter_map(size)).filter(Metadata::is_file);
        Some(others.fold(main, |sum, file| sum.saturating_add(file.len())))
    }
}

/// The most memory that reading the model in `directory` takes, in bytes; 0 if it is a model of none
/// of `frameworks`. Blocks.
pub fn memory_to_read<'a>(
    frameworks: impl IntoIterator<Item = &'a Framework>,
    directory: &Path,
) -> u64 {
    let most =
        |framework: &Framework| framework.size(directory).map(|size| (framework.reading)(size));
    frameworks.into_iter().filter_map(most).max().unwrap_or(0)
}

/// The remarks of `frameworks` about the files in a package's directory. Blocks.
pub fn remarks(frameworks: &[Framework], directory: &Path) -> impl Iterator<Item = String> {
    frameworks.iter().filter_map(|framework| framework.remark?(directory))
}

/// The layouts of `frameworks`, and the ways to describe their models.
pub fn layouts(frameworks: &[Framework]) -> Layouts {
    let layouts = frameworks.iter().map(|framework| (framework.name, framework.layout));
    let describers = frameworks.iter();
    let describers = describers.filter_map(|it| Some((it.layout, it.describer?)));
    layouts.collect::<Layouts>().with_describers(describers)
}
