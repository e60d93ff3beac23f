//! metadata.json: the features that a model's tensors consist of, and the meaning of its
//! outputs.

mod feature;
mod file;
mod input;
mod output;
mod sparse;
mod uplift;

use std::sync::Arc;

use outrigger_core::{DType, Reason, Uplift};
use serde_json::{Map, Value};

use crate::reader::{self, Node, Wrong};

/// The only supported schema.
pub const SCHEMA: &str = "outrigger.dev/model/v1";

/// The maximum number of values of one feature, and of one row of an output.
pub const MAX_LENGTH: usize = 1 << 20;

/// The maximum number of values in one row of an input: the sum of its features' lengths.
pub const MAX_WIDTH: usize = 1 << 24;

/// A model's features and outputs, as metadata.json declares them. A value of this type
/// satisfies every rule of the format.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// The framework that the model was made with, such as `tensorflow`. Parsing accepts
    /// any name: the engine decides which frameworks it supports.
    pub framework: Arc<str>,
    /// The signature to call; `serving_default` unless the file says otherwise.
    pub signature: Arc<str>,
    /// The tensors to feed, at least one, each named once.
    pub inputs: Vec<Input>,
    /// The outputs to read, at least one; the first is the score.
    pub outputs: Vec<Output>,
    /// False for models that draw at random: their values cannot be compared.
    pub deterministic: bool,
    /// The control with which an uplift model compares rows. Only its engine uses it.
    pub uplift: Option<Arc<Uplift>>,
    /// Free-form annotations of the model's authors.
    pub annotations: Map<String, Value>,
}

/// One input tensor of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The tensor's name in the signature.
    pub tensor: Arc<str>,
    /// The entity that each row describes; it determines the rank.
    pub entity: Entity,
    /// Its element type.
    pub dtype: DType,
    /// The tensor with the number of values of each row, int64: `[B]` or `[B, T]`. The
    /// input then has a single feature, and its tensor the values of all rows: `[N]`.
    pub lengths: Option<Arc<str>>,
    /// The tensor with the weight of each id, float32: `[N]`. The rows of the input are then
    /// sparse: its tensor has the ids of all rows, int64 with the bits of the unsigned ids, and
    /// `lengths` their number in each row, `[R]` for joined rows. A row has the ids of its
    /// features, one feature after the other; a joined row has those of the user first.
    pub weights: Option<Arc<str>>,
    /// The features in its last dimension, in order; empty for counts and seeds.
    pub features: Vec<Feature>,
}

/// The entity that each row of an input describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// Users: `[B, width]`.
    User,
    /// Treatments: `[B, T, width]`.
    Treatment,
    /// The number of each user's real treatments: `[B]`, int32 or int64.
    TreatmentCount,
    /// A number drawn from each request's id: `[B]`, int64.
    Seed,
    /// Treatments, each with the features of its user: `[R, width]` for the R
    /// treatments of all users, one user after the other.
    Joined,
}

/// One feature: `length` neighbouring positions of an input's last dimension, or a list, or ids
/// of a sparse row.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    /// Its name in requests; unique within its entity.
    pub name: Arc<str>,
    /// The entity that the feature belongs to: the user or the treatment.
    pub entity: Entity,
    /// The number of values; 1 for a scalar. Of a list, the largest one.
    pub length: usize,
    /// The values that a row has, if a request sends fewer than `length`.
    pub size: Size,
    /// The encoding of a value as an element.
    pub encoding: Encoding,
    /// The behaviour when a request does not send it.
    pub absence: Absence,
    /// Whether NaN and infinity are accepted; floats only.
    pub allow_non_finite: bool,
}

/// The number of values that a request may send for a feature.
#[derive(Debug, Clone, PartialEq)]
pub enum Size {
    /// Exactly `length`.
    Exact,
    /// Up to `length`; this element is written in the positions after them.
    Padded(Raw),
    /// Up to `length`, of an input with `lengths`.
    Ragged,
    /// Up to `length` ids with weights, of an input with `weights`.
    Sparse,
    /// One number: the weight of this id, in an input with `weights`.
    WeightOf(u64),
}

/// The encoding of a raw value as an element of the tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Encoding {
    /// The value itself.
    Plain,
    /// The value's position among the words.
    Vocabulary {
        /// The words, in order of their indices.
        words: Words,
        /// The ids that words stand for in a sparse row; empty if they are the positions.
        ids: Vec<u64>,
        /// The index, or id, of any other word. `None`: a sparse row leaves it out.
        out_of_vocabulary: Option<i64>,
    },
    /// FarmHash64 (`fingerprint64`) of the text, modulo this: the same as
    /// TensorFlow's `tf.strings.to_hash_bucket_fast`.
    HashBuckets(u64),
}

