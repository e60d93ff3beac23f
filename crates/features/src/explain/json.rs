//! The contributions of features to margins as JSON.

use outrigger_core::ContributionSize;
use outrigger_json::writer::{Object, array, number, put};
use outrigger_proto::outrigger::v1::{ContributingFeature, Contributions, ServedModel};

use super::contributions::width;
use crate::{
    json::writer::{ANSWER, NUMBER, ROW, error_room, write_error, write_model},
    packed::{Packed, UserRows},
    plan::Plan,
};

impl Plan {
    /// About as many bytes as [`Self::contributions_json`] writes, and at least so many if its texts
    /// need no escapes.
    pub fn contributions_room(&self, packed: &Packed, size: ContributionSize) -> usize {
        let named = self.features().filter(|_| !size.by_id);
        let features = named.map(|feature| 2 * ROW + feature.name.len());
        let users = packed.users.iter().map(|user| {
            let ids = user.ids.as_ref().map_or(0, |ids| ids.size());
            let errors: usize = user.errors.iter().map(error_room).sum();
            user.request_id.len() + ids + errors
        });
        let of_margins = size.margins.saturating_add(1).saturating_mul(ROW);
        let row = size.of_row().saturating_mul(NUMBER).saturating_add(of_margins);
        let ids = size.ids().saturating_mul(ID);
        let texts = features.sum::<usize>() + users.sum::<usize>();
        self.rows(packed).saturating_mul(row).saturating_add(ids).saturating_add(ANSWER + texts)
    }

    /// The contributions to the margins of a packed call of one request as JSON. The keys of each
    /// object are in alphabetical order, and those without content are left out.
    pub fn contributions_json(
        &self,
        packed: &Packed,
        contributions: &Contributions,
        model: &ServedModel,
    ) -> Vec<u8> {
        let Contributions { features, margins, values, columns: ids } = contributions;
        let (user, columns) = (&packed.users[0], width(contributions));
        let (margins, by_id) = ((*margins as usize).max(1), features.is_empty());
        let size = ContributionSize { margins, columns: columns - 1, by_id };
        let of_row = size.of_row();
        let mut out = Vec::with_capacity(self.contributions_room(packed, size));
        let mut answer = Object::open(&mut out);
        if by_id {
            array(ids.iter(), answer.key("columns"), put);
        }
        array(features.iter(), answer.key("features"), write_feature);
        if self.joins.is_empty() {
            write_margins(values, columns, answer.key("margins"));
        }
        write_model(model, answer.key("model"));
        answer.text("request_id", &user.request_id);
        if !user.errors.is_empty() {
            array(user.errors.iter(), answer.key("treatment_errors"), write_error);
        }
        if !self.joins.is_empty() {
            let rows = user.positions().into_iter().zip(values.chunks(of_row)).enumerate();
            array(rows, answer.key("treatments"), |(row, (index, values)), out| {
                let mut treatment = Object::open(out);
                treatment.text("id", id(user, row));
                if !user.errors.is_empty() {
                    put(index, treatment.key("index"));
                }
                write_margins(values, columns, treatment.key("margins"));
                treatment.close();
            });
        }
        answer.close();
        out
    }
}

/// Bytes of the id of a column, with the comma behind it, at most.
const ID: usize = 21;

/// The id of a packed treatment; empty if it has none.
fn id(user: &UserRows, row: usize) -> &str {
    let id = user.ids.as_ref().map_or(&[][..], |ids| ids.get(row));
    str::from_utf8(id).unwrap_or_default()
}

fn write_feature(feature: &ContributingFeature, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.text("entity", &feature.entity);
    object.text("feature", &feature.feature);
    put(feature.length, object.key("length"));
    put(feature.offset, object.key("offset"));
    object.close();
}

/// Writes the margins of a row. Each has `columns` values, of which the last one is the base value.
fn write_margins(values: &[f32], columns: usize, out: &mut Vec<u8>) {
    let float = |value: &f32, out: &mut Vec<u8>| number(&value.to_le_bytes(), out);
    array(values.chunks_exact(columns), out, |margin, out| {
        let mut object = Object::open(out);
        float(&margin[columns - 1], object.key("base"));
        array(margin[..columns - 1].iter(), object.key("contributions"), float);
        object.close();
    });
}

#[cfg(test)]
mod tests {
    use outrigger_core::{DType, Explanation};
    use outrigger_proto::outrigger::v1::{
        OnTreatmentError, PredictRequest, ResponseOptions, Treatment, Value,
        value::Kind::{Number, Numbers},
    };
    use serde_json::json;

    use super::*;
    use crate::{
        fixtures::{joined, number, output, pack, treatment, user},
        metadata::Entity,
    };

