//! Encodes a JSON request as an `outrigger.v1.PredictRequest` while it is parsed: memory
//! use is proportional to the length of the body, whatever its content.

use std::{collections::HashSet, fmt::Write as _};

use outrigger_core::{Failure, Reason};
use outrigger_proto::{
    outrigger::v1::{PredictRequest, Value, value::Kind},
    raw::write::{put_bytes, put_entry, put_header},
};
use prost::Message as _;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    failure,
    list::List,
    malformed, not_json,
    request::{read_model, read_options},
    sparse,
};
use crate::{
    metadata::Entity,
    plan::Plan,
    reader::{Node, Small, Wrong, twice},
};

const REQUEST: &[&str] = &["model", "request_id", "routing_key", "user", "treatments", "options"];
const TREATMENT: &[&str] = &["id", "features"];

/// The fields of `PredictRequest`.
const USER: u32 = 4;
const TREATMENTS: u32 = 6;

/// The state of the parser: the message encoded so far and the current position.
struct Encoder<'p> {
    plan: &'p Plan,
    /// The JSON path of the value being parsed.
    path: String,
    /// The failure that ended parsing; `None` if the cause is invalid JSON.
    failure: Option<Failure>,
    message: Vec<u8>,
    /// The encoded user or treatment being parsed.
    part: Vec<u8>,
    /// The name of the feature being parsed; a name that is too long is truncated.
    feature: String,
    /// The number of unknown features in this part, which are encoded under a number
    /// instead of their name.
    numbers: usize,
    /// The features of this part that the model names.
    given: HashSet<String>,
}

/// Encodes the request at `path`.
///
/// # Errors
/// REQUEST_MALFORMED with the path of the faulty value; FEATURE_TYPE and FEATURE_LENGTH
/// for a list that the feature cannot take.
pub(super) fn encode<'de, D>(plan: &Plan, path: &str, json: D) -> Result<Vec<u8>, Failure>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let mut encoder = Encoder {
        plan,
        path: path.to_owned(),
        failure: None,
        message: Vec::new(),
        part: Vec::new(),
        feature: String::new(),
        numbers: 0,
        given: HashSet::new(),
    };
    match (Part { encoder: &mut encoder, what: What::Request }).deserialize(json) {
        Ok(()) => Ok(encoder.message),
        Err(error) => Err(encoder.failure.unwrap_or_else(|| not_json(&error))),
    }
}

impl Encoder<'_> {
    /// Ends parsing with this failure.
    fn fail<E: Error>(&mut self, failure: Failure) -> E {
        self.failure = Some(failure);
        E::custom("not a request")
    }

    fn wrong<E: Error>(&mut self, message: impl Into<String>) -> E {
        let (path, message) = (self.path.clone(), message.into());
        self.fail(malformed(Wrong { path, message }))
    }

    /// Ends parsing because the feature cannot have its value.
    fn refused<E: Error>(&mut self, (reason, message): sparse::Refused) -> E {
        let path = self.feature_path();
        self.fail(failure(reason, Wrong { path, message }))
    }

    /// Parses the value at a key or an index of the current value.
    fn at<T, E>(
        &mut self,
        step: impl FnOnce(&mut String),
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let parent = self.path.len();
        step(&mut self.path);
        let value = read(self)?;
        self.path.truncate(parent);
        Ok(value)
    }

    /// Matches a key against `keys` and refuses one that is unknown or repeated.
    fn key<E: Error>(&mut self, keys: &[&str], given: &mut u8, key: &str) -> Result<(), E> {
        let Some(index) = keys.iter().position(|known| *known == key) else {
            push_key(&mut self.path, key);
            return Err(self.wrong(format!("unknown key; known are {}", keys.join(", "))));
        };
        if *given & (1 << index) != 0 {
            return Err(twice(key));
        }
        *given |= 1 << index;
        Ok(())
    }

    /// Completes the user or a treatment and appends it to the message.
    fn put_part(&mut self, field: u32) {
        put_header(field, self.part.len(), &mut self.message);
        self.message.append(&mut self.part);
        self.given.clear();
        self.numbers = 0;
    }

    fn text(&mut self, what: What, text: &str) {
        let (field, to) = match what {
            What::TreatmentId => (1, &mut self.part),
            What::RequestId => (2, &mut self.message),
            _ => (3, &mut self.message),
        };
        put_bytes(field, text.as_bytes(), to);
    }

    /// Adds the feature to its part.
    fn put_feature<E: Error>(&mut self, entity: Entity, kind: Kind) -> Result<(), E> {
        if self.plan.dtype_of(entity, &self.feature).is_none() {
            self.put_unknown(entity);
            return Ok(());
        }
        if !self.given.insert(self.feature.clone()) {
            let (path, message) = (self.feature_path(), "given twice".into());
            return Err(self.fail(malformed(Wrong { path, message })));
        }
        put_feature(entity, &self.feature, kind, &mut self.part);
        Ok(())
    }

    /// Adds a feature that the model does not name. It is only counted, so any value will
    /// do, and a number replaces its name: the paths of many nested features would take
    /// much memory.
    fn put_unknown(&mut self, entity: Entity) {
        let name = loop {
            self.numbers += 1;
            let name = self.numbers.to_string();
            if self.plan.dtype_of(entity, &name).is_none() {
                break name;
            }
        };
        put_feature(entity, &name, Kind::Flag(true), &mut self.part);
    }

    /// True if the feature takes ids with weights.
    fn is_sparse(&self, entity: Entity) -> bool {
        self.plan.is_sparse(entity, &self.feature)
    }

    /// True if an object in place of the feature is refused.
    fn takes_no_object(&self, entity: Entity) -> bool {
        self.plan.takes_no_object(entity, &self.feature)
    }

    fn feature_path(&self) -> String {
        format!("{}[{:?}]", self.path, self.feature)
    }
}

