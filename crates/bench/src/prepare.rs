//! Preparation before the run: requests are generated or read, encoded and tried once.

use std::{fs, path::Path, sync::Arc, time::Duration};

use crate::{
    Error, Job, Target, answer,
    client::{Client, Protocol},
    message::Message,
    method::Method,
    requests::{Form, Requests},
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

/// Creates the job's requests and sends each of them once.
///
/// # Errors
/// The server cannot be reached, or does not answer a request correctly.
pub(crate) async fn prepare(job: &Job) -> Result<Prepared, Error> {
    let wanted = match &job.target {
        Target::Model { form, .. } => *form,
        Target::Servable(_) => None,
    };
    let requests = Requests::new(job, wanted)?;
    let Requests { users, treatments, form, .. } = requests;
    let (method, form) = match &job.target {
        Target::Servable(_) => (Method::Engine, "direct"),
        Target::Model { .. } if form == Form::Json => (Method::Json, form.as_str()),
        Target::Model { .. } if users == 1 => (Method::Predict, form.as_str()),
        Target::Model { .. } => (Method::BatchPredict, form.as_str()),
    };
    let client = Client::open(&job.server, method.protocol(), 1, job.frame).await;
    let client = client.map_err(|failure| job.unreachable(failure))?;
    let bodies = encode(job, &client, &requests).await?;
    let first = job.timeout.max(FIRST);
    let message = |body: &Vec<u8>, timeout| {
        let message = method.message(&job.server, timeout, body);
        match job.compress {
            Some(encoding) => message.compressed(method.protocol(), encoding),
            None => message,
        }
    };
    for (at, (body, scores)) in bodies.iter().zip(&requests.scores).enumerate() {
        let answer = client.call(0, &message(body, first), first).await.map_err(Error::Refused)?;
        answer::check(method, answer.clone(), users, scores).map_err(Error::Refused)?;
        if let Some(directory) = &job.save {
            save(directory, at, method, [body, &answer])?;
        }
    }
    let messages = bodies.iter().map(|body| message(body, job.timeout)).collect();
    Ok(Prepared { protocol: method.protocol(), messages, form, users, treatments })
}

/// Writes a request and its answer, for other load generators and checks.
fn save(
    directory: &Path,
    at: usize,
    method: Method,
    [request, answer]: [&[u8]; 2],
) -> Result<(), Error> {
    let kind = if method == Method::Json { "json" } else { "binpb" };
    for (name, content) in [("request", request), ("answer", answer)] {
        let path = directory.join(format!("{name}-{at}.{kind}"));
        fs::write(&path, content).map_err(|source| Error::File { path, source })?;
    }
    Ok(())
}

async fn encode(job: &Job, client: &Client, requests: &Requests) -> Result<Vec<Vec<u8>>, Error> {
    match &job.target {
        Target::Model { model, .. } => {
            Ok(requests.all.iter().map(|request| request.addressed(model)).collect())
        }
        Target::Servable(servable) => {
            let plan = job.plan("to create tensors")?;
            let found = servable.find(plan, client, &job.server, FIRST).await?;
            requests.all.iter().map(|request| found.message(plan, request)).collect()
        }
    }
}
