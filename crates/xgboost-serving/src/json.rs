//! Requests as JSON documents.

mod read;

use outrigger_core::Failure;
use outrigger_features::{GivenInput, GivenRows, Limits};
use outrigger_proto::tensorflow::serving::ModelSpec;

use self::read::{Sink, read};
use crate::{
    Input, Platform,
    request::{Answer, Asked, missing, same_rows},
    rows::{Size, Written},
};

impl Asked {
    /// Reads a document for the version that `spec` selects. `admit` charges the bytes that its rows
    /// will take.
    ///
    /// # Errors
    /// The request is malformed, or over a limit.
    pub fn read_json(
        platform: Platform,
        spec: ModelSpec,
        document: &[u8],
        limits: &Limits,
        admit: impl FnOnce(usize) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let most = limits.max_treatments;
        let mut counted = Input::ALL.map(|input| Counted { input, most, size: Size::default() });
        let found = read(document, &mut counted)?;
        let answer = Answer::of(platform, found.options.option_mask)?;
        let inputs = platform.inputs();
        if let Some(input) = inputs.iter().find(|input| !found.has[**input as usize]) {
            return Err(missing(*input));
        }
        let size = |input: &Input| counted[*input as usize].size;
        let counts: Vec<_> = inputs.iter().map(|input| (*input, size(input).rows)).collect();
        let rows = same_rows(&counts)?;
        admit(counted.iter().map(|counted| counted.size.bytes()).sum())?;
        let mut written = counted.map(|counted| Written::with_room(counted.size, platform.bits()));
        read(document, &mut written)?;
        let written = Input::ALL.into_iter().zip(written);
        let wanted = written.filter(|(input, _)| inputs.contains(input));
        let inputs: Vec<GivenInput> =
            wanted.map(|(input, written)| written.finish(input)).collect::<Result<_, _>>()?;
        let number = found.options.number(platform);
        let rows = GivenRows { rows, inputs, number, output: answer.tensor() };
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

#[cfg(test)]
mod tests;
