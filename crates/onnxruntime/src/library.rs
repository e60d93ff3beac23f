//! Finds and opens ONNX Runtime.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use ort::environment::GlobalThreadPoolOptions;

/// The environment variable with the library, or a virtual environment that has it.
const VARIABLE: &str = "OUTRIGGER_ONNXRUNTIME";
/// The first part of the library's name; the version follows.
const LIBRARY: &str = "libonnxruntime.so";
/// The oldest version that is used: the one that the tests run with. Older ones read parts of a model
/// that newer ones do not, and differ in what they accept.
const OLDEST: (u32, u32) = (1, 32);
/// The library's directory in a Python environment's packages.
const PACKAGE: &str = "site-packages/onnxruntime/capi";

/// The library's directory in Outrigger's image.
const IMAGE: &str = "/usr/local/lib/onnxruntime";

/// ONNX Runtime cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The named path does not have it.
    #[error(
        "no {LIBRARY} in {}, which {origin} names; it comes with `pip install onnxruntime`, in {PACKAGE}",
        path.display()
    )]
    Named {
        /// The flag or variable with the path.
        origin: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// No path was named, and the search found none.
    #[error(
        "ONNX Runtime was not found; install it with `pip install onnxruntime` into a virtual environment that is active or called .venv, or name it in the environment variable {VARIABLE} or with the option --onnxruntime"
    )]
    NotFound,
    /// It is older than what the tests run with.
    #[error("{} is older than ONNX Runtime {}.{}, the oldest that is supported", .0.display(), OLDEST.0, OLDEST.1)]
    Old(PathBuf),
    /// It cannot be opened, or is older than the interface that is used.
    #[error("ONNX Runtime cannot be opened: {0}")]
    Open(#[source] ort::LoadDynamicError),
    /// Its threads cannot be started.
    #[error("ONNX Runtime cannot be set up: {0}")]
    SetUp(#[source] ort::Error),
}

/// The path of the library. Candidates in this order: `named`, the variable `OUTRIGGER_ONNXRUNTIME`,
/// the active virtual environment, `.venv` in the working directory, the directory in Outrigger's
/// image. Each may be the library, its directory or a virtual environment.
///
/// # Errors
/// The library is not there, or is too old by its name. A named path without it is an error; other candidates are not tried.
pub fn locate(named: Option<&Path>) -> Result<PathBuf, LibraryError> {
    let variable = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = named.map(|path| ("--onnxruntime", path.to_owned()));
    if let Some((origin, path)) = named.or_else(|| variable.map(|path| (VARIABLE, path))) {
        let found = within(&path).ok_or(LibraryError::Named { origin, path })?;
        return supported(found);
    }
    let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let environments = active.into_iter().chain([".venv", IMAGE].map(PathBuf::from));
    environments
        .filter_map(|path| within(&path))
        .next()
        .ok_or(LibraryError::NotFound)
        .and_then(supported)
}

/// Refuses a library whose file is named after a version before [`OLDEST`].
fn supported(library: PathBuf) -> Result<PathBuf, LibraryError> {
    let file = fs::canonicalize(&library).unwrap_or_else(|_| library.clone());
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let version = name.strip_prefix(LIBRARY).unwrap_or_default();
    let mut numbers = version.split('.').filter_map(|number| number.parse().ok());
    match numbers.next().zip(numbers.next()) {
        Some(version) if version < OLDEST => Err(LibraryError::Old(file)),
        _ => Ok(library),
    }
}

/// The library at `path`, which may be the file, its directory or a virtual environment.
fn within(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned());
    }
    let python = fs::read_dir(path.join("lib")).into_iter().flatten().flatten();
    let packages = python
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join(PACKAGE));
    let mut found: Vec<_> = [path.to_owned()].into_iter().chain(packages).filter_map(of).collect();
    found.sort();
    found.pop()
}

/// The library in `directory`.
fn of(directory: PathBuf) -> Option<PathBuf> {
    let files = fs::read_dir(directory).ok()?.flatten();
    let is_it = |name: &str| name == LIBRARY || name.starts_with(&format!("{LIBRARY}."));
    let found = files.filter(|file| is_it(&file.file_name().to_string_lossy()));
    found.map(|file| file.path()).max()
}

/// Opens the library at `path`, for this process, with as many threads for all models together as
/// `threads`. Nothing of ONNX Runtime may be used before: it would look for a library by itself, and
/// wait for ever if there is none.
///
/// # Errors
/// It cannot be opened or set up.
pub fn open(path: &Path, threads: usize) -> Result<(), LibraryError> {
    let builder = ort::init_from(path).map_err(LibraryError::Open)?;
    let pool = GlobalThreadPoolOptions::default()
        .with_intra_threads(threads)
        .and_then(|pool| pool.with_inter_threads(1))
        .and_then(|pool| pool.with_spin_control(false))
        .map_err(LibraryError::SetUp)?;
    builder.with_name("outrigger").with_telemetry(false).with_global_thread_pool(pool).commit();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_library_of_a_virtual_environment() {
        let root = tempfile::tempdir().expect("a directory");
        let package = root.path().join("lib/python3.11").join(PACKAGE);
        fs::create_dir_all(&package).expect("a directory");
        assert_eq!(within(root.path()), None);
        let library = package.join("libonnxruntime.so.1.28.0");
        fs::write(&library, "").expect("a file");
        for path in [root.path(), &package, &library] {
            assert_eq!(within(path), Some(library.clone()), "{}", path.display());
        }
    }

    #[test]
    fn the_oldest_library_is_the_one_of_the_tests_and_its_links_are_followed() {
        let lock = include_str!("../../../testenv/requirements.lock");
        assert!(lock.contains(&format!("onnxruntime=={}.{}.", OLDEST.0, OLDEST.1)));
        let root = tempfile::tempdir().expect("a directory");
        let link = root.path().join(LIBRARY);
        for (version, is_supported) in [("1.20.1", false), ("1.32.0", true), ("2.0.0", true)] {
            let library = root.path().join(format!("{LIBRARY}.{version}"));
            fs::write(&library, "").expect("a file");
            std::os::unix::fs::symlink(&library, &link).expect("a link");
            assert_eq!(locate(Some(&link)).is_ok(), is_supported, "{version}");
            fs::remove_file(&link).expect("removed");
        }
    }

    #[test]
    fn a_named_path_without_the_library_is_an_error_with_installation_advice() {
        let root = tempfile::tempdir().expect("a directory");
        let message = locate(Some(root.path())).expect_err("it is empty").to_string();
        assert!(message.contains("--onnxruntime") && message.contains("pip install"), "{message}");
    }
}
