//! metadata.json: which features a model's tensors are made of, and what its
//! outputs mean.

mod feature;
mod file;
mod input;
mod output;

use std::sync::Arc;

use outrigger_core::{DType, Reason};
use serde_json::{Map, Value};

use crate::reader::{self, Node, Wrong};

/// The only schema there is.
pub const SCHEMA: &str = "outrigger.dev/model/v1";

/// The most values one feature may have.
pub const MAX_LENGTH: usize = 1 << 20;

/// The most values one row of an input may have: the sum of its features'
/// lengths.
pub const MAX_WIDTH: usize = 1 << 24;

/// A model's features and outputs, as metadata.json declares them. Every rule
/// of the format holds for a value of this type.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// What the model was made with, such as `tensorflow`. Any name passes here:
    /// the engine decides which it takes.
    pub framework: Arc<str>,
    /// The signature to call; `serving_default` unless the file says otherwise.
    pub signature: Arc<str>,
    /// The tensors to feed, at least one, each named once.
    pub inputs: Vec<Input>,
    /// The outputs to read, at least one; the first is the score.
    pub outputs: Vec<Output>,
    /// False for models that draw: their values cannot be compared.
    pub deterministic: bool,
    /// Whatever the model's makers noted.
    pub annotations: Map<String, Value>,
}

/// One tensor the model is fed with.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The signature's name of it.
    pub tensor: Arc<str>,
    /// What its rows stand for; this fixes its rank.
    pub entity: Entity,
    /// Its element type.
    pub dtype: DType,
    /// What its last dimension holds, in order; empty for counts and seeds.
    pub features: Vec<Feature>,
}

/// What the rows of an input stand for.
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
}

/// One feature: `length` neighbouring positions of an input's last dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    /// Its name in requests; unique within its entity.
    pub name: Arc<str>,
    /// How many values it has; 1 for a plain one.
    pub length: usize,
    /// How a value becomes an element.
    pub encoding: Encoding,
    /// What happens when it is not sent.
    pub absence: Absence,
    /// Whether NaN and infinities are let through; floats only.
    pub allow_non_finite: bool,
}

/// How a raw value becomes an element of the tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Encoding {
    /// As it is.
    Plain,
    /// The value's position among the words.
    Vocabulary {
        /// The words.
        words: Words,
        /// What stands for any other word.
        out_of_vocabulary: i64,
    },
    /// FarmHash64 (`fingerprint64`) of the text, modulo this: the same as
    /// TensorFlow's `tf.strings.to_hash_bucket_fast`.
    HashBuckets(u64),
}

/// A vocabulary: all strings or all integers, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Words {
    Texts(Vec<Arc<str>>),
    Integers(Vec<i64>),
}

/// What the absence of a feature means.
#[derive(Debug, Clone, PartialEq)]
pub enum Absence {
    /// These raw values, `length` of them, encoded like any other.
    Default(Vec<Raw>),
    /// An error: FEATURE_MISSING.
    Required,
    /// NaN in every position; floats only.
    Nan,
}

/// A raw value as metadata.json writes it.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Raw {
    Real(f64),
    Integer(i64),
    Flag(bool),
    Text(Arc<str>),
}

/// One output of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The signature's name of it.
    pub tensor: Arc<str>,
    /// The name callers know it by.
    pub name: Arc<str>,
    /// Its shape and meaning.
    pub kind: OutputKind,
    /// What it is for, beside being returned.
    pub role: Option<Role>,
}

/// What an output's values belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    /// One value a treatment: `[B, T]` or `[B, T, 1]`.
    PerTreatment,
    /// One value a user: `[B]` or `[B, 1]`.
    Single,
}

/// A special meaning of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The probability with which the model drew what it chose.
    Propensity,
}

/// What is wrong with a metadata.json, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata.json: {}{message}", at(path))]
pub struct MetadataError {
    /// The path of the value at fault, such as `inputs[0].features[2].default`;
    /// empty when the file as a whole is not JSON.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

impl MetadataError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        Reason::ImageInvalid
    }
}

impl Metadata {
    /// Reads and checks a metadata.json.
    ///
    /// # Errors
    /// The first rule broken, with the JSON path of the value that breaks it.
    pub fn parse(json: &[u8]) -> Result<Self, MetadataError> {
        let value = reader::parse(json).map_err(|error| MetadataError {
            path: String::new(),
            message: format!("not valid JSON: {error}"),
        })?;
        file::read(Node::root(&value))
            .map_err(|Wrong { path, message }| MetadataError { path, message })
    }

    /// Refuses a model of any framework but these.
    ///
    /// # Errors
    /// The file names another framework.
    pub fn check_framework(&self, accepted: &[&str]) -> Result<(), MetadataError> {
        if accepted.contains(&&*self.framework) {
            return Ok(());
        }
        let words: Vec<_> = accepted.iter().map(|word| format!("{word:?}")).collect();
        let message = format!("expected {}, found {:?}", words.join(" or "), self.framework);
        Err(MetadataError { path: "framework".to_owned(), message })
    }

    /// The inputs of one entity, with their positions.
    pub fn inputs_of(&self, entity: Entity) -> impl Iterator<Item = (usize, &Input)> {
        self.inputs.iter().enumerate().filter(move |(_, input)| input.entity == entity)
    }
}

impl Input {
    /// The size of the last dimension: the sum of the features' lengths.
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
        }
    }

    /// Whether its inputs are made of features.
    pub const fn has_features(self) -> bool {
        matches!(self, Self::User | Self::Treatment)
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
    /// How many words there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(words) => words.len(),
            Self::Integers(words) => words.len(),
        }
    }

    /// Never true of a parsed vocabulary.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
