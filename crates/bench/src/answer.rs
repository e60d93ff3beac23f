//! Whether an answer holds what was asked for. Looked at before the run, of one
//! answer a request: during the run it is enough that a message came.

use bytes::Bytes;
use outrigger_proto::{
    outrigger::v1::{BatchPredictResponse, PredictResponse, predict_response::Output},
    tensorflow::serving,
};
use prost::Message as _;
use serde_json::Value;

use crate::{failure::Failure, method::Method};

type Checked = Result<(), Failure>;

/// Checks the answer of `users` users; with `treatments`, so many scores are
/// wanted of each.
pub(crate) fn check(
    method: Method,
    answer: Bytes,
    users: usize,
    treatments: Option<usize>,
) -> Checked {
    let unreadable = |error: prost::DecodeError| Failure::invalid(error.to_string());
    match method {
        Method::Predict => {
            check_output(&PredictResponse::decode(answer).map_err(unreadable)?, treatments)
        }
        Method::BatchPredict => {
            let answer = BatchPredictResponse::decode(answer).map_err(unreadable)?;
            expect("users", users, answer.responses.len())?;
            answer.responses.iter().try_for_each(|one| check_output(one, treatments))
        }
        Method::Json => check_json(&answer, treatments),
        Method::Engine => {
            let answer = serving::PredictResponse::decode(answer).map_err(unreadable)?;
            if answer.outputs.is_empty() { Err(Failure::invalid("no outputs")) } else { Ok(()) }
        }
    }
}

fn check_output(answer: &PredictResponse, treatments: Option<usize>) -> Checked {
    match (&answer.output, treatments) {
        (Some(Output::Scores(list)), Some(wanted)) => expect("scores", wanted, list.values.len()),
        (Some(_), _) => Ok(()),
        (None, _) => Err(Failure::invalid("no scores")),
    }
}

fn check_json(answer: &[u8], treatments: Option<usize>) -> Checked {
    let answer: Value =
        serde_json::from_slice(answer).map_err(|error| Failure::invalid(error.to_string()))?;
    match (answer["scores"].as_array(), treatments) {
        (Some(scores), Some(wanted)) => expect("scores", wanted, scores.len()),
        (None, _) if answer["score"].is_null() => Err(Failure::invalid("no scores")),
        _ => Ok(()),
    }
}

fn expect(what: &str, wanted: usize, found: usize) -> Checked {
    if wanted == found {
        return Ok(());
    }
    Err(Failure::invalid(format!("{found} {what}, {wanted} are expected")))
}
