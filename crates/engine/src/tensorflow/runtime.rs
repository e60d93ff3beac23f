//! The opened library.

use std::{
    ffi::CStr,
    fmt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use libloading::Library;

use super::{
    api::Api,
    locate::{FRAMEWORK, LIBRARY},
};

/// The library of this process, once opened.
static OPENED: Mutex<Option<Runtime>> = Mutex::new(None);

/// The library could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The dynamic loader refuses the library, or a function is missing.
    #[error("cannot open {}: {source}", path.display())]
    Library {
        /// The file.
        path: PathBuf,
        /// The dynamic loader's error.
        source: libloading::Error,
    },
    /// A library of another directory is open already.
    #[error("{} is opened already; a process has one TensorFlow", path.display())]
    Another {
        /// The directory of the open library.
        path: PathBuf,
    },
}

/// TensorFlow's library, opened. Valid until the process ends; copies refer to the same
/// library.
#[derive(Clone, Copy)]
pub struct Runtime {
    pub(super) api: &'static Api,
    directory: &'static Path,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Opens the library in `directory`, or returns the one that is open.
    ///
    /// # Errors
    /// The dynamic loader refuses it, or a library of another directory is open.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let mut opened = OPENED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match *opened {
            Some(runtime) if runtime.directory == directory => Ok(runtime),
            Some(runtime) => Err(OpenError::Another { path: runtime.directory.to_owned() }),
            None => Ok(*opened.insert(load(directory)?)),
        }
    }

    /// TensorFlow's version, for example `2.21.0`.
    pub fn version(self) -> &'static str {
        // SAFETY: the function has no arguments and returns a static, terminated string.
        let version = unsafe { CStr::from_ptr((self.api.version)()) };
        version.to_str().unwrap_or("unknown")
    }
}

fn load(directory: &Path) -> Result<Runtime, OpenError> {
    // The framework must be open first: the other library depends on it by its bare name.
    let framework = open(&directory.join(FRAMEWORK))?;
    let path = directory.join(LIBRARY);
    let library = open(&path)?;
    // SAFETY: by its name this is libtensorflow_cc, whose C interface is stable within
    // major version 2 (the `.so.2`), and it is never closed, because it is forgotten
    // after this call.
    let api =
        unsafe { Api::load(&library) }.map_err(|source| OpenError::Library { path, source })?;
    // Closing the libraries would crash, because their threads outlive every session.
    std::mem::forget((framework, library));
    Ok(Runtime {
        api: Box::leak(Box::new(api)),
        directory: Box::leak(directory.to_owned().into_boxed_path()),
    })
}

fn open(path: &Path) -> Result<Library, OpenError> {
    // SAFETY: this runs the library's initialisers, which register operations and read
    // environment variables; the library permits that at any time.
    unsafe { Library::new(path) }
        .map_err(|source| OpenError::Library { path: path.to_owned(), source })
}
