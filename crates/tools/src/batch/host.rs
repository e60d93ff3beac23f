//! An engine as a host of a batch job. It is started again when it ends.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use outrigger_batch::{Answer, Description, Endpoint, Usage};
use outrigger_feature_table::{described, optional};
use outrigger_features::Plan;
use outrigger_oip::metadata::ModelMetadata;
use outrigger_oip_client::{Class, Failure, Ledger, ModelRef, Request};
use outrigger_score::Scorer;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Launch, table};
use crate::in_engine::InEngine;

/// The first and the longest pause before an engine that has ended is started again.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(60);
/// An engine that has run so long does not end at its start.
const STABLE: Duration = Duration::from_secs(60);

/// An engine with the model of the job.
pub(super) struct Host {
    name: Arc<str>,
    plan: Arc<Plan>,
    /// The digest of the package, which is the model's version.
    digest: String,
    state: watch::Receiver<State>,
    /// The task that starts the engine again. The engine ends with it.
    _task: JoinSet<()>,
}

/// The state of an engine.
enum State {
    Up(Scorer),
    /// The reason why it cannot be called now.
    Down(String),
}

impl Host {
    /// The engine called `name`, which has loaded the model.
    pub(super) fn new(name: &str, loaded: InEngine, launch: Launch) -> Self {
        let (sender, state) = watch::channel(State::Up(loaded.scorer.clone()));
        let (plan, digest) = (Arc::clone(&launch.plan), launch.fetched.image.digest.to_string());
        let mut task = JoinSet::new();
        task.spawn(supervise(loaded, launch, sender));
        Self { name: name.into(), plan, digest, state, _task: task }
    }

    fn scorer(&self) -> Result<Scorer, Failure> {
        match &*self.state.borrow() {
            State::Up(scorer) => Ok(scorer.clone()),
            State::Down(reason) => {
                let message = format!("{}: {reason}", self.name);
                Err(Failure::of_engine(Class::Unavailable, message))
            }
        }
    }
}

/// Starts an engine again whenever it ends, until the task is dropped.
async fn supervise(mut loaded: InEngine, launch: Launch, state: watch::Sender<State>) {
    let (mut started, mut pause) = (Instant::now(), PAUSE);
    loop {
        let reason = loaded.ended().await;
        state.send_replace(State::Down(reason));
        // Its process must be gone before the next one starts.
        drop(loaded);
        if started.elapsed() >= STABLE {
            pause = PAUSE;
        }
        loaded = loop {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            match launch.start().await {
                Ok(loaded) => break loaded,
                Err(error) => _ = state.send_replace(State::Down(error.to_string())),
            }
        };
        started = Instant::now();
        state.send_replace(State::Up(loaded.scorer.clone()));
    }
}

impl Endpoint for Host {
    fn infer<'a>(
        &'a self,
        request: &'a Request,
        _: &'a dyn Ledger,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let outputs = table::score(self.scorer()?, request).await;
            let outputs = outputs.map_err(|(class, failure)| {
                Failure::of_engine(class, format!("{}: {failure}", self.name))
            })?;
            let (version, usage) = (Some(self.digest.clone()), Usage::default());
            Ok(Answer { outputs, version, usage })
        })
    }

    fn describe<'a>(
        &'a self,
        model: ModelRef<'a>,
        _: Instant,
    ) -> BoxFuture<'a, Result<Description, Failure>> {
        let (inputs, outputs) = described(&self.plan);
        let metadata = ModelMetadata {
            name: model.name.to_owned(),
            versions: vec![self.digest.clone()],
            platform: self.plan.metadata().framework.to_string(),
            inputs,
            outputs,
        };
        let description = Description { metadata, optional: optional(self.plan.metadata()) };
        Box::pin(std::future::ready(Ok(description)))
    }

    fn is_ready<'a>(&'a self, _: ModelRef<'a>, _: Instant) -> BoxFuture<'a, Result<bool, Failure>> {
        let is_up = matches!(&*self.state.borrow(), State::Up(_));
        Box::pin(std::future::ready(Ok(is_up)))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("name", &self.name).finish_non_exhaustive()
    }
}
