//! The paths of the listener, and the guard before them.

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use axum::{
    Extension, Router,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn, map_response},
    response::{IntoResponse as _, Redirect, Response},
    routing::{get, post},
};
use outrigger_batch::Store;
use outrigger_console::{Feed, Site, Viewer, assets::Assets, exposition::TEXT_FORMAT, secure};

use crate::{Worker, change::change, metrics, page::TOPICS, token::Token};

/// The files of the page.
static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    Assets::new(outrigger_console::files![
        "index.html" HTML,
        "batch.js" SCRIPT,
        "changes.js" SCRIPT,
        "hosts.js" SCRIPT,
        "plot.js" SCRIPT,
    ])
});

/// The paths that other machines may read.
const OPEN: [&str; 2] = ["/metrics", "/healthz"];

/// The address of a request's caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller(pub(crate) SocketAddr);

/// The parts that requests need. Clones share them.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

struct Parts {
    store: Store,
    worker: Option<Worker>,
    token: Token,
    feed: Feed<TOPICS>,
}

impl App {
    pub(crate) fn new(
        store: Store,
        worker: Option<Worker>,
        token: Token,
        feed: Feed<TOPICS>,
    ) -> Self {
        Self(Arc::new(Parts { store, worker, token, feed }))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn token(&self) -> &Token {
        &self.0.token
    }
}

/// The routes. Each request needs [`Caller`] in its extensions.
pub(crate) fn routes(app: App) -> Router {
    let page = Router::new()
        .route("/", get(|| async { Redirect::to("ui") }))
        .route("/ui", get(|headers: HeaderMap| async move { ASSETS.index(&headers) }))
        .route("/ui/", get(|| async { Redirect::to("../ui") }))
        .route("/ui/events", get(events))
        .route("/ui/control", post(change))
        .route("/ui/{*file}", get(file))
        .layer(map_response(secure));
    Router::new()
        .route("/metrics", get(exposed))
        // Liveness means only that the process answers.
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(page)
        .layer(from_fn(guard))
        .with_state(app)
}

/// Lets callers on this machine through whose browser shows no page of another site, and others to
/// the paths that are open.
async fn guard(mut request: Request, next: Next) -> Response {
    let from = request.extensions().get::<Caller>();
    let from = from.map(|Caller(address)| address.ip().to_canonical());
    let is_here = from.is_some_and(|address| address.is_loopback());
    let refused = |why: String| (StatusCode::FORBIDDEN, format!("{why}\n")).into_response();
    if !is_here && !OPEN.contains(&request.uri().path()) {
        return refused("the page is for callers on its own machine: forward the port".to_owned());
    }
    let site = Site::Own { tls: false, names: [].into(), setting: None };
    if is_here && let Err(failure) = site.check(&request) {
        return refused(failure.to_string());
    }
    let viewer = from.map_or_else(String::new, |address| address.to_string());
    request.extensions_mut().insert(Viewer(viewer));
    next.run(request).await
}

/// Serves a file of the page.
async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    ASSETS.file(&name, &headers)
}

/// Serves the stream of events.
async fn events(State(app): State<App>, Extension(viewer): Extension<Viewer>) -> Response {
    app.0.feed.events(viewer)
}

/// Serves the metrics of the worker in this process.
async fn exposed(State(app): State<App>) -> Response {
    let Some(worker) = &app.0.worker else {
        let why = "no worker of the job is in this process: its own listener has the metrics\n";
        return (StatusCode::NOT_FOUND, why).into_response();
    };
    let output = app.store().root().display().to_string();
    let text = metrics::render(&worker.watch.get(), (&worker.model, &output));
    ([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of the files of the page.
    const MOST: usize = 60_000;

    #[test]
    fn the_page_is_small() {
        let bytes = ASSETS.bytes();
        assert!(bytes <= MOST, "{bytes} bytes");
    }

    #[test]
    fn every_file_that_the_page_names_is_there() {
        assert_eq!(ASSETS.missing(), [""; 0]);
    }
}