    fn asked() -> PredictRequest {
        let vector = outrigger_proto::outrigger::v1::NumberList { values: vec![0.5, 1.5] };
        let options = ResponseOptions {
            treatment_ids: true,
            on_treatment_error: OnTreatmentError::Skip.into(),
            ..ResponseOptions::default()
        };
        PredictRequest {
            request_id: "r \"1\"".into(),
            user: Some(user([("embedding", Numbers(vector))])),
            treatments: vec![
                treatment("a", [("discount", number(0.25))]),
                treatment("b", []),
                Treatment {
                    id: String::new(),
                    features: [("discount".into(), Value { kind: Some(Number(1.0)) })].into(),
                },
            ],
            options: Some(options),
            ..PredictRequest::default()
        }
    }

    #[test]
    fn treatments_have_their_margins_and_left_out_ones_are_reported() {
        let plan = joined();
        let packed = pack(&plan, &[asked()]).expect("packs");
        let values: Vec<_> = (0..32).map(|at| at as f32 / 4.0).collect();
        let tensor = output("contributions", &[2, 2, 8], &values);
        let explanation = Explanation { values: tensor, columns: None };
        let contributions = plan.contributions(2, explanation).expect("contributions");
        let model = ServedModel { name: "m".to_owned(), ..ServedModel::default() };
        let written = plan.contributions_json(&packed, &contributions, &model);
        let size = ContributionSize { margins: 2, columns: 7, by_id: false };
        assert!(written.len() <= plan.contributions_room(&packed, size), "{}", written.len());
        let found: serde_json::Value = serde_json::from_slice(&written).expect("JSON");
        let margin = |at: usize| {
            let values = &values[at * 8..][..8];
            json!({"base": values[7], "contributions": &values[..7]})
        };
        assert_eq!(found["model"], json!({"name": "m"}));
        assert_eq!(found["request_id"], "r \"1\"");
        assert_eq!(found["features"].as_array().map(Vec::len), Some(6));
        let vector = json!({"entity": "user", "feature": "embedding", "length": 2, "offset": 1});
        assert_eq!(found["features"][1], vector);
        let treatments = json!([
            {"id": "a", "index": 0, "margins": [margin(0), margin(1)]},
            {"index": 2, "margins": [margin(2), margin(3)]},
        ]);
        assert_eq!(found["treatments"], treatments);
        assert_eq!(found["treatment_errors"][0]["reason"], "FEATURE_MISSING");
        assert_eq!((found.get("margins"), found.get("columns")), (None, None));
    }

    #[test]
    fn columns_by_id_are_listed_once() {
        let plan = joined();
        let packed = pack(&plan, &[asked()]).expect("packs");
        let values: Vec<_> = (0..6).map(|at| -0.25 * at as f32).collect();
        let columns = vec![7, u64::MAX];
        let tensor = output("contributions", &[2, 1, 3], &values);
        let explanation = Explanation { values: tensor, columns: Some(columns.clone()) };
        let contributions = plan.contributions(2, explanation).expect("contributions");
        let written = plan.contributions_json(&packed, &contributions, &ServedModel::default());
        let size = ContributionSize { margins: 1, columns: 2, by_id: true };
        assert!(written.len() <= plan.contributions_room(&packed, size), "{}", written.len());
        let found: serde_json::Value = serde_json::from_slice(&written).expect("JSON");
        assert_eq!((&found["columns"], &found["features"]), (&json!(columns), &json!([])));
        let margin = json!([{"base": values[2], "contributions": &values[..2]}]);
        assert_eq!(found["treatments"][0]["margins"], margin);
        let many = ContributionSize { columns: usize::MAX, ..size };
        assert_eq!(plan.contributions_room(&packed, many), usize::MAX, "a bound, not an overflow");
    }

    #[test]
    fn a_model_that_scores_users_has_their_margins() {
        let mut metadata = joined().metadata.clone();
        metadata.inputs.truncate(1);
        metadata.inputs[0].entity = Entity::User;
        metadata.inputs[0].features.retain(|feature| feature.entity == Entity::User);
        let plan = Plan::compile(metadata);
        let packed = pack(&plan, &[asked()]).expect("packs");
        assert_eq!((packed.tensors[0].dtype, plan.rows(&packed)), (DType::Float32, 1));
        let tensor = output("contributions", &[1, 1, 5], &[1.0, 2.0, 3.0, 4.0, 0.5]);
        let explanation = Explanation { values: tensor, columns: None };
        let contributions = plan.contributions(1, explanation).expect("contributions");
        let written = plan.contributions_json(&packed, &contributions, &ServedModel::default());
        let found: serde_json::Value = serde_json::from_slice(&written).expect("JSON");
        let margin = json!({"base": 0.5, "contributions": [1.0, 2.0, 3.0, 4.0]});
        assert_eq!(found["margins"], json!([margin]));
        assert_eq!(found.get("treatments"), None);
    }
}
