//! Builds response messages from the engine's outputs.

use std::{cmp::Ordering, collections::HashMap};

use outrigger_core::{Failure, Tensor};
use outrigger_proto::outrigger::v1::{PredictResponse, ScoreList, ServedModel, predict_response};

use super::output::Checked;
use crate::{
    metadata::OutputKind,
    packed::{Packed, UserRows},
    plan::Plan,
};

/// One response per user, in the order of the requests; otherwise as [`Plan::answer`] and
/// [`Plan::answer_batch`].
///
/// # Errors
/// As [`Plan::answer`].
pub fn answer(
    plan: &Plan,
    packed: &Packed,
    outputs: &[Tensor],
    model: &ServedModel,
) -> Result<Vec<PredictResponse>, Failure> {
    let checked = check_outputs(plan, packed, outputs)?;
    let users = packed.users.iter().enumerate();
    let responses = users.map(|(index, user)| {
        let response = answer_user(plan, index, user, &checked)?;
        Ok(PredictResponse { model: Some(model.clone()), ..response })
    });
    responses.collect()
}

/// The requested outputs, by their positions in metadata.json.
fn check_outputs<'t>(
    plan: &Plan,
    packed: &Packed,
    outputs: &'t [Tensor],
) -> Result<HashMap<usize, Checked<'t>>, Failure> {
    let mut checked = HashMap::new();
    if !packed.needs_engine() {
        return Ok(checked);
    }
    for index in packed.users.iter().flat_map(|user| &user.outputs) {
        if !checked.contains_key(index) {
            let output = &plan.metadata.outputs[*index];
            checked
                .insert(*index, Checked::find(output, plan.metadata.is_joined(), outputs, packed)?);
        }
    }
    Ok(checked)
}

fn answer_user(
    plan: &Plan,
    index: usize,
    user: &UserRows,
    outputs: &HashMap<usize, Checked<'_>>,
) -> Result<PredictResponse, Failure> {
    let values = |output: &usize| match outputs.get(output) {
        Some(checked) => checked.values(index, user.kept()),
        None => Ok(Vec::new()),
    };
    let mut response = PredictResponse {
        request_id: user.request_id.to_string(),
        treatment_errors: user.errors.clone(),
        ..PredictResponse::default()
    };
    let (first, others) = user.outputs.split_first().expect("at least one output is chosen");
    let scores = values(first)?;
    let order = rank(&scores, user.top_k);
    response.output = Some(match plan.metadata.outputs[*first].kind {
        OutputKind::Single => predict_response::Output::Score(scores[0]),
        OutputKind::PerTreatment => {
            predict_response::Output::Scores(list(scores, order.as_deref(), user))
        }
    });
    for output in others {
        let values = values(output)?;
        let output = &plan.metadata.outputs[*output];
        let list = match output.kind {
            OutputKind::Single => ScoreList { values, width: 1, ..ScoreList::default() },
            OutputKind::PerTreatment => list(values, order.as_deref(), user),
        };
        response.additional_outputs.insert(output.name.as_ref().to_owned(), list);
    }
    Ok(response)
}

/// The positions of the `top_k` highest scores, best first; ties keep their order. `None`
/// if all scores are returned in request order.
fn rank(scores: &[f32], top_k: usize) -> Option<Vec<usize>> {
    if top_k == 0 {
        return None;
    }
    let mut order: Vec<_> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).unwrap_or(Ordering::Equal));
    order.truncate(top_k);
    Some(order)
}

/// The values of a user's packed treatments as a list, in `order` if it is given.
fn list(values: Vec<f32>, order: Option<&[usize]>, user: &UserRows) -> ScoreList {
    let indexed = order.is_some() || user.kept() < user.requested;
    let all: Vec<usize>;
    let order = match order {
        Some(order) => order,
        None => {
            all = (0..values.len()).collect();
            &all
        }
    };
    let positions = user.positions();
    let id =
        |row: &usize| String::from_utf8_lossy(user.ids.as_ref()?.get(*row)).into_owned().into();
    ScoreList {
        values: order.iter().map(|row| values[*row]).collect(),
        treatment_ids: order.iter().filter_map(id).collect(),
        indices: order.iter().filter(|_| indexed).map(|row| positions[*row]).collect(),
        width: 1,
    }
}
