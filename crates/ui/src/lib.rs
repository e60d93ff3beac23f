//! The page `/ui` of the admin listener. It is read-only; changes are made over
//! gRPC.
//!
//! The page is a handful of files in the binary. Its data comes over one stream of
//! server-sent events, which is made once a second for all viewers.

mod assets;
mod canaries;
mod feed;
mod figures;
mod models;
mod overview;
mod traffic;

use std::io;

use axum::{
    Extension, Json, Router,
    extract::{Path, State, rejection::PathRejection},
    http::HeaderMap,
    middleware,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use outrigger_console::{Viewer, secure};
use outrigger_core::{Failure, ModelName, Reason};
use outrigger_lifecycle::ModelView;
use outrigger_proto::outrigger::v1::{ListCanariesResponse, Model};
use serde_json::Value;

use self::assets::ASSETS;
pub use self::{
    feed::Feed,
    figures::metrics,
    overview::{About, Cpus, Reload},
};

/// The server behind the page.
pub trait Server: Send + Sync + 'static {
    /// The reason why requests should not be sent to the server; `None` when it is ready.
    fn not_ready(&self) -> Option<String>;

    /// The last reload of the configuration; `None` before the first.
    fn last_reload(&self) -> Option<Reload>;

    /// Writes the server's metrics in Prometheus' text format.
    ///
    /// # Errors
    /// Those of the writer.
    fn write_metrics(&self, to: &mut dyn io::Write) -> io::Result<()>;

    /// A model in the form of `outrigger.v1`, with the history of its versions.
    fn model(&self, name: &ModelName, view: &ModelView) -> Model;

    /// All canaries and decisions in the form of `outrigger.v1`, without features.
    fn canaries(&self) -> ListCanariesResponse;

    /// The JSON of one model's own page.
    ///
    /// # Errors
    /// The name is invalid, or no such model is known.
    fn described(&self, name: &str) -> Result<Value, Failure>;

    /// The HTTP response for a failure.
    fn failed(&self, failure: &Failure) -> Response;
}

/// The routes of the page.
///
/// Each request needs a [`Viewer`] in its extensions.
///
/// No path below `/ui` falls through to the listener's other routes.
pub fn routes(feed: Feed) -> Router {
    Router::new()
        .route("/", get(|| async { Redirect::to("ui") }))
        .route("/ui", get(|headers: HeaderMap| async move { ASSETS.index(&headers) }))
        .route("/ui/", get(|| async { Redirect::to("../ui") }))
        .route("/ui/events", get(events))
        .route("/ui/models/{*name}", get(model))
        .route("/ui/{*file}", get(file))
        .with_state(feed)
        .layer(middleware::map_response(secure))
}

/// Serves a file of the page.
async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    ASSETS.file(&name, &headers)
}

/// Serves the stream of events.
async fn events(State(feed): State<Feed>, Extension(viewer): Extension<Viewer>) -> Response {
    feed.events(viewer)
}

/// Serves a model with the history of its versions.
async fn model(State(feed): State<Feed>, name: Result<Path<String>, PathRejection>) -> Response {
    let server = feed.server();
    match name.map_err(|error| unreadable(&error)).and_then(|Path(name)| server.described(&name)) {
        Ok(model) => Json(model).into_response(),
        Err(failure) => server.failed(&failure),
    }
}

fn unreadable(name: &PathRejection) -> Failure {
    let problem = name.body_text();
    Failure::of_field(Reason::RequestMalformed, "name", &problem)
}
