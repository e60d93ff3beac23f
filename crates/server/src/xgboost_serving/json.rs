//! Predictions as JSON documents.

mod read;

use outrigger_core::{Failure, Reason};
use outrigger_features::{GivenInput, GivenRows, Limits};
use outrigger_proto::tensorflow::serving::ModelSpec;
use serde::Serialize;

use self::read::{Sink, read};
use super::{
    Input, Platform,
    predict::Values,
    request::{Answer, Asked, missing, same_rows},
    rows::{Size, Written},
};
use crate::call::Call;

impl Asked {
    /// Reads a document for the version that `spec` selects. `admit` charges the bytes that its rows
    /// will take.
    ///
    /// # Errors
    /// The request is malformed, or over a limit.
    pub(super) fn read_json(
        platform: Platform,
        spec: ModelSpec,
        document: &[u8],
        limits: &Limits,
        admit: impl FnOnce(usize) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let most = limits.max_treatments;
        let mut counted = Input::ALL.map(|input| Counted { input, most, size: Size::default() });
        let found = read(document, &mut counted)?;
        let answer = Answer::of(platform, found.options)?;
        let inputs = platform.inputs();
        if let Some(input) = inputs.iter().find(|input| !found.has[**input as usize]) {
            return Err(missing(*input));
        }
        let size = |input: &Input| counted[*input as usize].size;
        let counts: Vec<_> = inputs.iter().map(|input| (*input, size(input).rows)).collect();
        let rows = same_rows(&counts)?;
        admit(counted.iter().map(|counted| counted.size.bytes()).sum())?;
        let mut written = counted.map(|counted| Written::with_room(counted.size));
        read(document, &mut written)?;
        let written = Input::ALL.into_iter().zip(written);
        let wanted = written.filter(|(input, _)| inputs.contains(input));
        let inputs: Vec<GivenInput> =
            wanted.map(|(input, written)| written.finish(input)).collect::<Result<_, _>>()?;
        let rows = GivenRows { rows, inputs, output: answer.tensor() };
        Ok(Self { spec, rows, answer })
    }
}

/// Counts the rows of an input.
struct Counted {
    input: Input,
    /// The most rows.
    most: usize,
    size: Size,
}

impl Sink for Counted {
    fn id(&mut self, _: u64) {}

    fn score(&mut self, _: f32) {}

    fn end_row(&mut self, ids: usize, scores: usize) -> Result<(), Failure> {
        self.size.add(self.input, (ids, scores), self.most)
    }
}

impl Sink for Written {
    fn id(&mut self, id: u64) {
        self.put_id(id);
    }

    fn score(&mut self, score: f32) {
        self.put_weight(score);
    }

    fn end_row(&mut self, ids: usize, _: usize) -> Result<(), Failure> {
        self.put_row(ids);
        Ok(())
    }
}

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
    let floats: Vec<f32> = bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    match values.answer {
        Answer::Index => written(values.indexes()?, room),
        Answer::Scores => {
            let rows: Vec<_> = floats.chunks(values.scores.width.max(1)).collect();
            written(rows, room)
        }
        Answer::Value | Answer::Margin | Answer::Score => written(floats, room),
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
