//! Its REST interface.

mod path;

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::{Method as Verb, StatusCode},
    response::{IntoResponse as _, Response},
};
use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::Handle;
use outrigger_proto::tensorflow::serving::ModelSpec;
use outrigger_xgboost_serving::{Asked, Platform};

use self::path::Path;
use super::{
    json,
    models::{states, statuses},
    predict::predict,
};
use crate::{
    call::Call,
    failure,
    front::{self, Front, Method, Route},
    guard::Guard,
    http::{self, Documents, Received},
    metrics::Latency,
    predict::Predictor,
};

/// The front of its REST interface.
pub(crate) static REST: Front = Front {
    name: "xgboost_serving_http",
    index: 3,
    routes: &[
        predict_route(":predict"),
        predict_route(":predict_alphafm"),
        predict_route(":predict_softmax"),
        Route::read(front::Path::Verb(path::MODELS, ""), Method::Models, "GET /v1/models/NAME"),
    ],
    timeout: http::TIMEOUT,
    respond: |failure| failure::to_rest_as(failure::http_status(failure), failure),
    foreign: |_| None,
    streams: false,
    rpc_system: None,
    latency: Some(Latency::Http),
};

const fn predict_route(verb: &'static str) -> Route {
    let path = front::Path::Verb(path::MODELS, verb);
    Route { path, ..Route::compute(verb, Method::Predict, "POST /v1/models/NAME:predict") }
}

/// Larger bodies are heavy, as those of `/v1/predict` are.
const HEAVY: usize = 64 << 10;

#[derive(Clone)]
struct App {
    documents: Documents,
    models: Handle,
}

/// The routes of the interface.
pub(super) fn routes(documents: Documents, models: Handle, rules: Arc<Guard>) -> Router {
    http::guarded(answer, App { documents, models }, rules)
}

async fn answer(
    State(app): State<App>,
    Extension(call): Extension<Call>,
    request: Request,
) -> Response {
    let (path, verb) = (Path::read(request.uri().path()), request.method().clone());
    let answered = match (path, verb) {
        (Some(Path { spec, verb: Some(platform) }), Verb::POST) => {
            scores(&app, &call, request, platform, spec).await
        }
        (Some(Path { spec, verb: None }), Verb::GET) => status(&app, spec).await,
        (path, _) => return unknown(&call, path.is_some()),
    };
    app.documents.conclude(&call, answered, failure::to_rest_as)
}

async fn scores(
    app: &App,
    call: &Call,
    request: Request,
    platform: Platform,
    spec: ModelSpec,
) -> Result<Response, Failure> {
    let documents = &app.documents;
    let (head, body) = request.into_parts();
    let body = documents.read(call, &head.headers, body).await?;
    let document = if body.len() <= HEAVY {
        scored(documents.predictor(), call, platform, spec, body).await?
    } else {
        let (predictor, call) = (documents.predictor().clone(), call.clone());
        let work = async move { scored(&predictor, &call, platform, spec, body).await };
        documents.predictor().heavy().run(work).await?
    };
    Ok(documents.response(call, &head.headers, document.into()).await)
}

async fn scored(
    predictor: &Predictor,
    call: &Call,
    platform: Platform,
    spec: ModelSpec,
    body: Received,
) -> Result<Vec<u8>, Failure> {
    let held = call.held();
    let body = body.join_charged(held)?;
    let admit = |rows: usize| held.receive(body.len() + rows, None);
    let asked = Asked::read_json(platform, spec, &body, &predictor.limits(), admit)?;
    // The rows have been copied out of it, and become the tensors.
    drop(body);
    held.keep_body(asked.rows.size());
    predict(predictor, call, asked, json::document).await
}

/// The states of versions. Writing many takes milliseconds, so it is heavy work.
async fn status(app: &App, spec: ModelSpec) -> Result<Response, Failure> {
    let models = app.models.clone();
    let write = async move { Ok(Json(statuses(&states(&models, &spec)?)).into_response()) };
    app.documents.predictor().heavy().run(write).await
}

/// Refuses a path that does not exist, or the wrong verb for one that does.
fn unknown(call: &Call, is_path: bool) -> Response {
    let (status, problem) = match is_path {
        true => (StatusCode::METHOD_NOT_ALLOWED, "the path takes another verb"),
        false => (StatusCode::NOT_FOUND, "no such path"),
    };
    let message = format!(
        "{problem}: there are POST /v1/models/NAME:predict, :predict_alphafm and :predict_softmax, \
         and GET /v1/models/NAME, all also with /versions/NUMBER behind NAME"
    );
    let failure = Failure::new(Reason::MethodUnknown, message);
    call.failed(&failure);
    failure::to_rest_as(status, &failure)
}
