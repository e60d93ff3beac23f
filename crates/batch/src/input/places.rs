//! The files below a directory or a prefix, and the objects that match a pattern.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use outrigger_tables::Format;

use super::{open::unreadable, pattern::matches, refused};
use crate::{
    Error,
    store::{Address, Patience},
};

/// The endings of files that are compressed as a whole.
const COMPRESSED: [&str; 6] = ["gz", "zst", "bz2", "xz", "lz4", "br"];
/// The most directories within each other: links may make a circle.
const MOST_DEPTH: u32 = 64;

/// The objects that an address names, in order. Its parts may have `*` and `?`; if it ends
/// with a slash, these are all files of rows below it.
///
/// # Errors
/// There are none, or the store failed.
pub(super) fn objects(pattern: &str, address: &Address) -> Result<Vec<PathBuf>, Error> {
    let (parent, name) = match address.key.rsplit_once('/') {
        Some((parent, name)) => (format!("{parent}/"), name),
        None => (String::new(), address.key.as_str()),
    };
    let is_prefix = pattern.ends_with('/') || address.key.is_empty();
    if !is_prefix && !address.key.contains(['*', '?']) {
        return Ok(vec![address.to_string().into()]);
    }
    let objects = address.objects().map_err(refused)?;
    let patience = Patience::default();
    let found = if is_prefix {
        let prefix = match address.key.as_str() {
            "" => String::new(),
            key => format!("{key}/"),
        };
        patience.call(|| objects.list_all(&prefix)).map(|mut keys| {
            keys.retain(|key| key.strip_prefix(&prefix).is_some_and(is_rows));
            keys
        })
    } else if let Some(first) = parent.find(['*', '?']) {
        let prefix = &parent[..parent[..first].rfind('/').map_or(0, |slash| slash + 1)];
        let parts: Vec<_> = address.key.split('/').collect();
        patience.call(|| objects.list_all(prefix)).map(|mut keys| {
            keys.retain(|key| {
                let found: Vec<_> = key.split('/').collect();
                found.len() == parts.len()
                    && parts.iter().zip(found).all(|(it, at)| matches(it, at))
            });
            keys
        })
    } else {
        patience.call(|| objects.list(&parent)).map(|listed| {
            let found = listed.names.iter().filter(|found| matches(name, found));
            found.map(|found| format!("{parent}{found}")).collect()
        })
    };
    let mut keys = found.map_err(|failure| unreadable(address, &failure.into()))?;
    if keys.is_empty() {
        return Err(refused(format!("no file matches {pattern:?}")));
    }
    keys.sort_unstable();
    Ok(keys.into_iter().map(|key| address.with_key(key).to_string().into()).collect())
}

/// The files of rows below a directory, in order.
///
/// # Errors
/// There are none, or the directory cannot be read.
pub(super) fn files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    walk(directory, "", &mut found, MOST_DEPTH)
        .map_err(|error| unreadable(directory.display(), &error))?;
    if found.is_empty() {
        return Err(refused(format!("{} has no file of rows", directory.display())));
    }
    found.sort_unstable();
    Ok(found)
}

/// Adds the files of rows in `directory`, whose names there begin with `prefix`.
fn walk(directory: &Path, prefix: &str, found: &mut Vec<PathBuf>, depth: u32) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("its directories are nested too deeply"));
    }
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            if !is_hidden(&name) {
                walk(&path, &format!("{name}/"), found, depth - 1)?;
            }
        } else if is_rows(&name) {
            found.push(path);
        }
    }
    Ok(())
}

/// True if a name below a prefix is that of a file of rows, also in a form that is refused later. Others
/// write files beside them, whose names, or those of their directories, begin with a dot or an underscore.
fn is_rows(name: &str) -> bool {
    let (whole, last) = name.rsplit_once('.').unwrap_or_default();
    let name = if COMPRESSED.contains(&last) { whole } else { name };
    !is_hidden(name) && (name.ends_with(".tsv") || Format::of(Path::new(name)).is_some())
}

/// True if a name below a prefix, or that of a directory in it, is left out.
pub(super) fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with(['.', '_']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_rows_below_a_directory_are_found_in_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let names = [
            "b.parquet",
            "day=1/a.parquet",
            "day=1/_SUCCESS",
            "day=1/.a.parquet",
            "_log/0.parquet",
            "notes.txt",
            "notes.gz",
        ];
        for name in names {
            fs::create_dir_all(path(name).parent().expect("a parent")).expect("a directory");
            fs::write(path(name), "").expect("a file");
        }
        let expected = vec![path("b.parquet"), path("day=1/a.parquet")];
        assert_eq!(files(directory.path()), Ok(expected));
        assert!(files(&path("_log")).is_ok() && files(&path("none")).is_err());
        // Rows that are not read are refused later, and not left out.
        for name in ["c.csv.gz", "c.tsv"] {
            fs::write(path(name), "").expect("a file");
            assert!(files(directory.path()).is_ok_and(|found| found.contains(&path(name))));
        }
        fs::create_dir(path("empty")).expect("a directory");
        assert!(files(&path("empty")).is_err());
    }
}
