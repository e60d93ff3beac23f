//! The paths of a job's input, and the places that must not be below them.

use std::{
    fs, io,
    path::{self, Component, Path, PathBuf},
};

use super::{open::unreadable, places::is_hidden, refused};
use crate::{
    Error,
    store::{Address, is_address},
};

/// The pattern with an absolute path, which leads other processes to the same files from any
/// directory. An address stays as it is.
///
/// # Errors
/// It is empty, or a directory before the last `..` cannot be read.
pub(crate) fn absolute(pattern: &str) -> Result<String, Error> {
    if is_address(Path::new(pattern)) {
        return Ok(pattern.to_owned());
    }
    let failed = |error: io::Error| unreadable(pattern, &error);
    let whole = without_parents(path::absolute(pattern).map_err(failed)?).map_err(failed)?;
    let text = whole.into_os_string().into_string();
    text.map_err(|path| refused(format!("{} is not UTF-8", path.display())))
}

/// The absolute path without `..`. What `..` leads to depends on the links before it.
fn without_parents(whole: PathBuf) -> io::Result<PathBuf> {
    let parts: Vec<_> = whole.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else {
        return Ok(whole);
    };
    let (above, rest) = parts.split_at(last + 1);
    let mut found = fs::canonicalize(above.iter().collect::<PathBuf>())?;
    found.extend(rest);
    Ok(found)
}

/// Checks that the place of a job's output, which its setting `key` names, is not among the files of
/// its input: a later run would read the output as rows.
///
/// # Errors
/// It is, or a path or an address is not valid.
pub(crate) fn check_apart(patterns: &[String], (key, place): (&str, &Path)) -> Result<(), Error> {
    for pattern in patterns {
        if below(pattern, place)?.is_some_and(|rest| !is_hidden(&rest)) {
            let place = place.display();
            return Err(Error::usage(format!(
                "{key}: {place} is in {pattern}, whose files are the input, so a later run would \
                 read the output as rows: choose a place elsewhere, or a directory there whose \
                 name begins with an underscore"
            )));
        }
    }
    Ok(())
}

/// The path of a place below the directory or the prefix that a pattern stands for; `None` if the
/// place is not there.
fn below(pattern: &str, place: &Path) -> Result<Option<String>, Error> {
    let input = Address::of(Path::new(pattern)).map_err(refused)?;
    match (input, Address::of(place).map_err(Error::usage)?) {
        (Some(input), Some(place)) => {
            let is_prefix = pattern.ends_with('/') || input.key.is_empty();
            Ok(input.rest_of(&place).filter(|_| is_prefix).map(str::to_owned))
        }
        (None, None) if Path::new(pattern).is_dir() => {
            let failed = |error: io::Error| unreadable(pattern, &error);
            let directory = fs::canonicalize(pattern).map_err(failed)?;
            let place = real(place).map_err(failed)?;
            let rest = place.strip_prefix(directory).ok();
            Ok(rest.map(|rest| rest.to_string_lossy().into_owned()))
        }
        _ => Ok(None),
    }
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> io::Result<PathBuf> {
    let whole = path::absolute(path)?;
    for above in whole.ancestors() {
        if let (Ok(mut found), Ok(rest)) = (fs::canonicalize(above), whole.strip_prefix(above)) {
            found.extend(rest);
            return Ok(found);
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_become_absolute() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = fs::canonicalize(directory.path()).expect("a directory");
        let root = root.to_str().expect("UTF-8");
        fs::create_dir_all(format!("{root}/a/b")).expect("directories");
        symlink(format!("{root}/a/b"), format!("{root}/link")).expect("a link");
        let here = std::env::current_dir().expect("a directory");
        let here = here.to_str().expect("UTF-8");
        for (pattern, expected) in [
            (format!("{root}/a//./*.parquet"), format!("{root}/a/*.parquet")),
            (format!("{root}/a/../c?.csv"), format!("{root}/c?.csv")),
            (format!("{root}/link/../c"), format!("{root}/a/c")),
            ("rows/*.parquet".to_owned(), format!("{here}/rows/*.parquet")),
            ("./rows".to_owned(), format!("{here}/rows")),
            ("s3://b/rows/../*".to_owned(), "s3://b/rows/../*".to_owned()),
        ] {
            assert_eq!(absolute(&pattern), Ok(expected), "{pattern}");
        }
        for wrong in [String::new(), format!("{root}/none/../c")] {
            assert!(matches!(absolute(&wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn an_output_in_a_directory_of_the_input_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("rows/day")).expect("directories");
        symlink(path("rows/day"), path("link")).expect("a link");
        fs::write(path("rows/a.parquet"), "").expect("a file");
        let text = |name: &str| path(name).to_string_lossy().into_owned();
        let check = |input: &str, output: &str| {
            check_apart(&[text("other"), text(input)], ("output", &path(output)))
        };
        for inside in ["rows", "rows/out", "rows/day/out/a", "link/out", "rows/day/../out"] {
            let refused = check("rows", inside).expect_err(inside).to_string();
            assert!(refused.contains("output: ") && refused.contains("is in"), "{refused}");
        }
        for apart in ["out", "rows-out", "rows/_out", "rows/day/.out/a"] {
            assert_eq!(check("rows", apart), Ok(()), "{apart}");
        }
        // A pattern and a file stand for no directory.
        for input in ["rows/*.parquet", "rows/a.parquet"] {
            assert_eq!(check(input, "rows/out"), Ok(()), "{input}");
        }
    }

    #[test]
    fn an_output_below_a_prefix_of_the_input_is_refused() {
        for (input, output, is_apart) in [
            ("s3://b/rows/", "s3://b/rows/out", false),
            ("s3://b/rows/", "s3a://b/rows", false),
            ("s3://b", "s3://b/out", false),
            ("s3://b/rows/", "s3://b/rows/_out", true),
            ("s3://b/rows/", "s3://b/rows-out", true),
            ("s3://b/rows/", "s3://c/rows/out", true),
            ("s3://b/rows/", "gs://b/rows/out", true),
            ("s3://b/rows/*", "s3://b/rows/out", true),
            ("s3://b/rows/a.parquet", "s3://b/rows/out", true),
            ("s3://b/rows/", "/rows/out", true),
        ] {
            let checked = check_apart(&[input.to_owned()], ("compact", Path::new(output)));
            assert_eq!(checked.is_ok(), is_apart, "{input} {output}");
        }
    }
}
