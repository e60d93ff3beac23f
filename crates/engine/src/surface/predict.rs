//! Predict: decodes a request, runs the model, encodes the answer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use outrigger_net::run_beside;
use outrigger_proto::tensorflow::serving::{ModelSpec, model_spec::VersionChoice};
use tokio::{sync::OwnedSemaphorePermit, task, time::Instant};
use tonic::Code;

use super::{
    Surface,
    deadline::{self, Deadlines},
    reply::Reply,
    request::Request,
    spec, tensor_in,
    tensor_out::Outgoing,
};
use crate::{
    batching::{self, Batcher},
    manager::Handle,
    servable::{Servable, Signature},
    status::Status,
    tensorflow::{Endpoint, Executor, Runtime, Session, Tensor},
};

/// The signature for a request that names none.
const DEFAULT_SIGNATURE: &str = "serving_default";

/// Answers an encoded `PredictRequest` with a framed `PredictResponse`. At the deadline
/// the caller gets its error at once; a run that TensorFlow does not interrupt continues
/// and keeps its permits until it ends.
///
/// A run that is expected to be short takes place on this thread: waking another one and
/// being woken again costs as much as the run.
pub(super) async fn predict(
    surface: &Arc<Surface>,
    message: Bytes,
    Deadlines { answer: deadline, begin }: Deadlines,
) -> Result<Bytes, Status> {
    let permit = surface.calls.enter()?;
    let request = Request::parse(&message)
        .map_err(|malformed| Status::new(Code::Internal, malformed.to_string()))?;
    let servable = spec::resolve(surface, request.model_spec.as_ref())?;
    let bytes = message.len();
    let call = Call { servable, request, bytes, deadline };
    if let Some(batcher) = &call.servable.batcher {
        return call.run_in_batch(surface, batcher, permit).await;
    }
    let turn = deadline::within(begin, call.servable.turn()).await?;
    let thread = if call.is_short() { RunThread::Connection } else { RunThread::Blocking };
    let shared = Arc::clone(surface);
    let work = move || {
        // The permits are released when the work is done, which may be later than the answer.
        let _permits = (turn, permit);
        call.run(&shared, thread)
    };
    let ran = async {
        match thread {
            RunThread::Connection => run_beside(work).await,
            RunThread::Blocking => task::spawn_blocking(work).await.ok(),
        }
    };
    let reply = deadline::within(deadline, ran).await?;
    let reply = reply.unwrap_or_else(|| Err(Status::new(Code::Internal, "the run panicked")))?;
    deadline.map(remaining).transpose().and(Ok(reply))
}

/// The thread of a run.
#[derive(Debug, Clone, Copy)]
enum RunThread {
    /// The thread that serves the connection, until the run takes long.
    Connection,
    /// A thread that may block.
    Blocking,
}

impl AsRef<Session> for Handle<Servable> {
    fn as_ref(&self) -> &Session {
        &self.session
    }
}

/// A call with everything its run needs.
struct Call {
    servable: Handle<Servable>,
    request: Request,
    /// Length of the request's message.
    bytes: usize,
    deadline: Option<Instant>,
}

impl Call {
    fn spec(&self) -> Result<&ModelSpec, Status> {
        self.request.model_spec.as_ref().ok_or_else(spec::missing)
    }

    fn signature(&self) -> Result<(&str, &Signature), Status> {
        let name = Some(self.spec()?.signature_name.as_str()).filter(|name| !name.is_empty());
        let name = name.unwrap_or(DEFAULT_SIGNATURE);
        let signature = self.servable.signatures.get(name).ok_or_else(|| {
            Status::precondition(format!("Serving signature key \"{name}\" not found."))
        })?;
        Ok((name, signature))
    }

    fn is_short(&self) -> bool {
        self.signature().is_ok_and(|(_, signature)| signature.pace.is_short(self.bytes))
    }

    /// Runs the model on the current thread.
    fn run(&self, surface: &Surface, thread: RunThread) -> Result<Bytes, Status> {
        let (name, signature) = self.signature()?;
        let inputs = inputs(surface.runtime, signature, &self.request)?;
        let outputs = outputs(signature, &self.request.output_filter)?;
        let fetches: Vec<Endpoint> = outputs.iter().map(|(_, endpoint)| *endpoint).collect();
        let timeout = self.deadline.map(remaining).transpose()?;
        let session = &self.servable.session;
        let tensors = if let Some(stats) = &surface.step_stats {
            stats.run(session, &inputs, &fetches)?
        } else {
            let executor = match thread {
                RunThread::Connection => Executor::Caller,
                RunThread::Blocking => Executor::Pool(timeout),
            };
            let start = Instant::now();
            let tensors = session.run(&inputs, &fetches, executor)?;
            signature.pace.record(self.bytes, start.elapsed());
            tensors
        };
        let aliases = outputs.iter().map(|(alias, _)| (*alias).to_owned());
        self.answer(name, aliases, tensors, surface.as_content)
    }

