//! Directories in which the model's files lie beside metadata.json, as in directories of versions.

use std::{fs, path::Path};

use outrigger_core::{Layouts, PackageLayout};

use super::{
    BuildError,
    scan::{self, Entry},
};

/// The entry of metadata.json, in the first of its places that has one.
pub(super) fn metadata<'e>(entries: &'e [Entry], places: &[String]) -> Option<&'e Entry> {
    let at = |place: &String| entries.iter().find(|entry| entry.is_file() && entry.name == *place);
    places.iter().find_map(at)
}

/// The entries at their places below `/data`. A description of a model without metadata.json is
/// written to the directory `work`.
pub(super) fn placed(
    directory: &Path,
    mut entries: Vec<Entry>,
    layouts: &Layouts,
    work: &Path,
) -> Result<Vec<Entry>, BuildError> {
    let files = entries.iter().filter(|entry| entry.is_file()).map(|entry| &*entry.name);
    let layout = match metadata(&entries, &layouts.metadata()) {
        Some(found) if !found.name.contains('/') => layouts.beside(&found.read()?, files)?,
        Some(_) => None,
        None => {
            let Some((layout, describer)) =
                layouts.describer(|name| files.clone().any(|file| file == name))
            else {
                return Ok(entries);
            };
            let text = (describer.describe)(directory).map_err(|failure| {
                let directory = directory.to_owned();
                BuildError::NotDescribed { directory, problem: failure.message }
            })?;
            let path = work.join("metadata.json");
            fs::write(&path, &text).map_err(BuildError::io(&path))?;
            let size = Some(text.len() as u64);
            entries.push(Entry { name: "metadata.json".to_owned(), path, size });
            Some(layout)
        }
    };
    if let Some(layout) = layout {
        place(directory, &mut entries, &layout);
    }
    Ok(entries)
}

/// Moves the model's files to the directory of `layout`.
fn place(directory: &Path, entries: &mut Vec<Entry>, layout: &PackageLayout) {
    for entry in entries.iter_mut() {
        entry.name = layout.place(&entry.name);
    }
    let parents = Path::new(layout.directory).ancestors().filter_map(Path::to_str);
    for parent in parents.filter(|parent| !parent.is_empty()) {
        let name = parent.to_owned();
        let path = directory.to_owned();
        entries.push(Entry { name, path, size: None });
    }
    scan::sort(entries);
}
