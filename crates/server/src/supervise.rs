//! The long-running tasks of the server, and the order in which it stops.

use std::{convert::Infallible, future::Future, time::Duration};

use outrigger_trace::Exporter;
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    config::{Config, Source},
    health,
    listen::{Listener, Places, Shares, Unread, raise_descriptors},
    live,
    metrics::Exposition,
    reload::Reloader,
    runtimes::{Runtimes, Seats},
    wiring::{Listeners, Parts, Surfaces},
};

/// The interval at which recorded values are moved into histograms.
const UPKEEP: Duration = Duration::from_secs(5);
/// The time for the lifecycle and the last listeners if draining has used up the grace period.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Requests the stop of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    /// Requests an ordered stop within the grace period.
    pub(crate) gently: CancellationToken,
    /// Requests a stop at once, without waiting for requests in flight.
    pub(crate) now: CancellationToken,
}

/// Tasks that run as long as the server; each returns its name.
type Tasks = JoinSet<&'static str>;

/// Runs the server until a stop is requested, and stops it. It also stops the server if a task ends
/// by itself or panics, because a server that lacks a part is of no use.
pub(crate) async fn supervise(
    config: Config,
    source: Option<Source>,
    runtimes: &Runtimes,
    mut parts: Parts,
    service: outrigger_lifecycle::Service,
    listeners: Listeners,
    stop: &Stop,
) -> Result<(), Error> {
    let Surfaces { grpc, http, health, admin, xgboost_serving } =
        Surfaces::new(&config, &parts, runtimes);
    let (control, seats) = (runtimes.control.handle(), runtimes.serving.seats());
    let Shares { callers, aside } = Shares::of(raise_descriptors());
    let places = Places::new(callers);
    let unread = Unread::new(parts.limits.budget.unread.clone());

    // The tasks that predict stop first; all others stop last.
    let (mut predicting, mut supporting) = (Tasks::new(), Tasks::new());
    keep(&mut supporting, "lifecycle", runtimes.lifecycle.handle(), service.run());
    support(&mut supporting, &config, source, runtimes, &mut parts);
    let mut beside = |name, listener: Listener, app, runtime: &Handle| {
        let (seats, places) = (Seats::on([runtime.clone()]), Places::new(aside));
        let served = listener.serve(app, seats, places, unread.clone(), parts.end.clone());
        keep(&mut supporting, name, runtime, served);
    };
    beside("health", listeners.health, health, runtimes.health.handle());
    beside("admin", listeners.admin, admin, control);
    keep(&mut predicting, "grpc", control, {
        let (seats, places, unread) = (seats.clone(), places.clone(), unread.clone());
        listeners.grpc.serve(grpc, seats, places, unread, parts.drain.clone())
    });
    if let Some(listener) = listeners.xgboost_serving {
        keep(&mut predicting, "xgboost_serving", control, {
            let (seats, places, unread) = (seats.clone(), places.clone(), unread.clone());
            listener.serve(xgboost_serving, seats, places, unread, parts.drain.clone())
        });
    }
    keep(&mut predicting, "http", control, {
        listeners.http.serve(http, seats.clone(), places, unread.clone(), parts.drain.clone())
    });

    let unexpected = tokio::select! {
        () = stop.gently.cancelled() => None,
        Some(task) = predicting.join_next() => Some(name(task)),
        Some(task) = supporting.join_next() => Some(name(task)),
    };
    if let Some(task) = unexpected {
        tracing::error!(task, "a part of the server ended by itself");
    }
    shut_down(&config, &parts, predicting, supporting, stop).await;
    unexpected.map_or(Ok(()), |task| Err(Error::Ended { task }))
}

/// Starts the tasks that serve no requests.
fn support(
    tasks: &mut Tasks,
    config: &Config,
    source: Option<Source>,
    runtimes: &Runtimes,
    parts: &mut Parts,
) {
    let (lifecycle, control) = (runtimes.lifecycle.handle(), runtimes.control.handle());
    keep(tasks, "gRPC health", control, {
        health::follow(parts.models.clone(), parts.reporter.clone(), parts.readiness.clone())
    });
    keep(tasks, "metrics", control, upkeep(parts.exposition.clone(), parts.end.clone()));
    keep(tasks, "secrets", lifecycle, live::follow(parts.security.watched(), parts.end.clone()));
    if let Some(source) = source {
        let (models, limits) = (parts.models.clone(), parts.limits.clone());
        let reloader = Reloader::new(source, config.clone(), models, limits, parts.reloads.clone());
        keep(tasks, "configuration", control, reloader.run(parts.end.clone()));
    }
    keep(tasks, "page", control, parts.feed.clone().run());
    if let Some(exporter) = parts.exporter.take() {
        keep(tasks, "traces", control, export(exporter, parts.end.clone()));
    }
}

/// Stops in order, within the grace period: readiness is withdrawn, the delay gives load balancers
/// time to notice, requests in flight are answered, pulls are abandoned and the journal is written,
/// and health, metrics and admin stop last, because they report on the stop.
async fn shut_down(
    config: &Config,
    parts: &Parts,
    mut predicting: Tasks,
    mut supporting: Tasks,
    stop: &Stop,
) {
    let end = Instant::now() + config.server.shutdown_grace.0;
    let left = || match stop.now.is_cancelled() {
        true => LAST_MOMENT,
        false => end.saturating_duration_since(Instant::now()).max(LAST_MOMENT),
    };

    parts.readiness.withdraw();
    unless(stop, sleep(config.server.shutdown_delay.0)).await;

    parts.drain.cancel();
    let drained = unless(stop, timeout(left(), all_of(&mut predicting))).await;
    if !matches!(drained, Some(Ok(()))) {
        tracing::warn!("requests were cut off: the grace period is over");
    }
    predicting.abort_all();

    parts.models.shutdown(left()).await;

    parts.end.cancel();
    if timeout(left(), all_of(&mut supporting)).await.is_err() {
        tracing::debug!("the last callers were cut off");
    }
    tracing::info!("stopped");
}

/// Runs a task on `runtime` for as long as the server lives.
fn keep<E: std::error::Error + 'static>(
    tasks: &mut Tasks,
    name: &'static str,
    runtime: &Handle,
    task: impl Future<Output = Result<(), E>> + Send + 'static,
) {
    let named = async move {
        if let Err(error) = task.await {
            tracing::error!(task = name, error = &error as &dyn std::error::Error, "a task failed");
        }
        name
    };
    tasks.spawn_on(named, runtime);
}

fn name(ended: Result<&'static str, tokio::task::JoinError>) -> &'static str {
    // The panic hook has logged the location.
    ended.unwrap_or("a task that panicked")
}

async fn all_of(tasks: &mut Tasks) {
    while tasks.join_next().await.is_some() {}
}

/// Waits for `future`; returns `None` if the server must stop at once.
async fn unless<T>(stop: &Stop, future: impl Future<Output = T>) -> Option<T> {
    stop.now.run_until_cancelled(future).await
}

async fn export(exporter: Exporter, end: CancellationToken) -> Result<(), Infallible> {
    exporter.run(end.cancelled_owned()).await;
    Ok(())
}

async fn upkeep(exposition: Exposition, end: CancellationToken) -> Result<(), Infallible> {
    let mut ticks = interval(UPKEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while end.run_until_cancelled(ticks.tick()).await.is_some() {
        exposition.upkeep();
    }
    Ok(())
}
