//! Requests to send: generated from metadata.json, or read from files.

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
use outrigger_core::Tensor;
use outrigger_features::{Limits, Metadata, Plan, json::predict_request};
use outrigger_proto::outrigger::v1::ModelSelector;
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::{Map, Value};

use self::{file::Content, sample::Sample};
use crate::{Error, Job};

/// Layout of the features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// gRPC, with a map of features per treatment.
    #[default]
    KeyValue,
    /// gRPC, with treatments as columns.
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

/// The source of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Generated, with a value for every feature of the model.
    Generated(Shape),
    /// One request per file: the JSON of POST /v1/predict, or an encoded
    /// `outrigger.v1.PredictRequest`. The model in the file is ignored.
    Files(Vec<PathBuf>),
}

/// Parameters of generated requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Treatments per user.
    pub treatments: usize,
    /// Users per request.
    pub users: usize,
    /// Number of different requests; they are sent in turn.
    pub distinct: usize,
    /// Seed; the same seed generates the same requests.
    pub seed: u64,
}

/// Reads a metadata.json, from which requests are generated.
///
/// # Errors
/// The file cannot be read, or is not valid.
pub fn read_plan(file: &Path) -> Result<Arc<Plan>, Error> {
    let json = fs::read(file).map_err(|source| Error::File { path: file.to_owned(), source })?;
    let invalid = |problem: String| Error::Request(format!("{}: {problem}", file.display()));
    let metadata = Metadata::parse(&json).map_err(|error| invalid(error.to_string()))?;
    Ok(Arc::new(Plan::compile(metadata)))
}

/// Requests of one form, without the model.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) form: Form,
    pub(crate) users: usize,
    /// Treatments per user, if all requests have the same number.
    pub(crate) treatments: Option<usize>,
    pub(crate) all: Vec<Request>,
    /// Expected number of scores per user, for each request.
    pub(crate) scores: Vec<RangeInclusive<usize>>,
}

/// A request without the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    /// One encoded `PredictRequest` per user.
    Encoded(Vec<Bytes>),
    /// The JSON of POST /v1/predict.
    Json(Map<String, Value>),
}

/// The model's input for a request.
#[derive(Debug, PartialEq)]
pub(crate) struct Tensors {
    pub(crate) inputs: Vec<Tensor>,
    /// Names of the requested outputs; none for all.
    pub(crate) outputs: Vec<String>,
}

impl Requests {
    /// Generates or reads requests. If `form` is `None`, generated requests are key-value
    /// and files keep their form.
    ///
    /// # Errors
    /// A file is invalid, or the options contradict each other.
    pub(crate) fn new(job: &Job, form: Option<Form>) -> Result<Self, Error> {
        match &job.source {
            Source::Generated(shape) => {
                generate(job.plan("to generate requests")?, shape, form.unwrap_or_default())
            }
            Source::Files(files) => read(files, job, form),
        }
    }

    /// The tensors of all requests.
    ///
    /// # Errors
    /// There is no metadata.json, or a request does not fit the model.
    pub(crate) fn tensors(&self, job: &Job) -> Result<Vec<Tensors>, Error> {
        let plan = job.plan("to create tensors")?;
        self.all.iter().map(|request| request.pack(plan)).collect()
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

    /// Converts the request to tensors.
    ///
    /// # Errors
    /// The request does not fit the model.
    pub(crate) fn pack(&self, plan: &Plan) -> Result<Tensors, Error> {
        let users = match self {
            Self::Encoded(users) => users.clone(),
            Self::Json(request) => vec![to_message(request, plan)?],
        };
        let users: Vec<&[u8]> = users.iter().map(|request| &**request).collect();
        // The limits are the control plane's; an engine has none.
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
        return Err(Error::Request("a request over HTTP can have only one user".to_owned()));
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
    let all = contents.into_iter().map(|content| from_file(content, form, job));
    let all = all.collect::<Result<_, _>>()?;
    Ok(Requests { form, users: 1, treatments: same.then_some(treatments), all, scores })
}

fn from_file(content: Content, form: Form, job: &Job) -> Result<Request, Error> {
    match (content, form) {
        (Content::Json(request), Form::Json) => Ok(Request::Json(request)),
        (Content::Json(request), Form::KeyValue) => {
            let plan = job.plan("to convert JSON to a message")?;
            to_message(&request, plan).map(|message| Request::Encoded(vec![message]))
        }
        (Content::Encoded { bytes, form: found, .. }, form) if found == form => {
            Ok(Request::Encoded(vec![bytes]))
        }
        (content, form) => {
            let (is, wanted) = (content.form().as_str(), form.as_str());
            Err(Error::Request(format!(
                "a file with a request in form {is} cannot be sent as {wanted}"
            )))
        }
    }
}

/// Converts a request from JSON to the key-value form.
fn to_message(request: &Map<String, Value>, plan: &Plan) -> Result<Bytes, Error> {
    let body = serde_json::to_vec(request).expect("JSON is written to memory");
    let message = predict_request(plan, &body);
    let message = message.map_err(|failure| Error::Request(failure.to_string()))?;
    Ok(wire::ordered(message).into())
}

#[cfg(test)]
mod tests;
