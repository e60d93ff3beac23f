//! The HTTP surface: predictions and model states as JSON.

mod body;
mod document;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{Path as InPath, Request, State, rejection::PathRejection},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::Handle;
use serde_json::{Value, json};

use crate::{
    call::Call,
    failure,
    front::{Front, Method, Path, Route, Timeout},
    guard::{Guard, guard},
    predict::Predictor,
    routing,
    views::{History, find, model_json},
};

/// The header in which a caller sends its timeout: `250ms`, `2s`.
pub(crate) const TIMEOUT_HEADER: &str = "x-request-timeout";

/// The front of HTTP with JSON.
pub(crate) static FRONT: Front = Front {
    name: "http",
    index: 1,
    routes: &[
        Route::compute("/v1/predict", Method::Predict, "POST /v1/predict"),
        Route::read(Path::Under("/v1/models"), Method::Models, "GET /v1/models"),
    ],
    timeout: Timeout { header: TIMEOUT_HEADER, read: |text| humantime::parse_duration(text).ok() },
    respond: failure::to_http,
    foreign: |_| None,
    streams: false,
    rpc_system: None,
};

#[derive(Clone)]
struct App {
    predictor: Predictor,
    models: Handle,
    max_message: usize,
}

/// The routes of the HTTP listener.
pub(crate) fn routes(
    predictor: Predictor,
    models: Handle,
    rules: Guard,
    max_message: usize,
) -> Router {
    Router::new()
        .route("/v1/predict", post(predict))
        .route("/v1/models", get(list))
        .route("/v1/models/{*name}", get(show))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .with_state(App { predictor, models, max_message })
        .layer(middleware::from_fn_with_state(Arc::new(rules), guard))
}

async fn predict(
    State(app): State<App>,
    Extension(call): Extension<Call>,
    request: Request,
) -> Response {
    let body = body::read(request.into_body(), app.max_message, call.held());
    let result = match call.receive(body).await {
        Ok(body) => document::predict(&app.predictor, &call, body).await,
        Err(failure) => Err(failure),
    };
    respond(&call, result.map(|document| ([(CONTENT_TYPE, JSON)], document)))
}

/// The content type of a prediction.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

async fn list(State(app): State<App>, Extension(call): Extension<Call>) -> Response {
    states(app, call, |models| {
        let snapshot = models.models();
        let models = snapshot.models.iter();
        let models: Vec<_> =
            models.map(|(name, view)| model_json(name, view, History::Omitted)).collect();
        Ok(json!({"models": models}))
    })
    .await
}

async fn show(
    State(app): State<App>,
    Extension(call): Extension<Call>,
    name: Result<InPath<String>, PathRejection>,
) -> Response {
    states(app, call, move |models| {
        let InPath(name) =
            name.map_err(|rejection| routing::invalid("name", &rejection.body_text()))?;
        let (name, view) = find(models, &name)?;
        Ok(model_json(&name, &view, History::Included))
    })
    .await
}

/// Answers with states of models. Writing many takes milliseconds, so it is heavy work.
async fn states(
    app: App,
    call: Call,
    states: impl FnOnce(&Handle) -> Result<Value, Failure> + Send + 'static,
) -> Response {
    let App { predictor, models, .. } = app;
    let write = async move { Ok(Json(states(&models)?).into_response()) };
    respond(&call, predictor.heavy().run(write).await)
}

async fn unknown_path(Extension(call): Extension<Call>) -> Response {
    let failure = Failure::new(
        Reason::MethodUnknown,
        "no such path; there are POST /v1/predict, GET /v1/models and GET /v1/models/NAME",
    );
    call.failed(&failure);
    failure::to_http_as(StatusCode::NOT_FOUND, &failure)
}

async fn wrong_verb(Extension(call): Extension<Call>) -> Response {
    let failure = Failure::new(
        Reason::MethodUnknown,
        "the path takes another verb: POST /v1/predict, GET /v1/models and GET /v1/models/NAME",
    );
    call.failed(&failure);
    failure::to_http_as(StatusCode::METHOD_NOT_ALLOWED, &failure)
}

fn respond(call: &Call, result: Result<impl IntoResponse, Failure>) -> Response {
    match result {
        Ok(value) => {
            call.answered();
            value.into_response()
        }
        Err(failure) => {
            call.failed(&failure);
            failure::to_http(&failure)
        }
    }
}
