//! The HTTP form of requests and responses: plain JSON.
//!
//! ```json
//! {"model": {"name": "churn", "tag": "latest"},
//!  "request_id": "r-1", "routing_key": "user-7",
//!  "user": {"recency_months": 6, "address": {"zip": "8001"}},
//!  "treatments": [{"id": "a", "features": {"discount": 0.1}}],
//!  "options": {"top_k": 1, "treatment_ids": true, "outputs": ["score"], "on_treatment_error": "skip"}}
//! ```
//! A nested object's leaves are features named by their paths (`address.zip`), an
//! array is a vector, null is absence. Unknown keys are refused; unknown features
//! are not. Unlike in the protobuf form, ids are returned unless `treatment_ids`
//! is false.
//!
//! [`Request`] finds the parts of a body without reading them (`parts`, `scan`). When the model is
//! known, one pass over the text writes the values to the tensors (`pack`, `row`): a treatment is
//! compared with the text of the one before (`template`), and only its values are read. A body that
//! this reader does not take is read by a general parser, which encodes it as a `PredictRequest`
//! (`odd`, `encoder`); it names the first error, so the fast reader has none of its own.

mod encoder;
mod list;
mod odd;
mod pack;
mod parts;
mod request;
mod row;
mod scan;
mod sparse;
mod template;
mod vector;
pub(crate) mod writer;

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::ModelSelector;
use serde::Deserialize;
use serde_json::Value;

use crate::reader::{Node, Small, Wrong};
pub use parts::Request;
pub(crate) use request::read_request;
pub use request::{encode_request, predict_request};

/// The fields of a request that are needed to find its model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Routing {
    /// The requested model.
    pub model: ModelSelector,
    /// The request's id; empty when there is none.
    pub request_id: String,
    /// The key that decides the arm; empty when there is none.
    pub routing_key: String,
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    model: Small,
    #[serde(default)]
    request_id: Small,
    #[serde(default)]
    routing_key: Small,
}

/// Reads a request's model, id and routing key. The rest is only checked to be JSON.
///
/// # Errors
/// REQUEST_MALFORMED: not a JSON object, or no valid `model`.
pub fn selector(body: &[u8]) -> Result<Routing, Failure> {
    // serde accepts an array for a struct as well.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(malformed(Node::root(&Value::Null).error("the body is not a JSON object")));
    }
    let head: Head = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    let node = |key: &str, value| Node { path: key.to_owned(), value };
    let read = || {
        if head.model.0.is_null() {
            return Err(node("model", &head.model.0).error("is required"));
        }
        Ok(Routing {
            model: request::read_model(&node("model", &head.model.0))?,
            request_id: request::read_text(&node("request_id", &head.request_id.0))?,
            routing_key: request::read_text(&node("routing_key", &head.routing_key.0))?,
        })
    };
    read().map_err(malformed)
}

fn not_json(error: &serde_json::Error) -> Failure {
    Failure::new(Reason::RequestMalformed, format!("the body is not a request: {error}"))
}

fn malformed(wrong: Wrong) -> Failure {
    failure(Reason::RequestMalformed, wrong)
}

pub(crate) fn failure(reason: Reason, Wrong { path, message }: Wrong) -> Failure {
    if path.is_empty() {
        return Failure::new(reason, message);
    }
    Failure::new(reason, format!("{path}: {message}")).violation(path, message)
}

#[cfg(test)]
mod tests;
