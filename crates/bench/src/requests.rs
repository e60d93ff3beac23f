//! Requests to send: made up from metadata.json, or read from files.

mod file;
mod json;
mod sample;
mod wire;

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use outrigger_backend::FRAMEWORK;
use outrigger_core::Tensor;
use outrigger_features::{Limits, Metadata, Plan, json::predict_request};
use outrigger_proto::outrigger::v1::ModelSelector;
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::{Map, Value};

use self::{file::Content, sample::Sample};
use crate::{Error, Job};

/// How features are laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// gRPC, a map of features a treatment.
    #[default]
    KeyValue,
    /// gRPC, treatments as columns.
    Columnar,
    /// HTTP, JSON.
    Json,
}

impl Form {
    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyValue => "kv",
            Self::Columnar => "columnar",
            Self::Json => "json",
        }
    }
}

/// Where requests come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// They are made up, with a value for every feature of the model.
    Generated(Shape),
    /// Each file holds one: the JSON of POST /v1/predict, or an encoded
    /// `outrigger.v1.PredictRequest`. The model they name is not looked at.
    Files(Vec<PathBuf>),
}

/// What requests to make up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Treatments a user.
    pub treatments: usize,
    /// Users a request.
    pub users: usize,
    /// How many different requests; they are sent in turns.
    pub distinct: usize,
    /// The same seed makes the same requests.
    pub seed: u64,
}

/// Reads a metadata.json: what requests are made up from.
///
/// # Errors
/// The file cannot be read, or is not valid.
pub fn read_plan(file: &Path) -> Result<Arc<Plan>, Error> {
    let json = fs::read(file).map_err(|source| Error::File { path: file.to_owned(), source })?;
    let metadata = Metadata::parse(&json)
        .and_then(|metadata| metadata.check_framework(&[FRAMEWORK]).map(|()| metadata));
    let metadata =
        metadata.map_err(|error| Error::Request(format!("{}: {error}", file.display())))?;
    Ok(Arc::new(Plan::compile(metadata)))
}

/// Requests that no model is named in yet, all of one form.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) form: Form,
    pub(crate) users: usize,
    /// Treatments a user, where all have as many.
    pub(crate) treatments: Option<usize>,
    pub(crate) all: Vec<Request>,
    /// How many scores a user each of them gets.
    pub(crate) scores: Vec<RangeInclusive<usize>>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    /// An encoded `PredictRequest` a user.
    Encoded(Vec<Bytes>),
    /// The JSON of POST /v1/predict.
    Json(Map<String, Value>),
}

/// What the engine is sent for a request.
#[derive(Debug, PartialEq)]
pub(crate) struct Tensors {
    pub(crate) inputs: Vec<Tensor>,
    /// The names of the outputs wanted.
    pub(crate) outputs: Vec<String>,
}

impl Requests {
    /// Makes or reads requests. Without `form`, made up ones are key-value and
    /// files stay what they are.
    ///
    /// # Errors
    /// A file is of no use, or what is asked for contradicts itself.
    pub(crate) fn new(job: &Job, form: Option<Form>) -> Result<Self, Error> {
        match &job.source {
            Source::Generated(shape) => {
                generate(job.plan("to make requests up")?, shape, form.unwrap_or_default())
            }
            Source::Files(files) => read(files, job, form),
        }
    }
}

impl Request {
    /// The message for the control plane: JSON, a `PredictRequest`, or a
    /// `BatchPredictRequest` for several users.
    pub(crate) fn addressed(&self, model: &ModelSelector) -> Vec<u8> {
        match self {
            Self::Encoded(users) => wire::addressed(model, users),
            Self::Json(request) => json::addressed(model, request),
        }
    }

    /// The tensors it becomes.
    ///
    /// # Errors
    /// The model does not take it.
    pub(crate) fn pack(&self, plan: &Plan) -> Result<Tensors, Error> {
        let users = match self {
            Self::Encoded(users) => users.clone(),
            Self::Json(request) => vec![to_message(request, plan)?],
        };
        let users: Vec<&[u8]> = users.iter().map(|request| &**request).collect();
        // An engine has no such limits.
        let limits =
            Limits { max_treatments: usize::MAX, max_users: usize::MAX, max_tensor_bytes: 1 << 30 };
        let packed = plan.pack(&users, &limits);
        let packed = packed.map_err(|failure| Error::Request(failure.to_string()))?;
        let outputs = plan.output_names(&packed).iter().map(ToString::to_string).collect();
        Ok(Tensors { inputs: packed.tensors, outputs })
    }
}

fn generate(plan: &Plan, shape: &Shape, form: Form) -> Result<Requests, Error> {
    if form == Form::Json && shape.users > 1 {
        return Err(Error::Request("a request over HTTP is of one user".to_owned()));
    }
    let mut random = StdRng::seed_from_u64(shape.seed);
    let mut sample = || Sample::new(plan.metadata(), shape.treatments, &mut random);
    let mut request = |_| match form {
        Form::KeyValue => encoded(shape.users, || wire::key_values(&sample())),
        Form::Columnar => encoded(shape.users, || wire::columnar(&sample())),
        Form::Json => Request::Json(json::request(&sample())),
    };
    let all = (0..shape.distinct).map(&mut request).collect();
    let Shape { treatments, users, distinct, .. } = *shape;
    let scores = vec![treatments..=treatments; distinct];
    Ok(Requests { form, users, treatments: Some(treatments), all, scores })
}

fn encoded(users: usize, mut request: impl FnMut() -> Vec<u8>) -> Request {
    Request::Encoded((0..users).map(|_| request().into()).collect())
}

fn read(files: &[PathBuf], job: &Job, form: Option<Form>) -> Result<Requests, Error> {
    let contents = files.iter().map(|file| file::read(file)).collect::<Result<Vec<_>, _>>()?;
    let first = contents.first().ok_or_else(|| Error::Request("no request".to_owned()))?;
    let (form, treatments) = (form.unwrap_or(first.form()), first.treatments());
    let same = contents.iter().all(|content| content.treatments() == treatments);
    let scores = contents.iter().map(Content::scores).collect();
    let all = contents.into_iter().map(|content| of_file(content, form, job));
    let all = all.collect::<Result<_, _>>()?;
    Ok(Requests { form, users: 1, treatments: same.then_some(treatments), all, scores })
}

fn of_file(content: Content, form: Form, job: &Job) -> Result<Request, Error> {
    match (content, form) {
        (Content::Json(request), Form::Json) => Ok(Request::Json(request)),
        (Content::Json(request), Form::KeyValue) => {
            let plan = job.plan("to make a message of JSON")?;
            to_message(&request, plan).map(|message| Request::Encoded(vec![message]))
        }
        (Content::Encoded { bytes, form: found, .. }, form) if found == form => {
            Ok(Request::Encoded(vec![bytes]))
        }
        (content, form) => {
            let (is, wanted) = (content.form().as_str(), form.as_str());
            Err(Error::Request(format!(
                "a file with a request in form {is} is not sent as {wanted}"
            )))
        }
    }
}

/// The key-value form of a request in JSON.
fn to_message(request: &Map<String, Value>, plan: &Plan) -> Result<Bytes, Error> {
    let body = serde_json::to_vec(request).expect("JSON is written to memory");
    let message = predict_request(plan, &body);
    let message = message.map_err(|failure| Error::Request(failure.to_string()))?;
    Ok(wire::ordered(message).into())
}

#[cfg(test)]
mod tests;
