//! Conversion of a JSON request to an `outrigger.v1.PredictRequest`.

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{
    ModelSelector, OnTreatmentError, PredictRequest, ResponseOptions, model_selector::Version,
};
use prost::Message as _;
use serde_json::Value;

use super::{encoder::encode, not_json};
use crate::{
    plan::Plan,
    reader::{Node, Object, Small, Wrong},
};

/// Encodes the JSON form of a request as an `outrigger.v1.PredictRequest`. Features that
/// the model does not name are kept only to be counted: under other names, and without
/// their values.
///
/// # Errors
/// REQUEST_MALFORMED with the path of the faulty value; FEATURE_TYPE or FEATURE_LENGTH
/// for a list that its feature cannot take.
pub fn encode_request(plan: &Plan, body: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let encoded = encode(plan, "", &mut json)?;
    json.end().map_err(|error| not_json(&error))?;
    Ok(encoded)
}

/// As [`encode_request`], but returns the decoded message.
///
/// # Errors
/// As [`encode_request`].
pub fn predict_request(plan: &Plan, body: &[u8]) -> Result<PredictRequest, Failure> {
    encode_request(plan, body).map(|encoded| decode(&encoded))
}

/// Reads a request that is part of a larger JSON value.
pub(crate) fn read_request(plan: &Plan, node: &Node<'_>) -> Result<PredictRequest, Failure> {
    encode(plan, &node.path, node.value).map(|encoded| decode(&encoded))
}

fn decode(encoded: &[u8]) -> PredictRequest {
    PredictRequest::decode(encoded).expect("it has just been encoded")
}

/// The value of a key; `None` if it is absent or null.
fn given<'a>(object: &Object<'a>, key: &str) -> Option<Node<'a>> {
    object.optional(key).filter(|node| !node.value.is_null())
}

/// A string; null is read as the empty string.
pub(super) fn read_text(node: &Node<'_>) -> Result<String, Wrong> {
    if node.value.is_null() { Ok(String::new()) } else { node.text().map(str::to_owned) }
}

/// A value with few others in it.
pub(super) fn read_small(text: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Small>(text).map(|Small(value)| value)
}

pub(super) fn read_model(node: &Node<'_>) -> Result<ModelSelector, Wrong> {
    let object = node.object()?;
    object.only(&["name", "tag", "digest"])?;
    let name = object.required("name")?.name()?.to_owned();
    let text = |key| given(&object, key).map(|node| node.name().map(str::to_owned)).transpose();
    let version = match (text("tag")?, text("digest")?) {
        (None, None) => None,
        (Some(tag), None) => Some(Version::Tag(tag)),
        (None, Some(digest)) => Some(Version::Digest(digest)),
        (Some(_), Some(_)) => return Err(object.error("tag and digest exclude each other")),
    };
    Ok(ModelSelector { name, version })
}

pub(super) fn read_options(node: Option<Node<'_>>) -> Result<ResponseOptions, Wrong> {
    let mut options = ResponseOptions { treatment_ids: true, ..ResponseOptions::default() };
    let Some(node) = node.filter(|node| !node.value.is_null()) else { return Ok(options) };
    let object = node.object()?;
    object.only(&["top_k", "treatment_ids", "outputs", "on_treatment_error"])?;
    options.treatment_ids = object.flag("treatment_ids", true)?;
    if let Some(node) = object.optional("top_k") {
        let top_k = u32::try_from(node.integer()?);
        options.top_k = top_k.map_err(|_| node.error("expected a number from 0 on"))?;
    }
    if let Some(node) = object.optional("outputs") {
        let names = node.array()?;
        options.outputs = names.iter().map(read_text).collect::<Result<_, _>>()?;
    }
    if let Some(node) = object.optional("on_treatment_error") {
        let choices = [("fail", OnTreatmentError::Fail), ("skip", OnTreatmentError::Skip)];
        options.on_treatment_error = node.one_of(&choices)?.into();
    }
    Ok(options)
}
