//! A test request, generated from metadata alone.

use std::collections::HashMap;

use outrigger_core::DType;
use outrigger_proto::outrigger::v1::{
    FeatureMap, IntegerList, NumberList, PredictRequest, SparseList, TextList, Treatment, Value,
    predict_request::User, value::Kind,
};

use crate::{
    metadata::{Absence, Encoding, Entity, Feature, Input, Size, Words},
    plan::Plan,
};

impl Plan {
    /// A valid request for one user and one treatment: required features get a made-up
    /// value (1 for floats, 0 for integers, the first word of a vocabulary), all others
    /// are left to their default. `model` is left unset.
    ///
    /// It tests that a model answers at all, not that its scores are good.
    pub fn smoke_request(&self) -> PredictRequest {
        let required = |feature: &Feature| feature.absence == Absence::Required;
        let treatment = self.made_up(Entity::Treatment, 1.0, required);
        PredictRequest {
            request_id: "smoke".into(),
            user: Some(User::UserFeatures(FeatureMap {
                features: self.made_up(Entity::User, 1.0, required),
            })),
            treatments: vec![Treatment { id: "smoke".into(), features: treatment }],
            ..PredictRequest::default()
        }
    }

    /// As [`Self::smoke_request`], with a second treatment in which all features have a made-up
    /// value (2 for floats): a model that compares treatments scores them differently.
    pub fn varied_smoke_request(&self) -> PredictRequest {
        let mut request = self.smoke_request();
        let features = self.made_up(Entity::Treatment, 2.0, |_| true);
        request.treatments.push(Treatment { id: "varied".into(), features });
        request
    }

    fn made_up(
        &self,
        entity: Entity,
        number: f32,
        is_sent: impl Fn(&Feature) -> bool,
    ) -> HashMap<String, Value> {
        let features = self.metadata.features_of(entity);
        let sent = features.filter(|(_, feature)| is_sent(feature));
        let value = |(input, feature): (&Input, &Feature)| {
            let kind = Some(made_up(input.dtype, feature, number));
            (feature.name.as_ref().to_owned(), Value { kind })
        };
        sent.map(value).collect()
    }
}

fn made_up(dtype: DType, feature: &Feature, number: f32) -> Kind {
    match feature.size {
        Size::WeightOf(_) => return Kind::Number(number),
        Size::Sparse => return Kind::Sparse(made_up_sparse(feature, number)),
        Size::Exact | Size::Padded(_) | Size::Ragged => {}
    }
    let length = if feature.size == Size::Exact { feature.length } else { 1 };
    let numbers = || Kind::Numbers(NumberList { values: vec![number; length] });
    let integers = |value| Kind::Integers(IntegerList { values: vec![value; length] });
    let texts = |text: &str| Kind::Texts(TextList { values: vec![text.to_owned(); length] });
    match (&feature.encoding, dtype) {
        (Encoding::Vocabulary { words: Words::Texts(words), .. }, _) => texts(&words[0]),
        (Encoding::Vocabulary { words: Words::Integers(words), .. }, _) => integers(words[0]),
        (Encoding::HashBuckets(_), _) | (Encoding::Plain, DType::String) => texts(""),
        (Encoding::Plain, DType::Float32 | DType::Float64) => numbers(),
        (Encoding::Plain, _) => integers(0),
    }
}

fn made_up_sparse(feature: &Feature, weight: f32) -> SparseList {
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    match &feature.encoding {
        Encoding::Plain => ids.push(0),
        Encoding::HashBuckets(_) => names.push(String::new()),
        Encoding::Vocabulary { words: Words::Texts(words), .. } => {
            names.push(words[0].as_ref().to_owned());
        }
        Encoding::Vocabulary { words: Words::Integers(words), .. } => {
            ids.push(words[0].cast_unsigned());
        }
    }
    SparseList { ids, names, weights: vec![weight] }
}

#[cfg(test)]
mod tests {
    use outrigger_core::Reason;
    use prost::Message;

    use crate::{Limits, Metadata, Plan};

    #[test]
    fn a_made_up_request_packs_whatever_is_required() {
        let metadata = include_bytes!("../tests/metadata/good/everything.json");
        let plan = Plan::compile(Metadata::parse(metadata).expect("valid"));
        let request = plan.smoke_request().encode_to_vec();
        let packed = plan.pack(&[&request], &Limits::default()).expect("packs");
        assert_eq!(packed.users[0].kept(), 1);
        let varied = plan.varied_smoke_request().encode_to_vec();
        let packed = plan.pack(&[&varied], &Limits::default()).expect("packs");
        assert_eq!(packed.users[0].kept(), 2);
        let bare = plan.pack(&[b""], &Limits::default()).expect_err("features are required");
        assert_eq!(bare.reason, Reason::FeatureMissing);
    }
}
