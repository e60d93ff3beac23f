//! The HTTP surface: predictions, their explanations and model states as JSON.

mod body;
mod document;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{Path as InPath, Request, State, rejection::PathRejection},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONTENT_TYPE, VARY},
    },
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::Handle;
use serde_json::{Value, json};

use self::body::Received;
use crate::{
    call::Call,
    compression::{Policy, compress, decompress},
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
    compression: Policy,
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
        .with_state(App { predictor, models, max_message, compression })
        .layer(middleware::from_fn_with_state(Arc::new(rules), guard))
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
    match answered(app, call, request, computed).await {
        Ok(response) => {
            call.answered();
            response
        }
        Err(failure) => {
            call.failed(&failure);
            let mut response = match failure.reason {
                Reason::EncodingUnsupported => {
                    failure::to_http_as(StatusCode::UNSUPPORTED_MEDIA_TYPE, &failure)
                }
                _ => failure::to_http(&failure),
            };
            app.compression.explain(&failure, response.headers_mut());
            response
        }
    }
}

async fn answered(
    app: &App,
    call: &Call,
    request: Request,
    computed: Computed,
) -> Result<Response, Failure> {
    let App { predictor, compression, max_message, .. } = app;
    let (head, body) = request.into_parts();
    // A body in an unknown encoding is not read.
    let encoding = compression.request(&head.headers)?;
    let mut body = call.receive(body::read(body, *max_message, call.held())).await?;
    if let Some(encoding) = encoding {
        let compressed = body.join_charged(call.held())?;
        let decompressed =
            decompress(call, predictor.heavy(), encoding, compressed, *max_message).await?;
        body = Received::from(decompressed);
    }
    let document = match computed {
        Computed::Scores => document::predict(predictor, call, body).await?,
        Computed::Contributions => document::explain(predictor, call, body).await?,
    };
    Ok(written(app, call, &head.headers, document.into()).await)
}

/// The response with a document, compressed if its caller accepts that and it pays.
async fn written(app: &App, call: &Call, asked: &HeaderMap, document: Bytes) -> Response {
    let mut compressed = None;
    let encoding = app.compression.answer(asked);
    if let Some(encoding) = encoding {
        compressed = compress(call, app.predictor.heavy(), encoding, document.clone(), 0).await;
    }
    let label = encoding.filter(|_| compressed.is_some());
    let document = compressed.map_or(document, Bytes::from);
    let mut response = ([(CONTENT_TYPE, JSON)], document).into_response();
    if app.compression.varies() {
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Some(encoding) = label {
        app.compression.label(encoding, response.headers_mut());
    }
    response
}

/// The content type of a document.
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
    let App { predictor, models, .. } = app;
    let write = async move { Ok(Json(states(&models)?).into_response()) };
    respond(&call, predictor.heavy().run(write).await)
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
