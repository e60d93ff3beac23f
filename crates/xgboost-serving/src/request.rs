//! A prediction request: an encoded `PredictRequest`, or the same as JSON.

use outrigger_core::Failure;
use outrigger_features::{GivenInput, GivenRows, Limits};
use outrigger_proto::{
    raw::read::{MAX_DEPTH, Malformed, Reader},
    tensorflow::serving::ModelSpec,
};
use prost::{DecodeError, Message as _};

use crate::{
    Input, Platform, invalid,
    rows::{Rows, unreadable},
};

/// A request whose rows have been read.
#[derive(Debug)]
pub struct Asked {
    /// The model and the version that it names.
    pub spec: ModelSpec,
    /// The rows of its inputs.
    pub rows: GivenRows,
    /// The output that it asks for.
    pub answer: Answer,
}

/// The output that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The value of trees, after the transformation of their objective.
    Value,
    /// The sum of the trees' leaves, before that transformation.
    Margin,
    /// The numbers of the leaves.
    Index,
    /// The score of a factorisation machine.
    Score,
    /// A score for each class.
    Scores,
}

impl Answer {
    /// The output of a platform that the option of this name selects.
    ///
    /// # Errors
    /// `REQUEST_MALFORMED`: there is no such output.
    pub(crate) fn of(platform: Platform, option_mask: i32) -> Result<Self, Failure> {
        match platform {
            // The option is XGBoost's, and concerns no other platform.
            Platform::Alphafm => return Ok(Self::Score),
            Platform::AlphafmSoftmax => return Ok(Self::Scores),
            Platform::Xgboost => {}
        }
        match option_mask {
            0 => Ok(Self::Value),
            1 => Ok(Self::Margin),
            2 => Ok(Self::Index),
            other => {
                let message = format!("must be 0 (value), 1 (margin) or 2 (index), is {other}");
                Err(invalid("option_mask", &message))
            }
        }
    }

    /// The key of the output in the response.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Margin => "margin",
            Self::Index => "index",
            Self::Score | Self::Scores => "score",
        }
    }

    /// The tensor of the model's output.
    pub const fn tensor(self) -> &'static str {
        match self {
            Self::Index => "leaf",
            Self::Value | Self::Margin | Self::Score | Self::Scores => self.key(),
        }
    }
}

/// The options of XGBoost's prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) option_mask: i32,
    pub(crate) ntree_limit: u32,
}

impl Options {
    /// The input of a model on this platform that limits its trees, if there is a limit.
    pub(crate) fn number(self, platform: Platform) -> Option<(&'static str, i64)> {
        let has_limit = platform == Platform::Xgboost && self.ntree_limit != 0;
        has_limit.then(|| ("ntree_limit", self.ntree_limit.into()))
    }
}

/// The failure of a request without an input that the platform needs.
pub(crate) fn missing(input: Input) -> Failure {
    invalid("inputs", &format!("there is no {:?}", input.name()))
}

/// Checks that all inputs have as many rows as the first one, and returns their number.
///
/// # Errors
/// `REQUEST_MALFORMED`.
pub(crate) fn same_rows(counts: &[(Input, usize)]) -> Result<usize, Failure> {
    let Some((first, rows)) = counts.first() else { return Ok(0) };
    match counts.iter().find(|(_, other)| other != rows) {
        None => Ok(*rows),
        Some((input, other)) => {
            let (first, name) = (first.name(), input.name());
            let message = format!("{first:?} has {rows} rows, and {name:?} has {other}");
            Err(invalid("inputs", &message))
        }
    }
}

/// An encoded `PredictRequest`, split into its parts.
#[derive(Debug, Default)]
struct Parts<'a> {
    spec: Option<Result<ModelSpec, DecodeError>>,
    /// The encoded rows by input.
    vectors: [Option<&'a [u8]>; Input::COUNT],
    options: Options,
}

impl Asked {
    /// Reads an encoded `PredictRequest`. `admit` charges the bytes that its rows will take.
    ///
    /// # Errors
    /// The request is malformed, or over a limit.
    pub fn read(
        platform: Platform,
        message: &[u8],
        limits: &Limits,
        admit: impl FnOnce(usize) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let Parts { spec, vectors, options } = Parts::read(message).map_err(unreadable)?;
        let spec = spec
            .ok_or_else(no_spec)?
            .map_err(|error| invalid("model_spec", &format!("cannot be read: {error}")))?;
        let answer = Answer::of(platform, options.option_mask)?;
        let count = |input: &Input| {
            let vector = vectors[*input as usize].ok_or_else(|| missing(*input))?;
            Rows::count(*input, vector, limits.max_treatments)
        };
        let inputs: Vec<_> = platform.inputs().iter().map(count).collect::<Result<_, _>>()?;
        let counts: Vec<_> = inputs.iter().map(|rows| (rows.input(), rows.size().rows)).collect();
        let rows = same_rows(&counts)?;
        admit(inputs.iter().map(|rows| rows.size().bytes()).sum())?;
        let inputs: Vec<GivenInput> =
            inputs.into_iter().map(|rows| rows.write(platform.bits())).collect::<Result<_, _>>()?;
        let number = options.number(platform);
        let rows = GivenRows { rows, inputs, number, output: answer.tensor() };
        Ok(Self { spec, rows, answer })
    }
}

/// The failure of a request that names no model, in XGBoost Serving's words.
pub fn no_spec() -> Failure {
    let failure = invalid("model_spec", "Missing ModelSpec");
    failure.map_message(|_| "Missing ModelSpec".to_owned())
}

/// Merges the parts of a specification, as protobuf does if a field is given more than once.
fn merged(
    before: Option<Result<ModelSpec, DecodeError>>,
    part: &[u8],
) -> Result<ModelSpec, DecodeError> {
    let mut spec = before.transpose()?.unwrap_or_default();
    spec.merge(part)?;
    Ok(spec)
}

impl<'a> Parts<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let (mut parts, mut rest) = (Self::default(), Reader::new(message));
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => {
                    let spec = rest.bytes_field(wire_type)?;
                    parts.spec = Some(merged(parts.spec.take(), spec));
                }
                (2, wire_type) => parts.entry(rest.bytes_field(wire_type)?)?,
                (3, wire_type) => {
                    parts.options.option_mask = rest.varint_field(wire_type)? as i32;
                }
                (4, wire_type) => {
                    parts.options.ntree_limit = rest.varint_field(wire_type)? as u32;
                }
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
            }
        }
        Ok(parts)
    }

    /// Reads an entry of the inputs. Of two with the same key the last one counts.
    fn entry(&mut self, entry: &'a [u8]) -> Result<(), Malformed> {
        let (mut key, mut vector, mut rest) = ("", &[][..], Reader::new(entry));
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => key = rest.text_field(wire_type)?,
                (2, wire_type) => vector = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
            }
        }
        if let Some(input) = Input::named(key) {
            self.vectors[input as usize] = Some(vector);
        }
        Ok(())
    }
}
