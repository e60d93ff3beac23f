//! Checks that an answer has the requested scores. Each request is checked once before
//! the run; during the run only the arrival of a message is checked.

use std::ops::RangeInclusive;

use bytes::Bytes;
use outrigger_proto::{
    outrigger::v1::{BatchPredictResponse, PredictResponse, predict_response::Output},
    tensorflow::serving,
};
use prost::Message as _;
use serde_json::Value;

use crate::{failure::Failure, method::Method};

type Checked = Result<(), Failure>;

/// Checks the answer for `users` users, each of whom gets `scores` scores.
pub(crate) fn check(
    method: Method,
    answer: Bytes,
    users: usize,
    scores: &RangeInclusive<usize>,
) -> Checked {
    let unreadable = |error: prost::DecodeError| Failure::invalid(error.to_string());
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
        Method::Engine => {
            let answer = serving::PredictResponse::decode(answer).map_err(unreadable)?;
            if answer.outputs.is_empty() { Err(Failure::invalid("no outputs")) } else { Ok(()) }
        }
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
    let answer: Value =
        serde_json::from_slice(answer).map_err(|error| Failure::invalid(error.to_string()))?;
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
