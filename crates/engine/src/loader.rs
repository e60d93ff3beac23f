//! Loads servables into memory and frees them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tonic::Code;

use crate::{
    batching::{Batcher, Parameters, Pool, Rules},
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
    settings: Settings,
}

/// The settings of all models.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The sizes of TensorFlow's thread pools.
    pub threads: Threads,
    /// The batching of requests, if they are batched.
    pub batching: Option<Batching>,
    /// True if warm-up requests of a model are logged as a warning, since they are not replayed.
    pub warmup: bool,
}

/// The batching of requests.
#[derive(Debug, Clone)]
pub struct Batching {
    /// Runs the batches.
    pub pool: Arc<Pool>,
    /// The parameters of all models; `None` if each model has its own in a file. Requests for a
    /// model without the file are then not batched.
    pub parameters: Option<Parameters>,
}

impl SavedModelLoader {
    /// A loader for the SavedModel in `directory`.
    pub fn new(runtime: Runtime, directory: PathBuf, settings: Settings) -> Self {
        Self { runtime, directory, settings }
    }

    /// The batcher of the model, if its requests are batched.
    fn batcher(&self) -> Result<Option<Batcher>, Status> {
        let Some(Batching { pool, parameters }) = &self.settings.batching else { return Ok(None) };
        let rules = match parameters {
            Some(parameters) => Some(parameters.rules()?),
            None => self.own_rules()?,
        };
        Ok(rules.map(|rules| Batcher::new(self.runtime, Arc::clone(pool), rules)))
    }

    /// The rules in the model's own file, if it has one.
    fn own_rules(&self) -> Result<Option<Rules>, Status> {
        let file = self.directory.join(BATCHING);
        if !file.exists() {
            return Ok(None);
        }
        let parameters = config::read_batching(&file)
            .map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))?;
        parameters.rules().map(Some)
    }

    fn warn_of_warmup(&self) {
        if self.settings.warmup && self.directory.join(WARMUP).exists() {
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
        let batcher = self.batcher()?;
        let servable = Servable::load(self.runtime, &self.directory, self.settings.threads)?;
        self.warn_of_warmup();
        Ok(Servable { batcher, ..servable })
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
