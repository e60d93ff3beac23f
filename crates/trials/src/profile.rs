//! A model's profile.json, checked against its metadata.json.

use std::sync::Arc;

use outrigger_canary::{Entity, Feature, FeatureValue, Profile};
use outrigger_core::{Failure, Reason};
use outrigger_features::{Arrived, Limits, Plan, Sent, Slot, metadata};

/// The distributions of a model's features in training, and the positions of the features in
/// requests.
#[derive(Debug)]
pub struct Profiled {
    pub(crate) profile: Arc<Profile>,
    slots: Vec<Slot>,
}

impl Profiled {
    /// Reads the profile.json of a model.
    ///
    /// # Errors
    /// IMAGE_INVALID: the file is no profile, or names a feature that metadata.json does not
    /// have.
    pub fn read(json: &[u8], plan: &Plan) -> Result<Self, Failure> {
        let invalid = |problem: String| {
            Failure::new(Reason::ImageInvalid, format!("profile.json: {problem}"))
        };
        let profile = Profile::parse(json).map_err(|error| invalid(error.to_string()))?;
        let slots = profile.features().iter().map(|feature| slot(feature, plan));
        let slots = slots.collect::<Result<_, _>>().map_err(invalid)?;
        Ok(Self { profile: Arc::new(profile), slots })
    }

    /// The number of features.
    pub fn features(&self) -> usize {
        self.slots.len()
    }

    /// The categories of a request's features; for treatment features, those of one treatment drawn
    /// by `random`. `None` if it has no treatments or is not a request for this model.
    pub(crate) fn categories(
        &self,
        plan: &Plan,
        request: &Arrived,
        random: u64,
        limits: &Limits,
    ) -> Option<Vec<usize>> {
        let sent = plan.sent(request, &self.slots, random, limits).ok()??;
        let values = sent.into_iter().map(|value| match value {
            Sent::Missing => FeatureValue::Missing,
            Sent::OutOfVocabulary => FeatureValue::OutOfVocabulary,
            Sent::Number(number) => FeatureValue::Number(number),
            Sent::Word(word) => FeatureValue::Word(word),
        });
        let features = self.profile.features().iter();
        Some(features.zip(values).map(|(feature, value)| feature.category(value)).collect())
    }
}

fn slot(feature: &Feature, plan: &Plan) -> Result<Slot, String> {
    let name = feature.name();
    let (entity, whose) = match feature.entity() {
        Entity::User => (metadata::Entity::User, "user"),
        Entity::Treatment => (metadata::Entity::Treatment, "treatment"),
    };
    let slot = plan.slot(entity, name).ok_or_else(|| {
        format!("metadata.json has no feature {name:?} of a {whose} with a number or a word")
    })?;
    match (feature.has_words(), plan.has_words(slot)) {
        (true, false) => Err(format!("feature {name:?} has words here, numbers in metadata.json")),
        (false, true) => Err(format!("feature {name:?} has numbers here, words in metadata.json")),
        _ => Ok(slot),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outrigger_features::{Metadata, json};
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    fn plan() -> Plan {
        let metadata = json!({
            "schema": "outrigger.dev/model/v1",
            "framework": "tensorflow",
            "inputs": [
                {"tensor": "age", "entity": "user", "dtype": "float32",
                 "features": [{"name": "age", "default": 40}, {"name": "v", "length": 2, "required": true}]},
                {"tensor": "channel", "entity": "user", "dtype": "int64", "features": [
                    {"name": "channel", "vocabulary": ["phone", "web"], "out_of_vocabulary": 2,
                     "default": "web"}]},
                {"tensor": "offer", "entity": "treatment", "dtype": "float32",
                 "features": [{"name": "price", "missing": "nan"}]},
            ],
            "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}],
        });
        Plan::compile(Metadata::parse(metadata.to_string().as_bytes()).expect("valid"))
    }

    fn read(features: &serde_json::Value) -> Result<Profiled, Failure> {
        let file = json!({"schema": "outrigger.dev/profile/v1", "features": features});
        Profiled::read(file.to_string().as_bytes(), &plan())
    }

    #[test]
    fn a_request_falls_into_its_categories() {
        let profiled = read(&json!([
            {"name": "channel", "words": ["phone", "web"], "shares": [0.5, 0.5]},
            {"name": "age", "edges": [30], "shares": [0.5, 0.5]},
            {"name": "price", "entity": "treatment", "edges": [1], "shares": [0.5, 0.5]},
        ]));
        let profiled = profiled.expect("it fits");
        let plan = plan();
        let request = json!({
            "model": {"name": "m"}, "user": {"channel": "letter", "v": [1, 2]},
            "treatments": [{"id": "a", "features": {"price": 3}}],
        });
        let body = Bytes::from(request.to_string());
        let message = json::predict_request(&plan, &body).expect("a request").encode_to_vec();
        let document = Arrived::Json(json::Request::read(body).expect("a request"));
        for request in [Bytes::from(message).into(), document] {
            let found = profiled.categories(&plan, &request, 7, &Limits::default());
            assert_eq!(found, Some(vec![1, 0, 3]), "unknown, missing, and above the edge");
        }
        let no_request = Bytes::from_static(b"no request").into();
        assert_eq!(profiled.categories(&plan, &no_request, 7, &Limits::default()), None);
    }

    #[test]
    fn rows_that_do_not_fit_the_metadata_are_refused() {
        for (feature, problem) in [
            (json!({"name": "agee", "edges": [], "shares": [1]}), "\"agee\""),
            (json!({"name": "price", "edges": [], "shares": [1]}), "of a user"),
            (json!({"name": "v", "edges": [], "shares": [1]}), "\"v\""),
            (json!({"name": "age", "words": ["x"], "shares": [1]}), "words here"),
            (json!({"name": "channel", "edges": [], "shares": [1]}), "numbers here"),
            (json!({"name": "age", "edges": [], "shares": [0.5]}), "add up"),
        ] {
            let failure = read(&json!([feature])).expect_err(problem);
            assert_eq!(failure.reason, Reason::ImageInvalid);
            assert!(failure.message.starts_with("profile.json: "), "{failure}");
            assert!(failure.message.contains(problem), "{failure}");
        }
    }
}
