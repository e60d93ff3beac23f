//! Builds response messages from the engine's outputs.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
};

use outrigger_core::{Failure, Reason, Tensor};
use outrigger_proto::outrigger::v1::{
    PredictResponse, ScoreList, ServedModel, TreatmentError, predict_response,
};

use super::output::Checked;
use crate::{
    metadata::{Output, OutputKind},
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
    user_index: usize,
    user: &UserRows,
    outputs: &HashMap<usize, Checked<'_>>,
) -> Result<PredictResponse, Failure> {
    let values_of = |index: &usize| {
        let output = &plan.metadata.outputs[*index];
        match outputs.get(index) {
            Some(checked) => OutputValues::read(output, checked, user_index, user),
            None => Ok(OutputValues {
                output,
                values: Vec::new(),
                left_out: Vec::new(),
                integers: Vec::new(),
            }),
        }
    };
    let lists = user.outputs.iter().map(values_of).collect::<Result<Vec<_>, Failure>>()?;
    let mut left_out = BTreeMap::new();
    for (row, message) in lists.iter().flat_map(|list| &list.left_out) {
        left_out.entry(*row).or_insert_with(|| message.clone());
    }
    let (score, others) = lists.split_first().expect("at least one output is chosen");
    let order = rank(score, user, &left_out);
    let mut treatment_errors = user.errors.clone();
    treatment_errors.extend(left_out.into_iter().map(|(row, message)| {
        TreatmentError {
            index: user.positions()[row],
            id: user
                .ids
                .as_ref()
                .map_or_else(String::new, |ids| String::from_utf8_lossy(ids.get(row)).into_owned()),
            reason: Reason::ScoresInvalid.as_str().to_owned(),
            message,
            feature: String::new(),
        }
    }));
    treatment_errors.sort_by_key(|error| error.index);
    let mut response = PredictResponse {
        request_id: user.request_id.to_string(),
        treatment_errors,
        ..PredictResponse::default()
    };
    match score.output.kind {
        OutputKind::Single => {
            let value = score.values[score.output.score_column];
            response.output = Some(predict_response::Output::Score(value));
            if score.output.width > 1 || !score.integers.is_empty() {
                response.score_values = Some(score.single());
            }
        }
        OutputKind::PerTreatment => {
            let list = score.list(order.as_deref(), user);
            response.output = Some(predict_response::Output::Scores(list));
        }
    }
    for values in others {
        let list = match values.output.kind {
            OutputKind::Single => values.single(),
            OutputKind::PerTreatment => values.list(order.as_deref(), user),
        };
        response.additional_outputs.insert(values.output.name.as_ref().to_owned(), list);
    }
    Ok(response)
}

/// The values of an output for one user, row-major.
struct OutputValues<'p> {
    output: &'p Output,
    values: Vec<f32>,
    /// The rows that are left out, with the reasons.
    left_out: Vec<(usize, String)>,
    /// The exact values of an output of integers.
    integers: Vec<i64>,
}

impl<'p> OutputValues<'p> {
    fn read(
        output: &'p Output,
        checked: &Checked<'_>,
        index: usize,
        user: &UserRows,
    ) -> Result<Self, Failure> {
        let (values, left_out) = match output.kind {
            OutputKind::PerTreatment if user.skip => checked.kept(index, user.kept()),
            _ => (checked.values(index, user.kept())?, Vec::new()),
        };
        let integers = checked.integers(index, user.kept());
        Ok(Self { output, values, left_out, integers })
    }

    /// The order of two rows by their scores, the higher one first.
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let [a, b] = [a, b].map(|row| row * self.output.width + self.output.score_column);
        match self.integers.is_empty() {
            true => self.values[b].partial_cmp(&self.values[a]).unwrap_or(Ordering::Equal),
            false => self.integers[b].cmp(&self.integers[a]),
        }
    }

    fn rows(&self) -> usize {
        self.values.len() / self.output.width
    }

    /// The values of these rows.
    fn select<T: Copy>(&self, values: &[T], rows: &[usize]) -> Vec<T> {
        let all: Vec<&[T]> = values.chunks(self.output.width).collect();
        rows.iter().filter_map(|row| all.get(*row)).flat_map(|row| row.iter().copied()).collect()
    }

    /// The values of a `single` output as a list.
    fn single(&self) -> ScoreList {
        ScoreList {
            width: self.output.width as u32,
            score_column: self.output.score_column as u32,
            values: self.values.clone(),
            integers: self.integers.clone(),
            ..ScoreList::default()
        }
    }

    /// The values of a user's packed treatments as a list, in `order` if it is given.
    fn list(&self, order: Option<&[usize]>, user: &UserRows) -> ScoreList {
        let indexed = order.is_some() || user.kept() < user.requested;
        let all: Vec<usize>;
        let order = match order {
            Some(order) => order,
            None => {
                all = (0..self.rows()).collect();
                &all
            }
        };
        let positions = user.positions();
        let id =
            |row: &usize| String::from_utf8_lossy(user.ids.as_ref()?.get(*row)).into_owned().into();
        ScoreList {
            values: self.select(&self.values, order),
            treatment_ids: order.iter().filter_map(id).collect(),
            indices: order.iter().filter(|_| indexed).map(|row| positions[*row]).collect(),
            width: self.output.width as u32,
            integers: self.select(&self.integers, order),
            score_column: self.output.score_column as u32,
        }
    }
}

/// The positions of the `top_k` highest scores, best first; ties keep their order. `None`
/// if all scores are returned in request order.
fn rank(
    score: &OutputValues<'_>,
    user: &UserRows,
    left_out: &BTreeMap<usize, String>,
) -> Option<Vec<usize>> {
    if user.top_k == 0 && left_out.is_empty() {
        return None;
    }
    let rows = (0..user.kept()).filter(|row| !left_out.contains_key(row));
    let mut order: Vec<_> = rows.collect();
    if user.top_k == 0 {
        return Some(order);
    }
    order.sort_by(|a, b| score.compare(*a, *b));
    order.truncate(user.top_k);
    Some(order)
}
