//! Loads servables into memory and frees them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tonic::Code;

use crate::{
    config,
    servable::Servable,
    status::Status,
    tensorflow::{Runtime, Threads},
};

/// A model's own file of `BatchingParameters`, in text format.
const BATCHING: &str = "batching_params.pbtxt";
const WARMUP: &str = "assets.extra/tf_serving_warmup_requests";

/// Loads one version of one model. Called from threads that may block.
pub trait Loader<S>: Send + Sync + 'static {
    /// The approximate memory that the servable will need, in bytes.
    ///
    /// # Errors
    /// The files do not exist any more.
    fn estimate(&self) -> Result<u64, Status>;

    /// Loads the servable. May be called again after a failure.
    ///
    /// # Errors
    /// The servable cannot be loaded.
    fn load(&self) -> Result<S, Status>;

    /// Frees the servable. No request uses it any more.
    fn unload(&self, servable: S);
}

/// Loads a SavedModel from a directory.
#[derive(Debug)]
pub struct SavedModelLoader {
    runtime: Runtime,
    directory: PathBuf,
    threads: Threads,
    files: AuxiliaryFiles,
}

/// Selects files of a model that are checked although the engine does not use their
/// contents.
#[derive(Debug, Clone, Copy)]
pub struct AuxiliaryFiles {
    /// Check the batching parameters: malformed ones fail the load.
    pub batching: bool,
    /// Log a warning if there are warm-up requests, since they are not replayed.
    pub warmup: bool,
}

impl SavedModelLoader {
    /// A loader for the SavedModel in `directory`.
    pub fn new(
        runtime: Runtime,
        directory: PathBuf,
        threads: Threads,
        files: AuxiliaryFiles,
    ) -> Self {
        Self { runtime, directory, threads, files }
    }

    fn check_batching(&self) -> Result<(), Status> {
        let file = self.directory.join(BATCHING);
        if !self.files.batching || !file.exists() {
            return Ok(());
        }
        config::check_batching(&file)
            .map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
    }

    fn warn_of_warmup(&self) {
        if self.files.warmup && self.directory.join(WARMUP).exists() {
            tracing::warn!(
                path = %self.directory.display(),
                "the model has warmup requests, which this engine does not replay"
            );
        }
    }
}

impl Loader<Servable> for SavedModelLoader {
    fn estimate(&self) -> Result<u64, Status> {
        // TensorFlow Serving's estimate: 1.2 times the size of the files.
        tree_size(&self.directory).map(|bytes| bytes.saturating_mul(6) / 5).map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => Code::NotFound,
                io::ErrorKind::PermissionDenied => Code::PermissionDenied,
                _ => Code::Unknown,
            };
            Status::new(code, format!("{}; {error}", self.directory.display()))
        })
    }

    fn load(&self) -> Result<Servable, Status> {
        self.check_batching()?;
        let servable = Servable::load(self.runtime, &self.directory, self.threads)?;
        self.warn_of_warmup();
        Ok(servable)
    }

    fn unload(&self, servable: Servable) {
        drop(servable);
        return_free_memory();
    }
}

/// Returns freed memory to the system, which the allocator would not do by itself.
fn return_free_memory() {
    // SAFETY: the function may be called at any time from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

fn tree_size(path: &Path) -> io::Result<u64> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    fs::read_dir(path)?.try_fold(0u64, |sum, entry| Ok(sum + tree_size(&entry?.path())?))
}
