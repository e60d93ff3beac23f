//! Encodes the parts of an `outrigger.v1.PredictRequest`.

use outrigger_core::{Failure, Reason};
use outrigger_feature_table::{Takes, Type, value};
use outrigger_features::metadata::Entity;
use outrigger_proto::{
    outrigger::v1::{OnTreatmentError, PredictRequest, ResponseOptions, Value},
    raw::write::{put_bytes, put_entry, put_filled, put_header},
};
use outrigger_tables::Cell;
use prost::Message as _;

use crate::{features::Features, text::cut};

/// The fields of `PredictRequest`.
const REQUEST_ID: u32 = 2;
const ROUTING_KEY: u32 = 3;
const USER_FEATURES: u32 = 4;
const TREATMENTS: u32 = 6;
/// The field `id` of `Treatment`.
const ID: u32 = 1;

/// Appends the feature in a cell, or those in an object, to a map of features of `entity`.
/// Features that the model does not have are left out.
///
/// # Errors
/// FEATURE_TYPE: no feature can have such a value.
pub(crate) fn put_feature(
    (features, entity): (&Features, Entity),
    name: &str,
    cell: &Cell,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    put_typed((features, entity, features.takes(entity, name)), name, cell, out)
}

/// Appends the feature in a cell as [`put_feature`], for which its type has been looked up.
///
/// # Errors
/// FEATURE_TYPE: no feature can have such a value.
pub(crate) fn put_typed(
    (features, entity, takes): (&Features, Entity, Option<Takes>),
    name: &str,
    cell: &Cell,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    if let Cell::Object(members) = cell
        && takes.is_none_or(|takes| takes.of == Type::Unknown)
    {
        return members.iter().try_for_each(|(key, cell)| {
            put_feature((features, entity), &format!("{name}.{key}"), cell, out)
        });
    }
    let Some(takes) = takes else { return Ok(()) };
    let refused = |message| Failure::new(Reason::FeatureType, cut(format!("{name}: {message}")));
    let kind = value(cell, takes).map_err(refused)?;
    if kind.is_some() {
        let field = if entity == Entity::User { 1 } else { 2 };
        put_entry(field, name, &Value { kind }, out);
    }
    Ok(())
}

/// Appends the id of a treatment, which is the text of a cell.
pub(crate) fn put_id(id: &Cell, treatment: &mut Vec<u8>) {
    put_filled(ID, &id.to_string(), treatment);
}

/// Appends a treatment to a request's treatments.
pub(crate) fn put_treatment(treatment: &[u8], treatments: &mut Vec<u8>) {
    put_bytes(TREATMENTS, treatment, treatments);
}

/// A request of these parts. A treatment that cannot be scored does not fail the others.
pub(crate) fn request(id: &str, routing_key: &str, user: &[u8], treatments: &[u8]) -> Vec<u8> {
    let options = ResponseOptions {
        on_treatment_error: OnTreatmentError::Skip.into(),
        ..ResponseOptions::default()
    };
    let rest = PredictRequest { options: Some(options), ..PredictRequest::default() };
    let mut request = Vec::with_capacity(treatments.len() + user.len() + 64);
    put_filled(REQUEST_ID, id, &mut request);
    put_filled(ROUTING_KEY, routing_key, &mut request);
    put_header(USER_FEATURES, user.len(), &mut request);
    request.extend_from_slice(user);
    request.extend_from_slice(treatments);
    rest.encode_raw(&mut request);
    request
}
