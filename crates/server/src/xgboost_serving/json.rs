//! Answers as JSON documents.

use outrigger_core::{Failure, Reason};
use outrigger_xgboost_serving::Answer;
use serde::Serialize;

use super::predict::Values;
use crate::call::Call;

/// The most bytes of a number with a comma: the longest float32 has sixteen characters.
const NUMBER: usize = 17;

/// The document of an answer: one output, whose key is left out.
#[derive(Serialize)]
struct Response<T> {
    outputs: T,
}

/// Writes the document of an answer: a list of numbers, or for each row a list of the classes'
/// scores.
pub(super) fn document(call: &Call, values: &Values<'_>) -> Result<Vec<u8>, Failure> {
    let (bytes, _) = values.scores.floats.as_chunks();
    // The numbers, their text, and the brackets of each row.
    let room = bytes.len() * (size_of::<f32>() + NUMBER) + values.rows * 3 + 32;
    call.charge_answer(room as u64)?;
    if values.answer == Answer::Index {
        return written(values.indexes()?, room);
    }
    let floats: Vec<f32> = bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    match values.answer {
        Answer::Scores => {
            let rows: Vec<_> = floats.chunks(values.scores.width.max(1)).collect();
            written(rows, room)
        }
        _ => written(floats, room),
    }
}

fn written(outputs: impl Serialize, room: usize) -> Result<Vec<u8>, Failure> {
    let mut document = Vec::with_capacity(room);
    match serde_json::to_writer(&mut document, &Response { outputs }) {
        Ok(()) => Ok(document),
        Err(error) => Err(Failure::because(Reason::Internal, &error)),
    }
}

#[cfg(test)]
mod tests;
