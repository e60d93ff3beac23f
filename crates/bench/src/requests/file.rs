//! Reads a request from a file.

use std::{fs, ops::RangeInclusive, path::Path};

use bytes::{Bytes, BytesMut};
use outrigger_proto::{
    outrigger::v1::{OnTreatmentError, PredictRequest},
    raw::read::{MAX_DEPTH, Malformed, Reader},
};
use prost::Message as _;
use serde_json::{Map, Value};

use super::Form;
use crate::Error;

/// `PredictRequest.model`.
const MODEL: u32 = 1;

/// A request in either form, without its model.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// The JSON of POST /v1/predict.
    Json(Map<String, Value>),
    /// An encoded `PredictRequest`; its fields keep their order.
    Encoded { bytes: Bytes, form: Form, treatments: usize, scores: RangeInclusive<usize> },
}

impl Content {
    pub(super) fn form(&self) -> Form {
        match self {
            Self::Json(_) => Form::Json,
            Self::Encoded { form, .. } => *form,
        }
    }

    pub(super) fn treatments(&self) -> usize {
        match self {
            Self::Json(request) => {
                request.get("treatments").and_then(Value::as_array).map_or(0, Vec::len)
            }
            Self::Encoded { treatments, .. } => *treatments,
        }
    }

    /// Expected number of scores.
    pub(super) fn scores(&self) -> RangeInclusive<usize> {
        match self {
            Self::Json(request) => {
                let option = |name| request.get("options").and_then(|options| options.get(name));
                let best = option("top_k").and_then(Value::as_u64).unwrap_or_default();
                let skip = option("on_treatment_error").is_some_and(|choice| choice == "skip");
                scores(self.treatments(), best, skip)
            }
            Self::Encoded { scores, .. } => scores.clone(),
        }
    }
}

/// Expected number of scores: one per treatment, at most `best` if that is not 0, and
/// possibly fewer if treatments may be skipped.
fn scores(treatments: usize, best: u64, skip: bool) -> RangeInclusive<usize> {
    let best = usize::try_from(best).ok().filter(|best| *best > 0);
    let most = best.map_or(treatments, |best| best.min(treatments));
    if skip { 0..=most } else { most..=most }
}

/// Reads a file: JSON if it begins with a brace, which no encoded message does; otherwise
/// an encoded `PredictRequest`.
///
/// # Errors
/// The file cannot be read, or has neither form.
pub(super) fn read(path: &Path) -> Result<Content, Error> {
    let bytes = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let unusable = |error: &dyn std::fmt::Display| {
        Error::Request(format!("{} is not a request: {error}", path.display()))
    };
    if bytes.trim_ascii_start().first() == Some(&b'{') {
        return serde_json::from_slice(&bytes).map(Content::Json).map_err(|error| unusable(&error));
    }
    encoded(&bytes).map_err(|error| unusable(&*error))
}

fn encoded(bytes: &[u8]) -> Result<Content, Box<dyn std::error::Error>> {
    let request = PredictRequest::decode(bytes)?;
    let (form, treatments) = match &request.treatment_table {
        Some(table) => (Form::Columnar, table.ids.len().max(table.count as usize)),
        None => (Form::KeyValue, request.treatments.len()),
    };
    let options = request.options.unwrap_or_default();
    let skip = options.on_treatment_error() == OnTreatmentError::Skip;
    let scores = scores(treatments, options.top_k.into(), skip);
    Ok(Content::Encoded { bytes: without_model(bytes)?, form, treatments, scores })
}

fn without_model(request: &[u8]) -> Result<Bytes, Malformed> {
    let (mut rest, mut kept) = (Reader::new(request), BytesMut::with_capacity(request.len()));
    while !rest.is_empty() {
        let field = rest.rest();
        let (tag, wire_type) = rest.key()?;
        rest.skip(tag, wire_type, MAX_DEPTH)?;
        if tag != MODEL {
            kept.extend_from_slice(&field[..field.len() - rest.rest().len()]);
        }
    }
    Ok(kept.freeze())
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{ModelSelector, Treatment};

    use super::*;

    fn content(bytes: &[u8]) -> Result<Content, Error> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        read(file.path())
    }

    #[test]
    fn a_message_keeps_all_fields_except_its_model() {
        let model = Some(ModelSelector { name: "churn".to_owned(), version: None });
        let treatments = vec![Treatment { id: "a".to_owned(), ..Default::default() }];
        let request = PredictRequest { model, treatments, ..Default::default() };
        let kept = PredictRequest { model: None, ..request.clone() }.encode_to_vec();
        let (bytes, form) = (kept.into(), Form::KeyValue);
        let expected = Content::Encoded { bytes, form, treatments: 1, scores: 1..=1 };
        assert_eq!(content(&request.encode_to_vec()).unwrap(), expected);
    }

    #[test]
    fn json_is_recognised_by_its_brace() {
        let Content::Json(map) = content(b"\n {\"user\": {}}").unwrap() else { panic!("JSON") };
        assert!(map.contains_key("user"));
    }

    #[test]
    fn other_content_is_refused() {
        for bad in ["{", "model: churn"] {
            let error = content(bad.as_bytes()).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("is not a request"), "{error}");
        }
    }
}
