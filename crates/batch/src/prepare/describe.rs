//! The description of the model by its hosts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::StatusCode;
use outrigger_dispatch::HostId;
use outrigger_oip::metadata::TensorMetadata;
use outrigger_oip_client::{Failure, ModelRef, Status};
use outrigger_resilience::{Backoff, Class};
use tokio::{
    select,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tonic::Code;

use super::trial::{PATIENCE, SILENCE};
use crate::{Description, Endpoint, Error, hosts::Hosts, job::Job};

/// The time limit of a question to a host.
const QUESTION: Duration = Duration::from_secs(30);

/// The description of the model that most hosts give. Hosts that answer that they have no time are
/// asked again. Where hosts differ about the outputs, none counts as described: answers decide.
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
        let heard = ask(job, &endpoints, &mut failures).await?;
        if let Some(description) = common(heard) {
            return Ok(description);
        }
        if let Some(failure) = failures.iter().find(|it| it.is_not_served()) {
            let name = &job.model.name;
            return Err(Error::Usage(format!("the model {name:?} is not there: {failure}")));
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

/// Asks all hosts. Returns the descriptions, in the order of the hosts, of those that answer soon after
/// the first one.
async fn ask(
    job: &Job,
    endpoints: &[Arc<dyn Endpoint>],
    failures: &mut Vec<Failure>,
) -> Result<Vec<Description>, Error> {
    let mut heard = BTreeMap::new();
    let mut questions = JoinSet::new();
    for (number, endpoint) in endpoints.iter().cloned().enumerate() {
        let name = job.model.name.clone();
        let version = job.model.version.clone();
        questions.spawn(async move {
            let model = ModelRef { name: &name, version: version.as_deref() };
            (number, endpoint.describe(model, Instant::now() + QUESTION).await)
        });
    }
    let mut until = None;
    loop {
        let ended = select! {
            ended = questions.join_next() => ended,
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break,
        };
        let Some((number, answer)) = ended.transpose().map_err(Error::failed)? else { break };
        match answer {
            Ok(description) => _ = heard.insert(number, description),
            Err(failure) if is_unknown(&failure) => {
                heard.insert(number, Description::default());
            }
            Err(failure) => failures.push(failure),
        }
        if !heard.is_empty() {
            until.get_or_insert_with(|| Instant::now() + SILENCE);
        }
    }
    Ok(heard.into_values().collect())
}

/// The description that most of those give which have outputs; the first one of several. Without a
/// majority no output is described.
fn common(heard: Vec<Description>) -> Option<Description> {
    let has_outputs = heard.iter().any(|it| !it.metadata.outputs.is_empty());
    let is_of_use = |it: &Description| !has_outputs || !it.metadata.outputs.is_empty();
    let heard: Vec<_> = heard.into_iter().filter(is_of_use).collect();
    let votes = |it: &Description| heard.iter().filter(|other| is_same(it, other)).count();
    let found = heard.iter().rev().max_by_key(|it| votes(it))?;
    let mut common = found.clone();
    if 2 * votes(found) <= heard.len() {
        common.metadata.outputs.clear();
    }
    Some(common)
}

/// True if both describe the same tensors, in whatever order.
fn is_same(one: &Description, other: &Description) -> bool {
    let is_part = |some: &[TensorMetadata], of: &[TensorMetadata]| {
        some.len() == of.len() && some.iter().all(|tensor| of.contains(tensor))
    };
    is_part(&one.metadata.inputs, &other.metadata.inputs)
        && is_part(&one.metadata.outputs, &other.metadata.outputs)
        && one.optional == other.optional
}

/// True if the host does not describe models.
fn is_unknown(failure: &Failure) -> bool {
    matches!(
        failure.status,
        Status::Grpc(Code::Unimplemented)
            | Status::Http(StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
    )
}

#[cfg(test)]
mod tests {
    use outrigger_oip::metadata::ModelMetadata;

    use super::*;

    /// A description of an output with rows of this size; of none if it is 0.
    fn described(size: i64) -> Description {
        let output = TensorMetadata {
            name: "y".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![-1, size],
        };
        let outputs = if size == 0 { Vec::new() } else { vec![output] };
        let metadata = ModelMetadata { outputs, ..ModelMetadata::default() };
        Description { metadata, ..Description::default() }
    }

    fn common_of(sizes: &[i64]) -> Option<i64> {
        let found = common(sizes.iter().map(|size| described(*size)).collect())?;
        Some(found.metadata.outputs.first().map_or(0, |output| output.shape[1]))
    }

    #[test]
    fn the_description_of_most_hosts_counts() {
        for (sizes, expected) in [
            (&[][..], None),
            (&[2], Some(2)),
            (&[0, 0], Some(0)),
            (&[0, 0, 2], Some(2)),
            (&[3, 2, 2], Some(2)),
            (&[3, 2], Some(0)),
            (&[3, 2, 2, 3], Some(0)),
        ] {
            assert_eq!(common_of(sizes), expected, "{sizes:?}");
        }
    }
}