/// The kind of position at which a value is parsed.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Request,
    RequestId,
    RoutingKey,
    Treatments,
    Treatment,
    TreatmentId,
    Features(Entity),
    /// The value of a feature, or an object whose keys continue the feature's name.
    Feature(Entity),
}

impl What {
    fn expected(self) -> &'static str {
        match self {
            Self::Request | Self::Treatment | Self::Features(_) => "an object",
            Self::RequestId | Self::RoutingKey | Self::TreatmentId => "a string",
            Self::Treatments => "an array",
            Self::Feature(_) => "a value",
        }
    }
}

/// Parses a value at one position of a request.
struct Part<'e, 'p> {
    encoder: &'e mut Encoder<'p>,
    what: What,
}

impl Part<'_, '_> {
    fn unexpected<T, E: Error>(self, found: &str) -> Result<T, E> {
        let expected = self.what.expected();
        Err(self.encoder.wrong(format!("expected {expected}, found {found}")))
    }

    /// A number or a flag, which is only valid as the value of a feature.
    fn scalar<E: Error>(self, kind: Kind, found: &str) -> Result<(), E> {
        match self.what {
            What::Feature(entity) => self.encoder.put_feature(entity, kind),
            _ => self.unexpected(found),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what.expected())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.what {
            What::Request | What::Treatment => self.unexpected("null"),
            _ => Ok(()),
        }
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<(), E> {
        self.scalar(Kind::Flag(flag), "true or false")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.scalar(Kind::Integer(number), "a number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        let kind = i64::try_from(number).map_or(Kind::Real(number as f64), Kind::Integer);
        self.scalar(kind, "a number")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.scalar(Kind::Real(number), "a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.what {
            What::Feature(entity) => self.encoder.put_feature(entity, Kind::Text(text.to_owned())),
            What::RequestId | What::RoutingKey | What::TreatmentId => {
                self.encoder.text(self.what, text);
                Ok(())
            }
            _ => self.unexpected("a string"),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        match self.what {
            What::Treatments => treatments(self.encoder, items),
            What::Feature(entity) => list(self.encoder, entity, items),
            _ => self.unexpected("an array"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        match self.what {
            What::Request => request(self.encoder, members),
            What::Treatment => treatment(self.encoder, members),
            What::Feature(entity) if self.encoder.is_sparse(entity) => {
                sparse_list(self.encoder, entity, members)
            }
            What::Feature(entity) if self.encoder.takes_no_object(entity) => {
                let message = "an object, where a value is expected".to_owned();
                Err(self.encoder.refused((Reason::FeatureType, message)))
            }
            What::Features(entity) | What::Feature(entity) => {
                features(self.encoder, entity, members)
            }
            _ => self.unexpected("an object"),
        }
    }
}

fn request<'de, A: MapAccess<'de>>(
    encoder: &mut Encoder<'_>,
    mut members: A,
) -> Result<(), A::Error> {
    let (mut given, mut options) = (0, None);
    while let Some(key) = members.next_key::<String>()? {
        encoder.key(REQUEST, &mut given, &key)?;
        let members = &mut members;
        encoder.at(
            |path| push_key(path, &key),
            |encoder| {
                let what = match key.as_str() {
                    "model" => return model(encoder, members.next_value()?),
                    "options" => {
                        options = Some(members.next_value::<Small>()?);
                        return Ok(());
                    }
                    "request_id" => What::RequestId,
                    "routing_key" => What::RoutingKey,
                    "treatments" => What::Treatments,
                    _ => {
                        members.next_value_seed(Part {
                            encoder,
                            what: What::Features(Entity::User),
                        })?;
                        encoder.put_part(USER);
                        return Ok(());
                    }
                };
                members.next_value_seed(Part { encoder, what })
            },
        )?;
    }
    put_options(encoder, options)
}

fn model<E: Error>(encoder: &mut Encoder<'_>, Small(value): Small) -> Result<(), E> {
    if value.is_null() {
        return Ok(());
    }
    let node = Node { path: encoder.path.clone(), value: &value };
    let model = read_model(&node).map_err(|wrong| encoder.fail(malformed(wrong)))?;
    put(PredictRequest { model: Some(model), ..PredictRequest::default() }, encoder);
    Ok(())
}

/// Writes options even if the request has none: the defaults of the JSON form differ from
/// those of protobuf.
fn put_options<E: Error>(encoder: &mut Encoder<'_>, options: Option<Small>) -> Result<(), E> {
    let mut path = encoder.path.clone();
    push_key(&mut path, "options");
    let node = options.as_ref().map(|Small(value)| Node { path, value });
    let options = read_options(node).map_err(|wrong| encoder.fail(malformed(wrong)))?;
    put(PredictRequest { options: Some(options), ..PredictRequest::default() }, encoder);
    Ok(())
}

fn put(part: PredictRequest, encoder: &mut Encoder<'_>) {
    // Growth is exact: doubling a long message for a short part would waste memory.
    encoder.message.reserve_exact(part.encoded_len());
    part.encode(&mut encoder.message).expect("a vector grows");
}

fn treatments<'de, A: SeqAccess<'de>>(
    encoder: &mut Encoder<'_>,
    mut items: A,
) -> Result<(), A::Error> {
    for index in 0_usize.. {
        let step = |path: &mut String| write!(path, "[{index}]").expect("a string grows");
        let treatment = encoder
            .at(step, |encoder| items.next_element_seed(Part { encoder, what: What::Treatment }));
        if treatment?.is_none() {
            break;
        }
        encoder.put_part(TREATMENTS);
    }
    Ok(())
}

fn treatment<'de, A: MapAccess<'de>>(
    encoder: &mut Encoder<'_>,
    mut members: A,
) -> Result<(), A::Error> {
    let mut given = 0;
    while let Some(key) = members.next_key::<String>()? {
        encoder.key(TREATMENT, &mut given, &key)?;
        let what = match key.as_str() {
            "id" => What::TreatmentId,
            _ => What::Features(Entity::Treatment),
        };
        encoder.at(
            |path| push_key(path, &key),
            |encoder| members.next_value_seed(Part { encoder, what }),
        )?;
    }
    Ok(())
}

/// Parses the features of an object; the keys of nested objects are joined to the names.
fn features<'de, A: MapAccess<'de>>(
    encoder: &mut Encoder<'_>,
    entity: Entity,
    mut members: A,
) -> Result<(), A::Error> {
    let (parent, longest) = (encoder.feature.len(), encoder.plan.longest_name(entity));
    while let Some(key) = members.next_key::<String>()? {
        if parent <= longest {
            push_key(&mut encoder.feature, &key);
        }
        members.next_value_seed(Part { encoder, what: What::Feature(entity) })?;
        encoder.feature.truncate(parent);
    }
    Ok(())
}

/// A feature with several values.
fn list<'de, A: SeqAccess<'de>>(
    encoder: &mut Encoder<'_>,
    entity: Entity,
    mut items: A,
) -> Result<(), A::Error> {
    let Some(dtype) = encoder.plan.dtype_of(entity, &encoder.feature) else {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        encoder.put_unknown(entity);
        return Ok(());
    };
    let mut list = List::default();
    while let Some(element) = items.next_element()? {
        list.push(element);
    }
    let kind = list.kind(dtype).map_err(|refused| encoder.refused::<A::Error>(refused))?;
    encoder.put_feature(entity, kind)
}

/// A feature with ids and weights.
fn sparse_list<'de, A: MapAccess<'de>>(
    encoder: &mut Encoder<'_>,
    entity: Entity,
    members: A,
) -> Result<(), A::Error> {
    let list = sparse::read(members)?.map_err(|refused| encoder.refused::<A::Error>(refused))?;
    encoder.put_feature(entity, Kind::Sparse(list))
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// The number of the protobuf field with an entity's map of features.
fn features_field(entity: Entity) -> u32 {
    if entity == Entity::User { 1 } else { 2 }
}

/// Adds a feature to an entity's map of features.
fn put_feature(entity: Entity, feature: &str, kind: Kind, to: &mut Vec<u8>) {
    put_entry(features_field(entity), feature, &Value { kind: Some(kind) }, to);
}
