//! Plans and requests shared by the unit tests of several modules.

use bytes::Bytes;
use outrigger_core::{Content, DType, Failure, Tensor};
use outrigger_proto::outrigger::v1::{
    FeatureMap, PredictRequest, Treatment, Value, predict_request::User, value::Kind,
};
use prost::Message;

use crate::{limits::Limits, metadata::Metadata, packed::Packed, plan::Plan};

/// The plan of the architecture's example.
pub(crate) fn plan() -> Plan {
    let json = include_bytes!("../tests/metadata/good/architecture.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

/// The plan of the example that uses every option of metadata.json.
pub(crate) fn everything() -> Plan {
    let json = include_bytes!("../tests/metadata/good/everything.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

/// The plan of the architecture's example with outputs of several columns: `class`, ranked by its
/// second one, `mood` of a user, and `rank`, which has one.
pub(crate) fn wide() -> Plan {
    let json = include_bytes!("../tests/metadata/good/wide.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

pub(crate) fn number(value: f32) -> Kind {
    Kind::Number(value)
}

pub(crate) fn text(value: &str) -> Kind {
    Kind::Text(value.to_owned())
}

fn features<const N: usize>(
    features: [(&str, Kind); N],
) -> std::collections::HashMap<String, Value> {
    let pair = |(name, kind): (&str, Kind)| (name.to_owned(), Value { kind: Some(kind) });
    features.map(pair).into()
}

pub(crate) fn user<const N: usize>(pairs: [(&str, Kind); N]) -> User {
    User::UserFeatures(FeatureMap { features: features(pairs) })
}

pub(crate) fn treatment<const N: usize>(id: &str, pairs: [(&str, Kind); N]) -> Treatment {
    Treatment { id: id.to_owned(), features: features(pairs) }
}

pub(crate) fn embedding() -> Kind {
    use outrigger_proto::outrigger::v1::NumberList;
    Kind::Numbers(NumberList { values: vec![0.5, 1.0, 1.5, 2.0] })
}

/// A request for the architecture's example with one treatment per discount, each with
/// the id `t<position>`.
pub(crate) fn request(discounts: &[f32]) -> PredictRequest {
    let treatment = |(index, discount): (usize, &f32)| {
        treatment(&format!("t{index}"), [("discount", number(*discount))])
    };
    PredictRequest {
        request_id: "r".into(),
        user: Some(user([("embedding", embedding())])),
        treatments: discounts.iter().enumerate().map(treatment).collect(),
        ..PredictRequest::default()
    }
}

/// The encoded request, leaked so that it lives as long as the tests.
pub(crate) fn encoded(request: &PredictRequest) -> &'static [u8] {
    request.encode_to_vec().leak()
}

pub(crate) fn pack(plan: &Plan, requests: &[PredictRequest]) -> Result<Packed, Failure> {
    let encoded: Vec<_> = requests.iter().map(encoded).collect();
    plan.pack(&encoded, &Limits::default())
}

/// The field paths that a failure names.
pub(crate) fn fields(failure: &Failure) -> Vec<&str> {
    failure.violations.iter().map(|violation| violation.field.as_str()).collect()
}

pub(crate) fn floats(values: &[f32]) -> Content {
    Content::Bytes(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

pub(crate) fn doubles(values: &[f64]) -> Content {
    Content::Bytes(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

pub(crate) fn ints(values: &[i32]) -> Content {
    Content::Bytes(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

pub(crate) fn longs(values: &[i64]) -> Content {
    Content::Bytes(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

pub(crate) fn strings(values: &[&'static str]) -> Content {
    Content::Strings(values.iter().map(|value| Bytes::from_static(value.as_bytes())).collect())
}

pub(crate) fn output(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
    let (name, shape) = (name.into(), shape.to_vec());
    Tensor { name, dtype: DType::Float32, shape, content: floats(values) }
}

/// The plan of a model whose inputs are joined.
pub(crate) fn joined() -> Plan {
    let json = include_bytes!("../tests/metadata/good/joined.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

/// The metadata of a model whose inputs are joined, and whose output has three columns, ranked by
/// the last one.
pub(crate) fn wide_joined() -> Metadata {
    let json = include_bytes!("../tests/metadata/good/joined.json");
    let mut metadata = Metadata::parse(json).expect("valid");
    (metadata.outputs[0].width, metadata.outputs[0].score_column) = (3, 2);
    metadata
}
