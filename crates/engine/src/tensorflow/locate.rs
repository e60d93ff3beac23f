//! Finds the directory of libtensorflow.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The environment variable with the directory.
const VARIABLE: &str = "OUTRIGGER_TENSORFLOW";
/// The library with the C interface.
pub(super) const LIBRARY: &str = "libtensorflow_cc.so.2";
/// The library that the other one needs; it must be opened first.
pub(super) const FRAMEWORK: &str = "libtensorflow_framework.so.2";

/// libtensorflow was not found.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// The named directory does not contain it.
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
    /// No directory was named, and the search found none.
    #[error(
        "libtensorflow was not found; install it with `pip install tensorflow-cpu` into a virtual environment that is active or called .venv, or name its directory in the environment variable {VARIABLE} or with the option --tensorflow of `outrigger engine`"
    )]
    NotFound,
}

/// The directory of libtensorflow. Candidates in this order: `named`, the variable
/// `OUTRIGGER_TENSORFLOW`, the active virtual environment, `.venv` in the working
/// directory. Each may be the libraries' own directory or a virtual environment.
///
/// # Errors
/// The library is not there. A named directory without it is an error; other candidates
/// are not tried.
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
    fn the_advice_names_the_command_that_has_the_option() {
        let message = LocateError::NotFound.to_string();
        assert!(message.contains("variable OUTRIGGER_TENSORFLOW"), "{message}");
        assert!(message.contains("--tensorflow of `outrigger engine`"), "{message}");
    }

    #[test]
    fn a_named_directory_without_the_library_is_an_error_with_installation_advice() {
        let root = tempfile::tempdir().unwrap();
        let message = locate(Some(root.path())).unwrap_err().to_string();
        assert!(message.contains("--tensorflow"), "{message}");
        assert!(message.contains("pip install tensorflow-cpu"), "{message}");
    }
}
