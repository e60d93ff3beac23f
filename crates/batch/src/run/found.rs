//! The input, the hosts and the store that a run finds at its start.

use outrigger_tables::may_pass;

use super::alive::is_at_work;
use crate::{
    Control, Environment, Error, Manifest,
    hosts::Hosts,
    input::{self, Input},
    job::Job,
    names::Names,
    plan::Plan,
    retry::retried,
    store::Store,
};

/// The most bytes of a message, as a share of the memory.
const MESSAGE_SHARE: u64 = 4;

/// The hosts of a job, or those that its control object has `named` in their place. Its engines are
/// started, and the names looked up. A name that has no address now is looked up again later, unless
/// no host is left.
///
/// # Errors
/// No host has an address, or an engine does not start.
pub(super) async fn hosts(
    environment: &Environment,
    job: &Job,
    named: Option<&[String]>,
) -> Result<(Hosts, Names), Error> {
    let max_message = usize::try_from(job.memory.0 / MESSAGE_SHARE).unwrap_or(usize::MAX);
    let engines = environment.engines(job).await?;
    let hosts = Hosts::new(job, engines, max_message);
    let names = Names::new(hosts.configured(named));
    let (names, problems) = names.looked_up(&*environment.resolver).await;
    match problems.is_empty() || !names.hosts().is_empty() {
        true => Ok((hosts, names)),
        false => Err(Error::failed(format!("no host has an address: {}", problems.join("; ")))),
    }
}

/// The job with its input, which is that of its patterns or of another job's dead letters. The
/// patterns have absolute paths then. Blocks.
///
/// # Errors
/// There is no such input, or the output would be a part of it.
pub(super) fn input(mut job: Job) -> Result<(Job, Input), Error> {
    for pattern in &mut job.input.0 {
        *pattern = input::absolute(pattern)?;
    }
    input::check_apart(&job.input.0, ("output", &job.output))?;
    if let Some(compaction) = &job.compact {
        input::check_apart(&job.input.0, ("compact", &compaction.to))?;
    }
    match job.retry.clone() {
        Some(first) => retried(job, &Store::at(&first)?),
        None => Input::find(&job.input.0, job.format).map(|input| (job.for_lines(), input)),
    }
}

/// The plan of the job in a store, and the manifest if it is finished. Blocks.
///
/// # Errors
/// The store failed, or has something else than a job.
pub(super) fn find(store: &Store) -> Result<Option<(Plan, Option<Manifest>)>, Error> {
    match Plan::read(store)? {
        Some(plan) => Ok(Some((plan, Manifest::read(store)?))),
        None => check_has_no_other(store).map(|()| None),
    }
}

/// The control object of a job that is run again, without a cancellation, which is revoked. It holds
/// while other workers are at work: they may not have seen it. Blocks.
///
/// # Errors
/// The job is cancelled, or the store failed.
pub(super) fn resume(store: &Store) -> Result<Control, Error> {
    let control = Control::read(store)?;
    if !control.cancelled {
        return Ok(control);
    }
    if is_at_work(store)? {
        // The worker may have revoked the cancellation and begun since it was read.
        let control = Control::read(store)?;
        return if control.cancelled { Err(Error::Cancelled) } else { Ok(control) };
    }
    Control::change(store, |control| {
        control.cancelled = false;
        Ok(())
    })
}

/// Refuses a directory that has something else than a job.
fn check_has_no_other(store: &Store) -> Result<(), Error> {
    let root = store.root().display();
    match store.is_empty() {
        Ok(true) => Ok(()),
        // Another worker has begun the job since the plan was looked for.
        Ok(false) if Plan::read(store)?.is_some() => Ok(()),
        Ok(false) => Err(Error::usage(format!("output: {root} exists already and is not a job"))),
        Err(error) => {
            let message = format_args!("output: {root}: {error}");
            Err(Error::of_settings(message, may_pass(&error)))
        }
    }
}
