//! Applying a `ModelServerConfig`: checks, labels, models, and the wait for new
//! models.
//!
//! Reloads are strictly one after another, in the order they came. One waits,
//! without any limit, until each name that was not configured before has a
//! version that is available or has ended; a caller that goes away changes
//! nothing about that.

mod labels;
mod validate;

#[cfg(test)]
mod tests;

use std::{fmt, path::Path, sync::Arc, thread};

use arc_swap::ArcSwapOption;
use outrigger_proto::tensorflow::serving::{
    ModelConfigList, ModelServerConfig, model_server_config::Config as Choice,
};
use tokio::sync::Mutex;
use tonic::Code;

use crate::{
    loader::Loader,
    manager::{Aspired, Manager, Monitor},
    servable::ServableId,
    source::{Aspire, Monitored, Poll, Poller, Source, Versions},
    status::Status,
};

use labels::Labels;

/// Makes the loader of a version in a directory.
pub type MakeLoader<S> = Arc<dyn Fn(&Path) -> Arc<dyn Loader<S>> + Send + Sync>;

/// How configurations are applied.
pub struct Config<S> {
    /// Makes loaders.
    pub make_loader: MakeLoader<S>,
    /// When base paths are looked at.
    pub poll: Poll,
    /// Loads at once, except during the first configuration.
    pub load_threads: usize,
    /// Let a new label point to a version that is not available yet.
    pub labels_for_unavailable: bool,
}

/// Applies configurations.
pub struct Reloader<S> {
    config: Config<S>,
    manager: Manager<S>,
    monitor: Monitor,
    labels: ArcSwapOption<Labels>,
    /// Held during a whole reload, the wait included.
    current: Mutex<Current>,
}

/// The configuration in force.
#[derive(Default)]
struct Current {
    /// The list last accepted; none before the first.
    models: Option<ModelConfigList>,
    /// What looks for versions, since the first list.
    source: Option<(Arc<Source>, Poller)>,
}

impl<S> fmt::Debug for Reloader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl<S: Send + Sync + 'static> Reloader<S> {
    /// Nothing configured yet. `monitor` must have seen all of `manager`.
    pub fn new(config: Config<S>, manager: Manager<S>, monitor: Monitor) -> Self {
        Self { config, manager, monitor, labels: ArcSwapOption::empty(), current: Mutex::default() }
    }

    /// Applies a configuration, and waits for its new models. Dropping the
    /// future in the middle leaves a configuration half applied.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, FAILED_PRECONDITION if it is not accepted; UNKNOWN if
    /// a new model did not become available, with the others in service.
    pub async fn apply(&self, new: ModelServerConfig) -> Result<(), Status> {
        let mut current = self.current.lock().await;
        let list = match (new.config, &current.models) {
            (Some(Choice::ModelConfigList(list)), _) => list,
            (None, None) => {
                tracing::info!("taking no action for an empty configuration");
                return Ok(());
            }
            (_, Some(_)) => return Err(validate::transition()),
            (Some(_), None) => return Err(Status::invalid("custom_model_config is not supported")),
        };
        validate::list(&list, current.models.as_ref())?;
        current.models = Some(list.clone());
        let labels = self.checked_labels(&list)?;
        self.labels.store(Some(Arc::new(labels)));
        validate::platforms(&list)?;
        let models: Vec<Monitored> = list.config.iter().map(Monitored::from).collect();
        match &current.source {
            Some((source, _)) => self.update(source, models).await,
            None => self.begin(&mut current, models).await,
        }
    }

    /// The version a label stands for.
    ///
    /// # Errors
    /// UNAVAILABLE before the first configuration, INVALID_ARGUMENT if there is
    /// no such label.
    pub fn label(&self, name: &str, label: &str) -> Result<i64, Status> {
        labels::resolve(self.labels.load().as_deref(), name, label)
    }

    fn checked_labels(&self, list: &ModelConfigList) -> Result<Labels, Status> {
        let current = self.labels.load();
        let current = current.as_deref().filter(|_| self.config.labels_for_unavailable);
        labels::check(list, current, self.config.labels_for_unavailable, &self.monitor)
    }

    /// The way of every configuration but the first.
    async fn update(&self, source: &Source, models: Vec<Monitored>) -> Result<(), Status> {
        let known = source.names();
        let names = models.iter().map(|model| model.name.clone());
        let new: Vec<String> = names.filter(|name| !known.contains(name)).collect();
        // Made before the change, and fresh: what ended earlier does not count.
        let monitor = self.manager.bus().monitor();
        source.update(models);
        report(monitor.settled(&new).await, "model(s)")
    }

    /// The first configuration loads with many threads. If a model fails, the
    /// source is dropped again while its models stay with the manager.
    async fn begin(&self, current: &mut Current, models: Vec<Monitored>) -> Result<(), Status> {
        let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
        let monitor = self.manager.bus().monitor();
        self.manager.set_load_threads(4 * cores());
        let source = Arc::new(Source::new(models, self.aspire()));
        let poller = Poller::start(Arc::clone(&source), self.config.poll)
            .map_err(|error| Status::new(Code::Internal, format!("no thread to poll: {error}")))?;
        let outcome = report(monitor.settled(&names).await, "servable(s)");
        self.manager.set_load_threads(self.config.load_threads);
        if outcome.is_ok() {
            current.source = Some((source, poller));
        }
        outcome
    }

    fn aspire(&self) -> Aspire {
        let manager = self.manager.clone();
        let make_loader = Arc::clone(&self.config.make_loader);
        Box::new(move |name: &str, versions: Versions| {
            let aspired = versions
                .into_iter()
                .map(|(version, path)| Aspired { version, loader: make_loader(&path) });
            manager.aspire(name, aspired.collect());
        })
    }
}

/// Cores this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Turns models that ended into the error a reload answers with.
fn report(ended: Vec<(ServableId, Result<(), Status>)>, what: &str) -> Result<(), Status> {
    if ended.is_empty() {
        return Ok(());
    }
    let count = ended.len();
    let each = ended.into_iter().map(|(id, status)| match status {
        Ok(()) => format!("{{{id}}}, "),
        Err(status) => format!("{{{id} due to error: {status}}}, "),
    });
    let each: String = each.collect();
    Err(Status::new(Code::Unknown, format!("{count} {what} did not become available: {{{each}}}")))
}
