//! Finding the directory that holds libtensorflow.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Environment variable that names the directory.
const VARIABLE: &str = "OUTRIGGER_TENSORFLOW";
/// The library that has the C interface.
pub(super) const LIBRARY: &str = "libtensorflow_cc.so.2";
/// The library it needs, opened first.
pub(super) const FRAMEWORK: &str = "libtensorflow_framework.so.2";

/// No libtensorflow where it was looked for.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// The directory that was named does not hold it.
    #[error(
        "no {LIBRARY} in {}, which {origin} names; it comes with `pip install tensorflow-cpu`, in site-packages/tensorflow",
        path.display()
    )]
    Named {
        /// The flag or variable that named the directory.
        origin: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// Nothing was named and nothing was found.
    #[error(
        "libtensorflow was not found; install it with `pip install tensorflow-cpu` into a virtual environment that is active or called .venv, or name its directory with --tensorflow or {VARIABLE}"
    )]
    NotFound,
}

/// The directory of libtensorflow: `named` if given, else the one the variable
/// `OUTRIGGER_TENSORFLOW` names, else that of the active virtual environment or
/// of `.venv` in the working directory. A directory may be the one with the
/// libraries or a virtual environment.
///
/// # Errors
/// If the library is not there; a named directory is never silently replaced
/// by another.
pub fn locate(named: Option<&Path>) -> Result<PathBuf, LocateError> {
    let variable = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = named.map(|path| ("--tensorflow", path.to_owned()));
    if let Some((origin, path)) = named.or_else(|| variable.map(|path| (VARIABLE, path))) {
        return within(&path).ok_or(LocateError::Named { origin, path });
    }
    let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let environments = active.into_iter().chain([PathBuf::from(".venv")]);
    environments.filter_map(|path| within(&path)).next().ok_or(LocateError::NotFound)
}

/// The libraries' directory in `path`, which may be a virtual environment.
fn within(path: &Path) -> Option<PathBuf> {
    if path.join(LIBRARY).is_file() {
        return Some(path.to_owned());
    }
    let versions = fs::read_dir(path.join("lib")).ok()?;
    let mut packages: Vec<_> = versions
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages/tensorflow"))
        .filter(|package| package.join(LIBRARY).is_file())
        .collect();
    packages.sort();
    packages.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_package_of_a_virtual_environment() {
        let root = tempfile::tempdir().unwrap();
        let package = root.path().join("lib/python3.11/site-packages/tensorflow");
        fs::create_dir_all(&package).unwrap();
        assert_eq!(within(root.path()), None);
        fs::write(package.join(LIBRARY), "").unwrap();
        assert_eq!(within(root.path()), Some(package.clone()));
        assert_eq!(within(&package), Some(package));
    }

    #[test]
    fn a_named_directory_without_the_library_is_an_error_that_says_what_to_install() {
        let root = tempfile::tempdir().unwrap();
        let message = locate(Some(root.path())).unwrap_err().to_string();
        assert!(message.contains("--tensorflow"), "{message}");
        assert!(message.contains("pip install tensorflow-cpu"), "{message}");
    }
}
