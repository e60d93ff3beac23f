//! A JSON request becomes an `outrigger.v1.PredictRequest`.

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{
    FeatureMap, ModelSelector, OnTreatmentError, PredictRequest, ResponseOptions, Treatment,
    model_selector::Version, predict_request::User,
};

use super::{features, malformed, not_json};
use crate::{
    Plan,
    metadata::Entity,
    reader::{self, Node, Object, Wrong},
};

const KEYS: &[&str] = &["model", "request_id", "routing_key", "user", "treatments", "options"];

/// Reads a request's JSON form.
///
/// # Errors
/// REQUEST_MALFORMED with the path of what is wrong; FEATURE_TYPE for a list
/// that no feature could take.
pub fn predict_request(plan: &Plan, body: &[u8]) -> Result<PredictRequest, Failure> {
    let value = reader::parse(body).map_err(|error| not_json(&error))?;
    read_request(plan, &Node::root(&value))
}

pub(crate) fn read_request(plan: &Plan, node: &Node<'_>) -> Result<PredictRequest, Failure> {
    let mut request = read_head(node).map_err(malformed)?;
    let object = node.object().map_err(malformed)?;
    if let Some(user) = given(&object, "user") {
        let features = features::read(plan, Entity::User, &user)?;
        request.user = Some(User::UserFeatures(FeatureMap { features }));
    }
    if let Some(treatments) = given(&object, "treatments") {
        let nodes = treatments.array().map_err(malformed)?;
        let read = |node: &Node<'_>| read_treatment(plan, node);
        request.treatments = nodes.iter().map(read).collect::<Result<_, _>>()?;
    }
    Ok(request)
}

/// Everything but features.
fn read_head(node: &Node<'_>) -> Result<PredictRequest, Wrong> {
    let object = node.object()?;
    object.only(KEYS)?;
    let text = |key| given(&object, key).map_or(Ok(String::new()), |node| read_text(&node));
    Ok(PredictRequest {
        model: given(&object, "model").map(|node| read_model(&node)).transpose()?,
        request_id: text("request_id")?,
        routing_key: text("routing_key")?,
        options: Some(read_options(given(&object, "options"))?),
        ..PredictRequest::default()
    })
}

/// A key's value unless it is absent or null.
fn given<'a>(object: &Object<'a>, key: &str) -> Option<Node<'a>> {
    object.optional(key).filter(|node| !node.value.is_null())
}

/// A string; null is the empty one.
pub(super) fn read_text(node: &Node<'_>) -> Result<String, Wrong> {
    if node.value.is_null() { Ok(String::new()) } else { node.text().map(str::to_owned) }
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

fn read_options(node: Option<Node<'_>>) -> Result<ResponseOptions, Wrong> {
    let mut options = ResponseOptions { treatment_ids: true, ..ResponseOptions::default() };
    let Some(node) = node else { return Ok(options) };
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

fn read_treatment(plan: &Plan, node: &Node<'_>) -> Result<Treatment, Failure> {
    let object = node.object().map_err(malformed)?;
    object.only(&["id", "features"]).map_err(malformed)?;
    let id = given(&object, "id").map_or(Ok(String::new()), |node| read_text(&node));
    let id = id.map_err(malformed)?;
    let features = match given(&object, "features") {
        Some(node) => features::read(plan, Entity::Treatment, &node)?,
        None => Default::default(),
    };
    Ok(Treatment { id, features })
}
