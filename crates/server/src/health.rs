//! The health listener: liveness, readiness and metrics; and the gRPC health service.

mod renders;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use outrigger_budget::Budget;
use outrigger_console::exposition::TEXT_FORMAT;
use outrigger_core::ModelName;
use outrigger_lifecycle::{Handle as Models, ModelView, Snapshot};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

use self::renders::Renders;
use crate::metrics::{self, Exposition};

/// The names in gRPC health besides those of models: the empty name for the whole server, and the
/// services.
const SERVICES: [&str; 5] = [
    "",
    "outrigger.v1.PredictionService",
    "outrigger.v1.ModelService",
    "outrigger.v1.CanaryService",
    "outrigger.v1.ValidationService",
];

/// The readiness of the server to take requests. Clones share it.
#[derive(Clone)]
pub(crate) struct Readiness {
    models: Models,
    stopping: CancellationToken,
}

impl Readiness {
    pub(crate) fn new(models: Models) -> Self {
        Self { models, stopping: CancellationToken::new() }
    }

    /// Makes the server unready for good.
    pub(crate) fn withdraw(&self) {
        self.stopping.cancel();
    }

    /// Checks the readiness; the error is the reason why requests should not be sent here.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ready = self.why();
        metrics::ready(ready.is_ok());
        ready
    }

    fn why(&self) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err("the server is stopping".to_owned());
        }
        let snapshot = self.models.models();
        if snapshot.ready {
            return Ok(());
        }
        match self.engines_down() {
            Some(down) if !snapshot.an_engine_answers() => Err(down),
            _ => Err("models are being preloaded".to_owned()),
        }
    }

    /// The engines that do not answer, with the reasons, as text for people; `None` when all
    /// answer.
    fn engines_down(&self) -> Option<String> {
        let snapshot = self.models.models();
        let down = snapshot.engines.iter().filter(|(_, engine)| !engine.reachable);
        let described = down.map(|(id, engine)| match &engine.failure {
            Some(failure) => format!("engine {id} does not answer: {failure}"),
            None => format!("engine {id} has not answered yet"),
        });
        let described: Vec<_> = described.collect();
        (!described.is_empty()).then(|| described.join("; "))
    }
}

#[derive(Clone)]
struct App {
    readiness: Readiness,
    metrics: Renders,
}

/// The routes of the health listener. Metrics are rendered by the blocking threads of `runtime`, so
/// that a probe does not wait for them.
pub(crate) fn routes(
    readiness: Readiness,
    exposition: Exposition,
    budget: Budget,
    runtime: Handle,
) -> Router {
    let shown = readiness.clone();
    let metrics = Renders::new(runtime, move || {
        // The check updates the readiness gauge, which would be stale otherwise.
        let _ = shown.check();
        budget.record();
        exposition.render(&shown.models.models())
    });
    Router::new()
        // Liveness means only that the process answers, so nothing else is checked.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposed))
        .with_state(App { readiness, metrics })
}

async fn ready(State(app): State<App>) -> Response {
    match app.readiness.check() {
        Ok(()) => match app.readiness.engines_down() {
            Some(down) => format!("ready; {down}\n").into_response(),
            None => "ready\n".into_response(),
        },
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn exposed(State(app): State<App>) -> Response {
    match app.metrics.text().await {
        Ok(text) => ([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// Keeps gRPC health in step with the models until `stop`: the empty name shows readiness, a
/// model's name shows the version of its default tag.
pub(crate) async fn follow(
    models: Models,
    reporter: HealthReporter,
    stop: Readiness,
) -> Result<(), Infallible> {
    let mut changes = models.watch();
    let mut reported = Reported { reporter, statuses: BTreeMap::new() };
    let mut last = Arc::<Snapshot>::default();
    loop {
        let snapshot = Arc::clone(&changes.borrow_and_update());
        reported.report(&models, &last, &snapshot).await;
        last = snapshot;
        let changed = stop.stopping.run_until_cancelled(changes.changed()).await;
        if !matches!(changed, Some(Ok(()))) {
            break;
        }
    }
    stop.stopping.cancelled().await;
    reported.withdraw().await;
    Ok(())
}

/// The statuses that gRPC health has, by name. Only changes are reported to it, so that watchers
/// receive only changes.
struct Reported {
    reporter: HealthReporter,
    statuses: BTreeMap<String, ServingStatus>,
}

impl Reported {
    async fn report(&mut self, models: &Models, last: &Snapshot, snapshot: &Snapshot) {
        for service in SERVICES {
            self.set(service, Some(status(snapshot.ready))).await;
        }
        let mut changed = snapshot.models.changed_since(&last.models);
        if snapshot.configurations != last.configurations {
            // Any model may have another default version.
            changed.extend(snapshot.models.iter().map(|(name, _)| name.clone()));
        }
        for name in changed {
            let view = snapshot.models.get(&name);
            let status = view.map(|view| status(serves(models, &name, view)));
            self.set(name.as_str(), status).await;
        }
    }

    /// Reports to every client of gRPC health that nothing is served any more.
    async fn withdraw(&mut self) {
        for name in self.statuses.keys().cloned().collect::<Vec<_>>() {
            self.set(&name, Some(ServingStatus::NotServing)).await;
        }
    }

    /// Sets the status of a name; `None` removes the name.
    async fn set(&mut self, name: &str, status: Option<ServingStatus>) {
        if self.statuses.get(name).copied() == status {
            return;
        }
        match status {
            Some(status) => {
                self.statuses.insert(name.to_owned(), status);
                self.reporter.set_service_status(name, status).await;
            }
            None => {
                self.statuses.remove(name);
                self.reporter.clear_service_status(name).await;
            }
        }
    }
}

/// Whether the server would answer a request that names no version.
fn serves(models: &Models, name: &ModelName, view: &ModelView) -> bool {
    use outrigger_core::{Selector, Stage};
    match models.default_selector(name) {
        Selector::Tag(tag) => view.tags.get(&tag).is_some_and(|tag| tag.serving.is_some()),
        Selector::Digest(digest) => {
            view.versions.get(&digest).is_some_and(|version| version.stage == Stage::Available)
        }
    }
}

fn status(serves: bool) -> ServingStatus {
    if serves { ServingStatus::Serving } else { ServingStatus::NotServing }
}
