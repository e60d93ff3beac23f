//! The HTTP surface: predictions, their explanations and model states as JSON.

mod body;
mod document;
mod documents;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{Path as InPath, Request, State, rejection::PathRejection},
    handler::Handler,
    http::{StatusCode, header::CONTENT_TYPE},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::Handle;
use serde_json::{Value, json};

use self::documents::JSON;
pub(crate) use self::{body::Received, documents::Documents};
use crate::{
    call::Call,
    compression::Policy,
    failure,
    front::{Front, Method, Path, Route, Timeout},
    guard::{Guard, guard},
    openapi,
    predict::Predictor,
    routing,
    views::{History, find, model_json},
};

/// The paths of the surface.
pub(crate) const PREDICT_PATH: &str = "/v1/predict";
pub(crate) const EXPLAIN_PATH: &str = "/v1/explain";
pub(crate) const MODELS_PATH: &str = "/v1/models";
pub(crate) const DOCUMENT_PATH: &str = "/openapi.json";

/// The header in which a caller sends its timeout: `250ms`, `2s`.
pub(crate) const TIMEOUT_HEADER: &str = "x-request-timeout";

/// How a caller over HTTP sends its timeout.
pub(crate) const TIMEOUT: Timeout =
    Timeout { header: TIMEOUT_HEADER, read: |text| humantime::parse_duration(text).ok() };

/// The front of HTTP with JSON.
pub(crate) static FRONT: Front = Front {
    name: "http",
    index: 1,
    routes: &[
        Route::compute(PREDICT_PATH, Method::Predict, "POST /v1/predict"),
        Route::compute(EXPLAIN_PATH, Method::Explain, "POST /v1/explain"),
        Route::read(Path::Under(MODELS_PATH), Method::Models, "GET /v1/models"),
        Route::open(DOCUMENT_PATH),
    ],
    timeout: TIMEOUT,
    respond: failure::to_http,
    foreign: |_| None,
    streams: false,
    rpc_system: None,
    latency: None,
};

#[derive(Clone)]
struct App {
    documents: Documents,
    models: Handle,
}

/// The routes of the HTTP listener.
pub(crate) fn routes(
    predictor: Predictor,
    models: Handle,
    rules: Guard,
    max_message: usize,
    compression: Policy,
) -> Router {
    Router::new()
        .route(PREDICT_PATH, post(predict))
        .route(EXPLAIN_PATH, post(explain))
        .route(MODELS_PATH, get(list))
        .route(&format!("{MODELS_PATH}/{{*name}}"), get(show))
        .route(DOCUMENT_PATH, get(describe))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .with_state(App { documents: Documents::new(predictor, max_message, compression), models })
        .layer(middleware::from_fn_with_state(Arc::new(rules), guard))
}

/// The routes of a front that finds its resources by itself: one handler for all paths, within the
/// rules of the front.
pub(crate) fn guarded<H, T, S>(handler: H, state: S, rules: Arc<Guard>) -> Router
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    let routes = Router::new().fallback(handler).with_state(state);
    routes.layer(middleware::from_fn_with_state(rules, guard))
}

async fn predict(
    State(app): State<App>,
    Extension(call): Extension<Call>,
    request: Request,
) -> Response {
    compute(&app, &call, request, Computed::Scores).await
}

async fn explain(
    State(app): State<App>,
    Extension(call): Extension<Call>,
    request: Request,
) -> Response {
    compute(&app, &call, request, Computed::Contributions).await
}

/// The documents that are computed from a request.
#[derive(Debug, Clone, Copy)]
enum Computed {
    Scores,
    Contributions,
}

async fn compute(app: &App, call: &Call, request: Request, computed: Computed) -> Response {
    let answered = answered(&app.documents, call, request, computed).await;
    app.documents.conclude(call, answered, failure::to_http_as)
}

async fn answered(
    documents: &Documents,
    call: &Call,
    request: Request,
    computed: Computed,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let body = documents.read(call, &head.headers, body).await?;
    let document = match computed {
        Computed::Scores => document::predict(documents.predictor(), call, body).await?,
        Computed::Contributions => document::explain(documents.predictor(), call, body).await?,
    };
    Ok(documents.response(call, &head.headers, document.into()).await)
}

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

/// Answers with the OpenAPI document of this surface.
async fn describe(Extension(call): Extension<Call>) -> Response {
    call.answered();
    ([(CONTENT_TYPE, JSON)], openapi::DOCUMENT.clone()).into_response()
}

/// Answers with states of models. Writing many takes milliseconds, so it is heavy work.
async fn states(
    app: App,
    call: Call,
    states: impl FnOnce(&Handle) -> Result<Value, Failure> + Send + 'static,
) -> Response {
    let App { documents, models } = app;
    let write = async move { Ok(Json(states(&models)?).into_response()) };
    respond(&call, documents.predictor().heavy().run(write).await)
}

async fn unknown_path(Extension(call): Extension<Call>) -> Response {
    let failure = Failure::new(
        Reason::MethodUnknown,
        "no such path; there are POST /v1/predict, POST /v1/explain, GET /v1/models, \
         GET /v1/models/NAME and GET /openapi.json",
    );
    call.failed(&failure);
    failure::to_http_as(StatusCode::NOT_FOUND, &failure)
}

async fn wrong_verb(Extension(call): Extension<Call>) -> Response {
    let failure = Failure::new(
        Reason::MethodUnknown,
        "the path takes another verb: POST /v1/predict, POST /v1/explain, GET /v1/models, \
         GET /v1/models/NAME and GET /openapi.json",
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