/// A vocabulary: distinct words, all strings or all integers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Words {
    Texts(Vec<Arc<str>>),
    Integers(Vec<i64>),
}

/// The behaviour when a feature is absent.
#[derive(Debug, Clone, PartialEq)]
pub enum Absence {
    /// Uses these raw values, as many as a request may send, encoded like any other. In a sparse
    /// row none means that it has no id of the feature, and ids have a weight of 1.
    Default(Vec<Raw>),
    /// Refuses the row with FEATURE_MISSING.
    Required,
    /// Writes NaN in every position; floats only.
    Nan,
}

/// A raw value as written in metadata.json.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Raw {
    Real(f64),
    Integer(i64),
    Flag(bool),
    Text(Arc<str>),
    /// An id of a sparse row.
    Id(u64),
}

/// One output of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The tensor's name in the signature.
    pub tensor: Arc<str>,
    /// The name in requests and responses.
    pub name: Arc<str>,
    /// Its shape and meaning.
    pub kind: OutputKind,
    /// The number of values of each treatment or user: the columns of the tensor.
    pub width: usize,
    /// The column that is the score, below `width`: treatments are ranked by it.
    pub score_column: usize,
    /// A special role, in addition to being returned.
    pub role: Option<Role>,
}

/// The entity that an output has values for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    /// Values of each treatment: `[B, T, width]`; for a model with joined inputs
    /// `[R, width]`. A width of 1 may be left out of the shape.
    PerTreatment,
    /// Values of each user: `[B, width]`. A width of 1 may be left out of the shape.
    Single,
}

/// A special role of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The probability with which the model drew its choice.
    Propensity,
}

/// An error in a metadata.json, with its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata.json: {}{message}", at(path))]
pub struct MetadataError {
    /// The path of the faulty value, such as `inputs[0].features[2].default`; empty when
    /// the file as a whole is not JSON.
    pub path: String,
    /// The description of the error.
    pub message: String,
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

impl MetadataError {
    /// The stable reason code of this error.
    pub fn reason(&self) -> Reason {
        Reason::ImageInvalid
    }
}

impl Metadata {
    /// Parses and validates a metadata.json.
    ///
    /// # Errors
    /// The first violated rule, with the JSON path of the value that violates it.
    pub fn parse(json: &[u8]) -> Result<Self, MetadataError> {
        let value = reader::parse(json).map_err(|error| MetadataError {
            path: String::new(),
            message: format!("not valid JSON: {error}"),
        })?;
        file::read(Node::root(&value))
            .map_err(|Wrong { path, message }| MetadataError { path, message })
    }

    /// The features of the user or of the treatment, each with its input, in the order of
    /// the file.
    pub fn features_of(&self, entity: Entity) -> impl Iterator<Item = (&Input, &Feature)> {
        let all = self.inputs.iter();
        let all = all.flat_map(|input| input.features.iter().map(move |feature| (input, feature)));
        all.filter(move |(_, feature)| feature.entity == entity)
    }

    /// Returns true if an input is float64.
    pub fn is_double(&self) -> bool {
        self.inputs.iter().any(|input| input.dtype == DType::Float64)
    }

    /// Whether the tensors have one row per treatment, with the features of its user.
    pub fn is_joined(&self) -> bool {
        self.inputs.iter().any(|input| input.entity == Entity::Joined)
    }
}

impl Input {
    /// The size of the last dimension, unless there are `lengths`: the sum of the features'
    /// lengths. It is also the most ids of a sparse row.
    pub fn width(&self) -> usize {
        self.features.iter().map(|feature| feature.length).sum()
    }
}

impl Entity {
    /// The name as metadata.json spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Treatment => "treatment",
            Self::TreatmentCount => "treatment_count",
            Self::Seed => "seed",
            Self::Joined => "joined",
        }
    }

    /// Whether inputs of this entity consist of features.
    pub const fn has_features(self) -> bool {
        matches!(self, Self::User | Self::Treatment | Self::Joined)
    }
}

impl OutputKind {
    /// The name as metadata.json spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerTreatment => "per_treatment",
            Self::Single => "single",
        }
    }
}

impl Words {
    /// The number of words.
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(words) => words.len(),
            Self::Integers(words) => words.len(),
        }
    }

    /// Always false for a parsed vocabulary.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
