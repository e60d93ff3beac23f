//! Preparation before the run: requests are generated or read, encoded and tried once.

use std::{fs, path::Path, sync::Arc, time::Duration};

use crate::{
    Error, Inference, Job, Source, Target, answer,
    client::{Client, Protocol},
    inference,
    message::Message,
    method::Method,
    outgoing::{Expected, Outgoing},
    requests::{Form, Requests, Shape, Tensors},
};

/// Time limit for the first requests: the server may have to load the model.
const FIRST: Duration = Duration::from_secs(60);

/// Requests that the server has accepted once.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) protocol: Protocol,
    pub(crate) messages: Arc<[Message]>,
    /// The form's name in reports.
    pub(crate) form: &'static str,
    pub(crate) users: usize,
    pub(crate) treatments: Option<usize>,
}

/// The requests of a job, before they are encoded.
enum Content<'j> {
    /// Requests with features.
    Requests(Requests),
    /// Random tensors for inputs that are not known yet.
    Tensors(&'j Inference, &'j Shape),
}

impl<'j> Content<'j> {
    /// # Errors
    /// As [`Requests::new`], or there is no metadata.json to create tensors.
    fn of(job: &'j Job) -> Result<Self, Error> {
        match (&job.target, &job.source) {
            (Target::Inference(inference), Source::Generated(shape)) if job.plan.is_none() => {
                Ok(Self::Tensors(inference, shape))
            }
            (Target::Model { form, .. }, _) => Requests::new(job, *form).map(Self::Requests),
            (Target::Inference(_) | Target::Servable(_), _) => {
                job.plan("to create tensors")?;
                Requests::new(job, None).map(Self::Requests)
            }
        }
    }

    fn users(&self) -> usize {
        match self {
            Self::Requests(requests) => requests.users,
            Self::Tensors(..) => 1,
        }
    }

    /// The method, and the form's name in reports.
    fn method(&self, target: &Target) -> (Method, &'static str) {
        match (target, self) {
            (Target::Servable(_), _) => (Method::Engine, "direct"),
            (Target::Inference(inference), _) | (_, &Self::Tensors(inference, _)) => {
                (inference.method(), inference.form.as_str())
            }
            (Target::Model { .. }, Self::Requests(requests)) => {
                let method = match (requests.form, requests.users) {
                    (Form::Json, _) => Method::Json,
                    (_, 1) => Method::Predict,
                    _ => Method::BatchPredict,
                };
                (method, requests.form.as_str())
            }
        }
    }
}

/// Creates the job's requests and sends each of them once.
///
/// # Errors
/// The server cannot be reached, or does not answer a request correctly.
pub(crate) async fn prepare(job: &Job) -> Result<Prepared, Error> {
    let content = Content::of(job)?;
    let (method, form) = content.method(&job.target);
    let client = Client::open(&job.server, method.protocol(), 1, job.frame).await;
    let client = client.map_err(|failure| job.unreachable(failure))?;
    let users = content.users();
    let (requests, treatments) = encode(job, &client, content).await?;
    let first = job.timeout.max(FIRST);
    let message = |request: &Outgoing, timeout| {
        let message = method.message(&job.server, timeout, request);
        match job.compress {
            Some(encoding) => message.compressed(method.protocol(), encoding),
            None => message,
        }
    };
    for (at, request) in requests.iter().enumerate() {
        let answer = client.call(0, &message(request, first), first).await;
        let answer = answer.map_err(Error::Refused)?;
        answer::check(&method, &answer, users, &request.expected).map_err(Error::Refused)?;
        if let Some(directory) = &job.save {
            save(directory, at, &method, [&request.body, &answer.body])?;
        }
    }
    let messages = requests.iter().map(|request| message(request, job.timeout)).collect();
    Ok(Prepared { protocol: method.protocol(), messages, form, users, treatments })
}

/// Writes a request and its answer, for other load generators and checks.
fn save(
    directory: &Path,
    at: usize,
    method: &Method,
    [request, answer]: [&[u8]; 2],
) -> Result<(), Error> {
    for (name, content) in [("request", request), ("answer", answer)] {
        let path = directory.join(format!("{name}-{at}.{}", method.ending()));
        fs::write(&path, content).map_err(|source| Error::File { path, source })?;
    }
    Ok(())
}

/// The encoded requests, and the treatments of each user if all have the same number.
async fn encode(
    job: &Job,
    client: &Client,
    content: Content<'_>,
) -> Result<(Vec<Outgoing>, Option<usize>), Error> {
    let requests = match content {
        Content::Requests(requests) => requests,
        Content::Tensors(inference, shape) => {
            let made = inference.generate(shape, (client, &job.server), FIRST).await?;
            let rows = made.first().and_then(inference::rows);
            return Ok((inferences(inference, made)?, rows));
        }
    };
    let treatments = requests.treatments;
    let outgoing = match &job.target {
        Target::Model { model, .. } => {
            let bodies = requests.all.iter().map(|request| request.addressed(model));
            scored(bodies, &requests)
        }
        Target::Inference(inference) => inferences(inference, requests.tensors(job)?)?,
        Target::Servable(servable) => {
            let tensors = requests.tensors(job)?;
            let plan = job.plan("to create tensors")?;
            let found = servable.find(plan, client, &job.server, FIRST).await?;
            scored(tensors.into_iter().map(|tensors| found.message(tensors)), &requests)
        }
    };
    Ok((outgoing, treatments))
}

fn scored(bodies: impl Iterator<Item = Vec<u8>>, requests: &Requests) -> Vec<Outgoing> {
    let expected = requests.scores.iter().cloned().map(Expected::Scores);
    bodies.zip(expected).map(|(body, expected)| Outgoing::of(body.into(), expected)).collect()
}

fn inferences(inference: &Inference, tensors: Vec<Tensors>) -> Result<Vec<Outgoing>, Error> {
    let all = tensors.into_iter().enumerate();
    all.map(|(at, tensors)| inference.encode(at, tensors)).collect()
}
