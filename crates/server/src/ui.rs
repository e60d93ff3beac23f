//! A page to look at: `/ui` on the admin listener. It only tells; changes are
//! made over gRPC.
//!
//! The page is a handful of files in the binary, and what it shows comes over one
//! stream of events that all who watch share.

mod assets;
mod canaries;
mod feed;
mod figures;
mod headers;
mod models;
mod overview;
mod topic;
mod traffic;

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use serde_json::json;

pub(crate) use self::{feed::Feed, overview::About};
use crate::{
    failure, routing,
    views::{History, find, model_json},
};

/// The routes of the page.
///
/// No path below `/ui` falls through to what else the listener serves.
pub(crate) fn routes(feed: Feed) -> Router {
    Router::new()
        .route("/", get(|| async { Redirect::to("ui") }))
        .route("/ui", get(assets::index))
        .route("/ui/", get(|| async { Redirect::to("../ui") }))
        .route("/ui/events", get(events))
        .route("/ui/models/{*name}", get(model))
        .route("/ui/{*file}", get(assets::file))
        .with_state(feed)
        .layer(middleware::map_response(headers::secure))
}

/// The stream of events, as `text/event-stream`.
async fn events(State(feed): State<Feed>) -> Response {
    match feed.watch() {
        Some(stream) => {
            let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
            (kind, Body::from_stream(stream)).into_response()
        }
        None => {
            let why = "as many pages as allowed are open; try again later\n";
            ([(header::RETRY_AFTER, "10")], (StatusCode::SERVICE_UNAVAILABLE, why)).into_response()
        }
    }
}

/// A model with the history of its versions.
async fn model(State(feed): State<Feed>, name: Result<Path<String>, PathRejection>) -> Response {
    let name = name.map_err(|rejection| routing::invalid("name", &rejection.body_text()));
    match name.and_then(|Path(name)| find(feed.models(), &name)) {
        Ok((name, view)) => {
            let selector = feed.models().default_selector(&name);
            let model = model_json(&name, &view, History::Included);
            Json(json!({"model": model, "default": selector.to_string()})).into_response()
        }
        Err(failure) => failure::to_http(&failure),
    }
}
