//! Validation of files: scores the rows of a file below `validation.directory` with a model, beside
//! the predictions of callers.
//!
//! A run has a thread of its own and a fixed share of the memory for requests. Its calls to the
//! engine take the path of predictions from the lease of the version to the check of the outputs,
//! but not their places: they are made while no prediction waits, and no metric, no canary and no
//! sample of requests counts them.

mod batches;
mod failure;
mod memory;
mod report;
mod request;
mod turn;

use std::{
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use outrigger_budget::{Charge, Owner};
use outrigger_core::{Failure, Reason};
use outrigger_lifecycle::Handle;
use outrigger_proto::outrigger::v1::{ValidateFileRequest, ValidateFileResponse};
use outrigger_validation::{Features, Files, Memory, Options, Progress, Report};
use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, Receiver, Sender},
    },
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};
use tonic::Status;

use self::{batches::Batches, turn::Turns};
use crate::{
    audit::Record, call::Call, config, front::Method, heavy::Heavy, metrics,
    request_limits::RequestLimits, routing,
};

/// The interval at which the progress is reported.
const INTERVAL: Duration = Duration::from_secs(1);
/// The messages that wait for a slow caller; more of the progress are dropped.
const EVENTS: usize = 4;
/// A run takes this part of the account of requests, in eighths.
const SHARE: u64 = 3;

/// A message to the caller, or the failure that ends the run.
pub(crate) type Event = Result<ValidateFileResponse, Status>;

/// Validates files. Clones share the one place.
#[derive(Clone)]
pub(crate) struct Validation {
    models: Handle,
    limits: RequestLimits,
    heavy: Heavy,
    directory: Option<PathBuf>,
    turns: Turns,
    place: Arc<Semaphore>,
}

/// A run that may begin. Its place and its memory are released when it is dropped.
struct Run {
    files: Files,
    options: Options,
    batches: Batches,
    features: Features,
    deadline: Instant,
    _memory: Charge,
    _place: OwnedSemaphorePermit,
}

impl Validation {
    /// `threads` serve predictions.
    pub(crate) fn new(
        config: &config::Validation,
        models: Handle,
        limits: RequestLimits,
        (heavy, threads): (Heavy, usize),
    ) -> Self {
        let turns = Turns::new(limits.admission.clone(), config.max_in_flight, threads);
        let (directory, place) = (config.directory.clone(), Arc::new(Semaphore::new(1)));
        Self { models, limits, heavy, directory, turns, place }
    }

    /// Begins the run that a call requests. Returns its messages; it ends when they are dropped.
    ///
    /// # Errors
    /// The request is not valid, another run is in progress, or the model cannot be served.
    pub(crate) async fn begin(
        &self,
        call: &Call,
        request: ValidateFileRequest,
        record: &mut Record,
    ) -> Result<Receiver<Event>, Failure> {
        let run = self.prepare(call, request, record).await?;
        let (sender, events) = mpsc::channel(EVENTS);
        self.heavy.begin(move || run.report_to(sender));
        Ok(events)
    }

    async fn prepare(
        &self,
        call: &Call,
        request: ValidateFileRequest,
        record: &mut Record,
    ) -> Result<Run, Failure> {
        let Some(directory) = &self.directory else {
            let message = "files are not validated here: validation.directory is not set";
            return Err(Failure::new(Reason::MethodUnknown, message));
        };
        let (name, selector) = routing::target(request.model.as_ref(), &self.models)?;
        let account = &self.limits.budget.requests;
        let bytes = account.limit() / 8 * SHARE;
        let limits = Memory::within(bytes, self.turns.most());
        let (files, options) = request::read(request, directory, limits)?;
        let busy = |_| Failure::new(Reason::Overloaded, "another file is being validated");
        let place = Arc::clone(&self.place).try_acquire_owned().map_err(busy)?;
        let memory = account.charge(Owner::of(&"validation"), bytes)?;
        let deadline = call.deadline();
        let lease = self.models.acquire_live(&name, &selector, deadline).await?;
        record.found(&lease.key.digest);
        let max_treatments = lease.scorer.limits().max_treatments;
        Ok(Run {
            files,
            options: Options { max_treatments, ..options },
            features: Features::of(lease.scorer.plan.metadata()),
            batches: Batches::new(&self.models, &self.limits.budget, &self.turns, &lease, deadline),
            deadline,
            _memory: memory,
            _place: place,
        })
    }
}

impl Run {
    /// Scores the file, and sends the progress and the outcome. Ends early if nobody listens.
    async fn report_to(self, events: Sender<Event>) {
        let progress = Progress::default();
        let Some(outcome) = self.outcome(&events, &progress).await else {
            metrics::validated(metrics::CANCELLED, progress.rows());
            return;
        };
        self.log(&outcome);
        let reason =
            outcome.as_ref().map_or_else(|failure| failure.reason.as_str(), |_| metrics::OK);
        metrics::validated(reason, progress.rows());
        let event = outcome.map(|report| report::report(&report));
        // A caller who has the outcome can begin another run.
        drop(self);
        // The caller may have gone away meanwhile.
        let _ = events.send(event.map_err(|failure| crate::failure::to_status(&failure))).await;
    }

    /// Scores the file, and sends the progress. Returns `None` if nobody listens any more.
    async fn outcome(
        &self,
        events: &Sender<Event>,
        progress: &Progress,
    ) -> Option<Result<Report, Failure>> {
        let mut ended = pin!(AssertUnwindSafe(self.score(progress)).catch_unwind());
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                biased;
                () = events.closed() => return None,
                outcome = &mut ended => break outcome,
                // A slow caller misses the progress only.
                _ = ticks.tick() => drop(events.try_send(Ok(report::progress(progress)))),
            }
        };
        Some(outcome.unwrap_or_else(|_panic| {
            metrics::panicked(Method::Validation);
            Err(Failure::new(Reason::Internal, "a defect in the server; its log has more"))
        }))
    }

    async fn score(&self, progress: &Progress) -> Result<Report, Failure> {
        let predictor = (&self.batches, self.features.clone());
        let run = outrigger_validation::run(&self.files, predictor, &self.options, progress);
        match timeout_at(self.deadline, run).await {
            Ok(ended) => ended.map_err(failure::of),
            Err(_) => Err(Failure::new(Reason::Deadline, "the caller's deadline passed")),
        }
    }

    fn log(&self, outcome: &Result<Report, Failure>) {
        // Callers chose these texts. They are separate fields, which the log quotes.
        let Files { input, scores, .. } = &self.files;
        let (input, scores) = (input.to_str(), scores.as_deref().and_then(Path::to_str));
        match outcome {
            Ok(Report { rows, scored, errors, .. }) => {
                tracing::info!(input, scores, rows, scored, errors, "validated a file");
            }
            Err(Failure { reason, message, .. }) => {
                let (reason, error) = (reason.as_str(), message.as_str());
                tracing::warn!(input, scores, reason, error, "a file was not validated");
            }
        }
    }
}
