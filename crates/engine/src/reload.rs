//! Applies a `ModelServerConfig`: checks, labels, models, and the wait for new models.
//!
//! Reloads run strictly one after another, in the order of arrival. Each waits, without a
//! time limit, until every newly configured name has a version that is available or has
//! ended. It continues even if its caller disconnects.

mod labels;
mod validate;

#[cfg(test)]
mod tests;

use std::{fmt, path::Path, sync::Arc};

use arc_swap::ArcSwapOption;
use outrigger_proto::tensorflow::serving::{
    ModelConfigList, ModelServerConfig, model_server_config::Config as Choice,
};
use tokio::sync::Mutex;
use tonic::Code;

use crate::{
    cores::cores,
    loader::Loader,
    manager::{Aspired, Manager, Monitor},
    servable::ServableId,
    source::{Aspire, Monitored, Poll, Poller, Source, Versions},
    status::Status,
};

use labels::Labels;

/// Creates the loader of the version in a directory.
pub type MakeLoader<S> = Arc<dyn Fn(&Path) -> Arc<dyn Loader<S>> + Send + Sync>;

/// Settings of the reloader.
pub struct Config<S> {
    /// Creates loaders.
    pub make_loader: MakeLoader<S>,
    /// The schedule of polling base paths.
    pub poll: Poll,
    /// Concurrent loads, except during the first configuration.
    pub load_threads: usize,
    /// True if a new label may point to a version that is not available yet.
    pub labels_for_unavailable: bool,
}

/// Applies configurations.
pub struct Reloader<S> {
    config: Config<S>,
    manager: Manager<S>,
    monitor: Monitor,
    labels: ArcSwapOption<Labels>,
    /// Locked during a whole reload, including its wait.
    current: Mutex<Current>,
}

/// The configuration in force.
#[derive(Default)]
struct Current {
    /// The last accepted list; `None` before the first.
    models: Option<ModelConfigList>,
    /// Finds versions; set once the first list is in force.
    source: Option<(Arc<Source>, Poller)>,
}

impl<S> fmt::Debug for Reloader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl<S: Send + Sync + 'static> Reloader<S> {
    /// A reloader without configuration. `monitor` must have seen all changes of
    /// `manager`.
    pub fn new(config: Config<S>, manager: Manager<S>, monitor: Monitor) -> Self {
        Self { config, manager, monitor, labels: ArcSwapOption::empty(), current: Mutex::default() }
    }

    /// Applies a configuration, and waits for its new models. Dropping the future leaves
    /// the configuration partly applied.
    ///
    /// # Errors
    /// INVALID_ARGUMENT or FAILED_PRECONDITION if the configuration is refused; UNKNOWN
    /// if a new model did not become available, while the others are in service.
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
            Some((source, _)) => self.update(source, models).await?,
            None => self.begin(&mut current, models).await?,
        }
        validate::logging(&list)
    }

    /// The version of a label.
    ///
    /// # Errors
    /// UNAVAILABLE before the first configuration, INVALID_ARGUMENT for an unknown label.
    pub fn label(&self, name: &str, label: &str) -> Result<i64, Status> {
        labels::resolve(self.labels.load().as_deref(), name, label)
    }

    fn checked_labels(&self, list: &ModelConfigList) -> Result<Labels, Status> {
        let current = self.labels.load();
        let current = current.as_deref().filter(|_| self.config.labels_for_unavailable);
        labels::check(list, current, self.config.labels_for_unavailable, &self.monitor)
    }

    /// Applies any configuration but the first.
    async fn update(&self, source: &Source, models: Vec<Monitored>) -> Result<(), Status> {
        let known = source.names();
        let names = models.iter().map(|model| model.name.clone());
        let new: Vec<String> = names.filter(|name| !known.contains(name)).collect();
        // A new monitor, created before the change, has no versions that ended earlier.
        let monitor = self.manager.bus().monitor();
        source.update(models);
        report(monitor.settled(&new).await, "model(s)")
    }

    /// Applies the first configuration, with more load threads. If a model fails, the
    /// source is dropped while its models stay with the manager.
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

/// The error of a reload whose models ended instead of becoming available.
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
