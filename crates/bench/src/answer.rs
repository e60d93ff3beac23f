//! Checks that an answer has the requested scores. Each request is checked once before
//! the run; during the run only the arrival of a message is checked.

use std::{ops::RangeInclusive, sync::Arc};

use bytes::Bytes;
use outrigger_oip::{InferResponse, grpc, rest};
use outrigger_proto::{
    inference::ModelInferResponse,
    outrigger::v1::{BatchPredictResponse, PredictResponse, predict_response::Output},
    tensorflow::serving,
};
use prost::Message as _;
use serde_json::Value;

use crate::{client::Answer, failure::Failure, method::Method, outgoing::Expected};

type Checked = Result<(), Failure>;

/// Checks the answer for `users` users.
pub(crate) fn check(
    method: &Method,
    answer: &Answer,
    users: usize,
    expected: &Expected,
) -> Checked {
    match expected {
        Expected::Scores(scores) => check_scores(method, answer.body.clone(), users, scores),
        Expected::Outputs(names) => check_outputs(&inference(method, answer)?, names),
    }
}

fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::invalid(error.to_string())
}

/// Checks that each user has `scores` scores.
fn check_scores(
    method: &Method,
    answer: Bytes,
    users: usize,
    scores: &RangeInclusive<usize>,
) -> Checked {
    match method {
        Method::Predict => {
            check_output(&PredictResponse::decode(answer).map_err(unreadable)?, scores)
        }
        Method::BatchPredict => {
            let answer = BatchPredictResponse::decode(answer).map_err(unreadable)?;
            expect("users", &(users..=users), answer.responses.len())?;
            answer.responses.iter().try_for_each(|one| check_output(one, scores))
        }
        Method::Json => check_json(&answer, scores),
        Method::Engine | Method::Infer | Method::InferHttp(..) => {
            let answer = serving::PredictResponse::decode(answer).map_err(unreadable)?;
            if answer.outputs.is_empty() { Err(Failure::invalid("no outputs")) } else { Ok(()) }
        }
    }
}

/// Reads an answer of the Open Inference Protocol.
fn inference(method: &Method, answer: &Answer) -> Result<InferResponse, Failure> {
    let Answer { headers, body } = answer;
    if method == &Method::Infer {
        let message = ModelInferResponse::decode(body.clone()).map_err(unreadable)?;
        return grpc::read_response(message).map_err(unreadable);
    }
    let length = headers.get(rest::HEADER_LENGTH).map(|length| {
        let length = length.to_str().ok().and_then(|length| length.parse().ok());
        length.ok_or_else(|| Failure::invalid("the length of its JSON is no number"))
    });
    rest::read_response(body, length.transpose()?).map_err(unreadable)
}

/// Checks that the outputs are those of these names, or any if there are none, and consistent.
fn check_outputs(answer: &InferResponse, names: &[Arc<str>]) -> Checked {
    if answer.outputs.is_empty() {
        return Err(Failure::invalid("no outputs"));
    }
    answer.outputs.iter().try_for_each(|output| output.check().map_err(unreadable))?;
    let is_missing = |name: &&Arc<str>| answer.outputs.iter().all(|output| output.name != **name);
    match names.iter().find(is_missing) {
        None => Ok(()),
        Some(name) => Err(Failure::invalid(format!("no output {name:?}"))),
    }
}

fn check_output(answer: &PredictResponse, scores: &RangeInclusive<usize>) -> Checked {
    match &answer.output {
        Some(Output::Scores(list)) => expect("scores", scores, list.scores().count()),
        Some(_) => Ok(()),
        None => Err(Failure::invalid("no scores")),
    }
}

fn check_json(answer: &[u8], scores: &RangeInclusive<usize>) -> Checked {
    let answer: Value = serde_json::from_slice(answer).map_err(unreadable)?;
    match answer["scores"].as_array() {
        Some(list) => expect("scores", scores, list.len()),
        None if answer["score"].is_null() => Err(Failure::invalid("no scores")),
        None => Ok(()),
    }
}

fn expect(what: &str, wanted: &RangeInclusive<usize>, found: usize) -> Checked {
    if wanted.contains(&found) {
        return Ok(());
    }
    let at_most = if wanted.start() < wanted.end() { "at most " } else { "" };
    let most = wanted.end();
    Err(Failure::invalid(format!("{found} {what}, {at_most}{most} are expected")))
}
