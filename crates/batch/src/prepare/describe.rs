//! The description of the model by its hosts.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use outrigger_dispatch::HostId;
use outrigger_oip_client::{Failure, ModelRef, Status};
use outrigger_resilience::{Backoff, Class};
use tokio::{
    select,
    task::JoinSet,
    time::{Instant, sleep},
};
use tonic::Code;

use super::trial::{PATIENCE, SILENCE};
use crate::{Description, Endpoint, Error, hosts::Hosts, job::Job};

/// The time limit of a question to a host.
const QUESTION: Duration = Duration::from_secs(30);

/// The description of the model by the first host that answers. Hosts that answer that they have no
/// time are asked again.
///
/// # Errors
/// The model is not there, or no host answers.
pub(super) async fn describe(
    job: &Job,
    hosts: &Hosts,
    numbers: &[HostId],
) -> Result<Description, Error> {
    let endpoints: Vec<_> = numbers.iter().filter_map(|host| hosts.endpoint(*host)).collect();
    let (start, mut made) = (Instant::now(), 0);
    loop {
        let mut failures = Vec::new();
        if let Some(description) = ask(job, &endpoints, &mut failures).await? {
            return Ok(description);
        }
        let is_busy = |it: &Failure| match it.class {
            Class::Overloaded => true,
            Class::Unavailable => it.status != Status::None,
            _ => false,
        };
        if start.elapsed() >= PATIENCE || !failures.iter().any(is_busy) {
            let failures: Vec<_> = failures.iter().map(ToString::to_string).collect();
            return Err(Error::failed(format!("no host answers: {}", failures.join("; "))));
        }
        made += 1;
        let pause = Backoff::default().pause(made, rand::random());
        let wanted = failures.iter().filter_map(|it| it.retry_after).min();
        sleep(wanted.unwrap_or(pause).max(pause)).await;
    }
}

/// Asks one host after the other, and the next one too if one is silent. `None` if all have failed.
async fn ask(
    job: &Job,
    endpoints: &[Arc<dyn Endpoint>],
    failures: &mut Vec<Failure>,
) -> Result<Option<Description>, Error> {
    let model = &job.model;
    let (mut others, mut questions) = (endpoints.iter(), JoinSet::new());
    loop {
        if let Some(endpoint) = others.next().cloned() {
            let (name, version) = (model.name.clone(), model.version.clone());
            questions.spawn(async move {
                let model = ModelRef { name: &name, version: version.as_deref() };
                endpoint.describe(model, Instant::now() + QUESTION).await
            });
        }
        let answer = select! {
            answer = questions.join_next() => answer,
            () = sleep(SILENCE), if others.len() > 0 => continue,
        };
        match answer.transpose().map_err(Error::failed)? {
            Some(Ok(description)) => return Ok(Some(description)),
            Some(Err(failure)) if failure.is_not_served() => {
                let name = &model.name;
                return Err(Error::Usage(format!("the model {name:?} is not there: {failure}")));
            }
            Some(Err(failure)) if is_unknown(&failure) => return Ok(Some(Description::default())),
            Some(Err(failure)) => failures.push(failure),
            None => return Ok(None),
        }
    }
}

/// True if the host does not describe models.
fn is_unknown(failure: &Failure) -> bool {
    matches!(
        failure.status,
        Status::Grpc(Code::Unimplemented)
            | Status::Http(StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
    )
}
