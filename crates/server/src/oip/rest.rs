//! The REST form of the protocol, under `/v2`. Not served yet: every path is unknown.

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};

/// The routes under `/v2`.
pub(super) fn routes() -> Router {
    Router::new().fallback(unknown_path)
}

async fn unknown_path() -> Response {
    (StatusCode::NOT_FOUND, "the listener answers gRPC only\n").into_response()
}
