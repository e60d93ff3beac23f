//! Patterns of paths, with `*` and `?`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{open::unreadable, places, refused};
use crate::{Error, store::Address};

/// The files that a path or an address names, in order: one, those that match it with `*` and `?`,
/// which stand for letters of one part, or those in a directory.
pub(super) fn matching(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let path = Path::new(pattern);
    if let Some(address) = Address::of(path).map_err(refused)? {
        return places::objects(pattern, &address);
    }
    if path.is_dir() {
        return places::files(path);
    }
    if !pattern.contains(['*', '?']) || path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = vec![PathBuf::new()];
    for part in path.components().map(|part| part.as_os_str()) {
        let name = part.to_str().filter(|name| name.contains(['*', '?']));
        let Some(name) = name else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let mut below = Vec::new();
        for directory in found {
            let here = if directory.as_os_str().is_empty() { Path::new(".") } else { &*directory };
            if !here.is_dir() {
                continue;
            }
            let unreadable = |error: io::Error| unreadable(here.display(), &error);
            for entry in fs::read_dir(here).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?.file_name();
                if entry.to_str().is_some_and(|found| matches(name, found)) {
                    below.push(directory.join(entry));
                }
            }
        }
        found = below;
    }
    found.retain(|path| path.is_file());
    if found.is_empty() {
        return Err(Error::usage(format!("input: no file matches {pattern:?}")));
    }
    found.sort_unstable();
    Ok(found)
}

/// True if a name matches a pattern, where `*` stands for any letters and `?` for one. A name that
/// begins with a dot is not matched.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let name: Vec<char> = name.chars().collect();
    // For each number of letters, true if the pattern so far matches them.
    let mut ends = vec![false; name.len() + 1];
    ends[0] = true;
    for letter in pattern.chars() {
        if letter == '*' {
            for end in 1..ends.len() {
                ends[end] |= ends[end - 1];
            }
            continue;
        }
        for end in (1..ends.len()).rev() {
            ends[end] = ends[end - 1] && (letter == '?' || letter == name[end - 1]);
        }
        ends[0] = false;
    }
    ends[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, expected) in [
            ("*.parquet", "a.parquet", true),
            ("*.parquet", "a.parquet.tmp", false),
            ("*.parquet", ".a.parquet", false),
            ("part-??.p*", "part-01.parquet", true),
            ("part-??.p*", "part-1.parquet", false),
            ("*a*b*", "xxaxbx", true),
            ("*a*b*", "xxbxa", false),
            ("?", "数", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
