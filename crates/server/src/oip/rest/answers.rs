//! The documents that answer questions.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use outrigger_core::Failure;
use outrigger_oip::{
    metadata::{Health, ModelReady},
    rest::ModelPath,
    statistics::Statistics,
};
use serde::Serialize;

use super::{App, target};

/// A document with the status of success.
pub(super) fn document(value: &impl Serialize) -> Response {
    Json(value).into_response()
}

/// The server answers, so it is live.
pub(super) fn server_live() -> Response {
    document(&Health::new(true, None))
}

/// Answers whether the server is ready.
pub(super) fn server_ready(is_ready: bool) -> Response {
    let error = "the server is stopping, or models are being preloaded";
    (status(is_ready), Json(Health::new(is_ready, (!is_ready).then_some(error)))).into_response()
}

/// Answers whether a model is ready.
pub(super) fn model_ready(name: String, ready: bool) -> Response {
    let error = (!ready).then(|| "no version of the model answers".to_owned());
    (status(ready), Json(ModelReady { name, ready, error })).into_response()
}

const fn status(is_ready: bool) -> StatusCode {
    if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Answers with the statistics of a model, or of all if its name is empty. Writing many takes
/// milliseconds, so it is heavy work.
pub(super) async fn statistics(app: &App, model: ModelPath) -> Result<Response, Failure> {
    let states = app.states.clone();
    let write = async move {
        let model_stats = states.statistics(target(&model))?;
        Ok(document(&Statistics { model_stats }))
    };
    app.documents.predictor().heavy().run(write).await
}
