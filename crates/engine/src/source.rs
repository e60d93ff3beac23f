//! Finds versions of models: numbered directories under a model's base path.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, mpsc},
    thread,
    time::Duration,
};

use outrigger_proto::tensorflow::serving::{
    ModelConfig, ServableVersionPolicy, servable_version_policy::PolicyChoice,
};

/// The schedule of polling base paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// At the start and then periodically.
    Every(Duration),
    /// At the start only: later changes of the configuration have no effect.
    Once,
    /// Not at all.
    Never,
}

/// Selects the versions to load among those that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// The highest versions, at most this number.
    Latest(usize),
    /// All of them.
    All,
    /// These, if they exist.
    Specific(BTreeSet<i64>),
}

impl From<Option<&ServableVersionPolicy>> for Policy {
    fn from(policy: Option<&ServableVersionPolicy>) -> Self {
        match policy.and_then(|policy| policy.policy_choice.as_ref()) {
            None => Self::Latest(1),
            Some(PolicyChoice::Latest(latest)) => Self::Latest(latest.num_versions.max(1) as usize),
            Some(PolicyChoice::All(_)) => Self::All,
            Some(PolicyChoice::Specific(specific)) => {
                Self::Specific(specific.versions.iter().copied().collect())
            }
        }
    }
}

/// A model whose base path is polled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitored {
    /// The model.
    pub name: String,
    /// The directory of its versions.
    pub base_path: PathBuf,
    /// Selects its versions.
    pub policy: Policy,
}

impl From<&ModelConfig> for Monitored {
    fn from(config: &ModelConfig) -> Self {
        let path = config.base_path.strip_prefix("file://").unwrap_or(&config.base_path);
        Self {
            name: config.name.clone(),
            base_path: path.into(),
            policy: config.model_version_policy.as_ref().into(),
        }
    }
}

/// A callback with the versions of a model that should be loaded, and their directories.
pub type Aspire = Box<dyn Fn(&str, Versions) + Send + Sync>;

/// Directories by version.
pub type Versions = BTreeMap<i64, PathBuf>;

/// Polls the base paths of the configured models.
pub struct Source {
    models: Mutex<Vec<Monitored>>,
    aspire: Aspire,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("models", &self.models).finish_non_exhaustive()
    }
}

impl Source {
    /// A source of these models. It reads directories only when [`Source::poll`] is
    /// called.
    pub fn new(models: Vec<Monitored>, aspire: Aspire) -> Self {
        Self { models: Mutex::new(models), aspire }
    }

    /// The names of the configured models.
    pub fn names(&self) -> BTreeSet<String> {
        self.lock().iter().map(|model| model.name.clone()).collect()
    }

    /// Replaces the models. A model that is no longer listed loses all its versions at
    /// once; the others are updated by the next poll.
    pub fn update(&self, models: Vec<Monitored>) {
        let mut current = self.lock();
        for old in current.iter() {
            if !models.iter().any(|model| model.name == old.name) {
                (self.aspire)(&old.name, Versions::new());
            }
        }
        *current = models;
    }

    /// Reads every base path and reports the versions found. If one path cannot be read,
    /// no model is reported.
    ///
    /// # Errors
    /// The error of the first base path that cannot be read.
    pub fn poll(&self) -> io::Result<()> {
        let models = self.lock();
        let found: Vec<_> = models
            .iter()
            .map(|model| Ok((&model.name, versions(model)?)))
            .collect::<io::Result<_>>()?;
        for (name, versions) in found {
            (self.aspire)(name, versions);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Monitored>> {
        self.models.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn versions(model: &Monitored) -> io::Result<Versions> {
    let there = list(&model.base_path).map_err(|error| {
        let path = model.base_path.display();
        io::Error::new(error.kind(), format!("base path {path} of {}: {error}", model.name))
    })?;
    let wanted: Versions = match &model.policy {
        Policy::All => there,
        Policy::Latest(count) => there.into_iter().rev().take(*count).collect(),
        Policy::Specific(versions) => {
            there.into_iter().filter(|(version, _)| versions.contains(version)).collect()
        }
    };
    if wanted.is_empty() {
        tracing::warn!(
            model.name,
            path = %model.base_path.display(),
            "no version to serve; versions are directories named by a number"
        );
    }
    Ok(wanted)
}

/// Entries whose name is a number. If several have the same number, one of them is used.
fn list(base_path: &Path) -> io::Result<Versions> {
    let mut versions = Versions::new();
    for entry in fs::read_dir(base_path)? {
        let entry = entry?;
        let name = entry.file_name();
        let version = name.to_str().and_then(|name| name.trim_matches(' ').parse().ok());
        if let Some(version) = version {
            versions.insert(version, entry.path());
        }
    }
    Ok(versions)
}

/// Polls a source on a thread of its own until dropped.
#[derive(Debug)]
pub struct Poller {
    _stop: mpsc::Sender<()>,
}

impl Poller {
    /// Starts the polling thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(source: Arc<Source>, poll: Poll) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let run = move || match poll {
            Poll::Never => {}
            Poll::Once => poll_once(&source),
            Poll::Every(period) => loop {
                poll_once(&source);
                if stopped.recv_timeout(period) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            },
        };
        thread::Builder::new().name("poll".into()).spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

fn poll_once(source: &Source) {
    if let Err(error) = source.poll() {
        tracing::error!(%error, "a base path cannot be read; no model's versions are updated");
    }
}