    /// Runs the model as part of a batch. At the deadline the caller gets its error at once, and the
    /// batch is run without it. The call needs no permit to run: the threads of batching limit runs.
    async fn run_in_batch(
        &self,
        surface: &Surface,
        batcher: &Batcher,
        permit: OwnedSemaphorePermit,
    ) -> Result<Bytes, Status> {
        let (name, signature) = self.signature()?;
        let names = signature.inputs.values().map(|port| port.name.clone());
        let inputs = names.zip(inputs(surface.runtime, signature, &self.request)?);
        let outputs = outputs(signature, &self.request.output_filter)?;
        let outcome = batcher.submit(batching::Request {
            session: Box::new(self.servable.clone()),
            inputs: inputs.map(|(name, (place, tensor))| (name, place, tensor)).collect(),
            outputs: outputs.iter().map(|(_, endpoint)| *endpoint).collect(),
            deadline: self.deadline,
            permit,
        })?;
        let tensors = deadline::within(self.deadline, outcome).await?;
        let tensors =
            tensors.map_err(|_| Status::new(Code::Internal, "the run of the batch panicked"))??;
        let aliases = outputs.iter().map(|(alias, _)| (*alias).to_owned());
        self.answer(name, aliases, tensors, surface.as_content)
    }

    fn answer(
        &self,
        signature: &str,
        aliases: impl Iterator<Item = String>,
        tensors: Vec<Tensor>,
        as_content: bool,
    ) -> Result<Bytes, Status> {
        let tensors = tensors.into_iter().map(|tensor| Outgoing::new(tensor, as_content));
        let reply = Reply {
            outputs: aliases.zip(tensors).collect(),
            model_spec: ModelSpec {
                name: self.spec()?.name.clone(),
                version_choice: Some(VersionChoice::Version(self.servable.version())),
                signature_name: signature.to_owned(),
            },
        };
        reply.framed()
    }
}

fn remaining(deadline: Instant) -> Result<Duration, Status> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(deadline::exceeded()) } else { Ok(left) }
}

/// The tensors to feed: those of the request, and defaults for omitted ones.
fn inputs(
    runtime: Runtime,
    signature: &Signature,
    request: &Request,
) -> Result<Vec<(Endpoint, Tensor)>, Status> {
    check_count(signature, request)?;
    let mut used = 0;
    let mut inputs = Vec::with_capacity(signature.inputs.len());
    for (alias, port) in &signature.inputs {
        let proto: &[u8] = match (request.inputs.get(alias), signature.defaults.get(alias)) {
            (Some(sent), _) => {
                used += 1;
                sent
            }
            (None, Some(default)) => default,
            (None, None) => return Err(missing_input(alias, &port.name, signature)),
        };
        let tensor = tensor_in::decode(runtime, proto)
            .ok_or_else(|| Status::invalid(format!("tensor parsing error: {alias}")))?;
        inputs.push((port.endpoint()?, tensor));
    }
    if used < request.inputs.len() {
        let sent = join(request.inputs.keys());
        return Err(Status::invalid(format!(
            "Inputs contains invalid name. Used request inputs: {used}. Request inputs: {{{sent}}}."
        )));
    }
    Ok(inputs)
}

fn check_count(signature: &Signature, request: &Request) -> Result<(), Status> {
    let (sent, known) = (request.inputs.len(), signature.inputs.len());
    if sent == known || (sent < known && !signature.defaults.is_empty()) {
        return Ok(());
    }
    let sent_names: BTreeSet<_> = request.inputs.keys().collect();
    let known_names: BTreeSet<_> = signature.inputs.keys().collect();
    Err(Status::invalid(format!(
        "input size does not match signature: {sent}!={known} len({{{}}}) != len({{{}}}). Sent extra: {{{}}}. Missing but required: {{{}}}.",
        join(&sent_names),
        join(&known_names),
        join(sent_names.difference(&known_names)),
        join(known_names.difference(&sent_names)),
    )))
}

fn missing_input(alias: &str, feed: &str, signature: &Signature) -> Status {
    Status::invalid(format!(
        "Signature input alias: {alias}(feed name: {feed}) not found in request and no default value provided. Inputs expected to be in the set {{{}}}.",
        join(signature.inputs.keys())
    ))
}

/// The tensors to fetch: those of the filter, or all if there is none.
fn outputs<'a>(
    signature: &'a Signature,
    filter: &'a [String],
) -> Result<Vec<(&'a str, Endpoint)>, Status> {
    if filter.is_empty() {
        let all = signature.outputs.iter();
        return all.map(|(alias, port)| Ok((alias.as_str(), port.endpoint()?))).collect();
    }
    let mut seen = BTreeSet::new();
    let mut outputs = Vec::with_capacity(filter.len());
    for alias in filter {
        let port = signature.outputs.get(alias).ok_or_else(|| {
            let known = join(signature.outputs.keys());
            Status::invalid(format!(
                "output tensor alias not found in signature: {alias} Outputs expected to be in the set {{{known}}}."
            ))
        })?;
        if !seen.insert(alias) {
            return Err(Status::invalid(format!("duplicate output tensor alias: {alias}")));
        }
        outputs.push((alias.as_str(), port.endpoint()?));
    }
    Ok(outputs)
}

fn join<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let mut joined = String::new();
    for name in names {
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(name.as_ref());
    }
    joined
}
