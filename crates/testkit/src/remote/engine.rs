//! The engine as the control plane has it: the client of [`super::Server`].

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use outrigger_core::{
    Digest, Failure, Interface, Moment, Reason, ServableId, Tensor,
    engine::{Condition, FromEngine, ToEngine},
};
use outrigger_run::{
    self as run, Adopted, Call, Event, Failed, Framework, Location, PackagedModel, Run, RunError,
    Start, Target,
};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, timeout_at},
};

use super::{
    Reply, Request, SCRIPTED, read,
    server::{call, lock},
};

/// The time between two comparisons with the server.
const INTERVAL: Duration = Duration::from_millis(20);

/// An engine in another process.
pub struct Engine {
    client: Arc<Client>,
    /// The deadline of calls that are not made for a request.
    timeout: Duration,
    /// The directories of the models that may have to be loaded.
    published: Mutex<BTreeMap<ServableId, (Digest, PathBuf)>>,
    /// Versions of an earlier process.
    adopted: Mutex<BTreeSet<ServableId>>,
    inbox: mpsc::UnboundedSender<ToEngine>,
    received: Mutex<Option<mpsc::UnboundedReceiver<ToEngine>>>,
}

/// The part of the engine that requests use.
struct Client {
    socket: PathBuf,
    /// Notified when a run fails in a way that suggests an outage.
    suspect: Notify,
}

/// The engine's task: compares the versions that are wanted with those that the server has, at
/// each message and every [`INTERVAL`], and has the server load and unload the difference.
struct Task {
    engine: Arc<Engine>,
    start: Start,
    /// The versions to load; true for those reported as up.
    wanted: BTreeMap<ServableId, bool>,
    leaving: BTreeSet<ServableId>,
    condition: Condition,
    /// The last time at which the server answered.
    answered: Option<Moment>,
    /// The number of the server's start, once it is known.
    started: Option<u64>,
}

/// The result of one comparison.
struct Compared {
    start: u64,
    /// The versions that the server had before.
    had: BTreeSet<ServableId>,
    failures: BTreeMap<ServableId, Failure>,
}

impl Engine {
    /// Creates the client of the server at `socket`. Calls that no request waits for end after
    /// `timeout`.
    pub fn new(socket: PathBuf, timeout: Duration) -> Self {
        let (inbox, received) = mpsc::unbounded_channel();
        Self {
            client: Arc::new(Client { socket, suspect: Notify::new() }),
            timeout,
            published: Mutex::default(),
            adopted: Mutex::default(),
            inbox,
            received: Mutex::new(Some(received)),
        }
    }

    async fn call(&self, request: Request) -> Result<Reply, RunError> {
        self.client.call(request, Instant::now() + self.timeout).await
    }

    async fn load(&self, id: &ServableId) -> Result<Reply, RunError> {
        let directory = lock(&self.published).get(id).map(|(_, directory)| directory.clone());
        let model = directory.ok_or_else(|| "it was not published".to_owned());
        match model.and_then(|directory| read(&directory).map_err(|error| error.message)) {
            Ok(model) => self.call(Request::Load(id.clone(), model)).await,
            Err(message) => Err(failed(message)),
        }
    }

    /// Makes the server load the missing versions and unload the unwanted ones. A version that was up,
    /// true in `wanted`, is not loaded again.
    async fn compare(&self, wanted: BTreeMap<ServableId, bool>) -> Result<Compared, RunError> {
        let (start, had) = match self.call(Request::List).await? {
            Reply::Loaded { start, versions } => (start, BTreeSet::from_iter(versions)),
            other => return Err(failed(format!("{other:?}"))),
        };
        for id in had.iter().filter(|id| !wanted.contains_key(id)) {
            self.call(Request::Unload(id.clone())).await?;
        }
        let mut failures = BTreeMap::new();
        for (id, _) in wanted.iter().filter(|(id, is_up)| !**is_up && !had.contains(id)) {
            match self.load(id).await {
                Ok(_) => {}
                Err(error @ RunError::Failed { .. }) => {
                    failures.insert(id.clone(), Failure::because(error.reason(), &error));
                }
                Err(outage) => return Err(outage),
            }
        }
        Ok(Compared { start, had, failures })
    }
}

impl Client {
    async fn call(&self, request: Request, deadline: Instant) -> Result<Reply, RunError> {
        let reply = timeout_at(deadline, call(&self.socket, &request)).await;
        match reply.map_err(|_| RunError::DeadlineExceeded)? {
            Ok(Reply::Failed(message)) => Err(failed(message)),
            Ok(Reply::NotServed(servable)) => Err(RunError::NotServed { servable }),
            Ok(Reply::Refused(message)) => Err(RunError::of_input(&message)),
            Ok(Reply::NotReady) => Err(RunError::NotReady { message: "it refuses".to_owned() }),
            Ok(reply) => Ok(reply),
            Err(error) => Err(RunError::Unavailable(error.into())),
        }
    }
}

fn failed(message: String) -> RunError {
    RunError::Failed { code: "Failed".to_owned(), message }
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ToEngine>) {
        let mut settled = false;
        loop {
            let compared = self.engine.compare(self.wanted.clone()).await;
            self.report_condition(&compared).await;
            if let Ok(compared) = compared {
                self.report_versions(compared).await;
                if !std::mem::replace(&mut settled, true) {
                    self.start.report(Event::Settled).await;
                }
            }
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                () = self.engine.client.suspect.notified() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
            while let Ok(message) = inbox.try_recv() {
                self.handle(message);
            }
        }
    }

    fn handle(&mut self, message: ToEngine) {
        match message {
            ToEngine::Add(id) => drop(self.wanted.insert(id, false)),
            ToEngine::Remove(id) => {
                self.wanted.remove(&id);
                self.leaving.insert(id);
            }
            ToEngine::Expect(_) | ToEngine::Unexpect(_) => {}
        }
    }

    async fn report_condition(&mut self, compared: &Result<Compared, RunError>) {
        let (restarts, now) = (self.condition.restarts, self.start.clock.now());
        let condition = match compared {
            Ok(Compared { start, .. }) => {
                self.answered = Some(now);
                let before = self.started.replace(*start);
                let restarted = before.is_some_and(|before| before != *start);
                Condition { restarts: restarts + u64::from(restarted), ..Condition::up() }
            }
            Err(error) => {
                let failure = Failure::because(error.reason(), error);
                self.condition.down(failure, self.answered, now)
            }
        };
        if condition != self.condition {
            self.condition = condition.clone();
            self.start.report(Event::Condition(condition)).await;
        }
    }

    async fn report_versions(&mut self, Compared { had, failures, .. }: Compared) {
        let mut reports: Vec<_> =
            std::mem::take(&mut self.leaving).into_iter().map(FromEngine::Gone).collect();
        self.wanted.retain(|id, is_up| {
            let is_lost = *is_up && !had.contains(id);
            reports.extend(is_lost.then(|| FromEngine::Lost(id.clone())));
            let is_new = !std::mem::replace(is_up, true) && !failures.contains_key(id);
            reports.extend(is_new.then(|| FromEngine::Up(id.clone())));
            !is_lost && !failures.contains_key(id)
        });
        reports.extend(failures.into_iter().map(|(id, failure)| FromEngine::Failed(id, failure)));
        for report in reports {
            self.start.report(Event::Version(report)).await;
        }
    }
}

impl run::Engine for Engine {
    fn frameworks(&self) -> &[Framework] {
        &[SCRIPTED]
    }

    fn location(&self) -> Location {
        Location::Elsewhere
    }

    fn adopt(&self, loaded: Vec<Adopted>) -> Result<BTreeSet<ServableId>, Failure> {
        let mut adopted = BTreeSet::new();
        for Adopted { id, digest, model } in loaded {
            lock(&self.published).insert(id.clone(), (digest, model));
            adopted.insert(id);
        }
        *lock(&self.adopted) = adopted.clone();
        Ok(adopted)
    }

    fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        model: PackagedModel,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        lock(&self.published).insert(id, (digest, model.directory));
        Box::pin(std::future::ready(Ok(())))
    }

    fn unpublish(&self, id: ServableId) -> BoxFuture<'_, ()> {
        lock(&self.published).remove(&id);
        Box::pin(std::future::ready(()))
    }

    fn unpublish_image(&self, digest: Digest) -> BoxFuture<'_, ()> {
        lock(&self.published).retain(|_, (of, _)| *of != digest);
        Box::pin(std::future::ready(()))
    }

    fn send(&self, message: ToEngine) {
        // The receiver ends with the engine's task, when the process stops.
        self.inbox.send(message).ok();
    }

    fn run(self: Arc<Self>, start: Start) -> BoxFuture<'static, ()> {
        let received = lock(&self.received).take().expect("an engine is run once");
        let wanted = std::mem::take(&mut *lock(&self.adopted));
        let task = Task {
            engine: self,
            start,
            wanted: wanted.into_iter().map(|id| (id, false)).collect(),
            leaving: BTreeSet::new(),
            condition: Condition::default(),
            answered: None,
            started: None,
        };
        Box::pin(task.run(received))
    }

    fn bind(&self, target: Target) -> Arc<dyn Run> {
        Arc::new(Bound { client: Arc::clone(&self.client), id: target.id })
    }

    fn shares_process(&self, _: &ServableId) -> bool {
        true
    }

    fn interface<'a>(
        &'a self,
        id: &'a ServableId,
        _: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, RunError>> {
        Box::pin(async move {
            match self.client.call(Request::Describe(id.clone()), deadline).await? {
                Reply::Model(model) => Ok(model.interface()),
                other => Err(failed(format!("{other:?}"))),
            }
        })
    }
}

/// One version on the server.
struct Bound {
    client: Arc<Client>,
    id: ServableId,
}

impl Run for Bound {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        Box::pin(async move {
            let inputs = call.inputs.iter().cloned().map(Into::into).collect();
            let request = Request::Run(self.id.clone(), inputs);
            match self.client.call(request, call.deadline).await {
                Ok(Reply::Outputs(outputs)) => Ok(outputs.into_iter().map(Into::into).collect()),
                Ok(other) => Err(failed(format!("{other:?}"))),
                Err(error) if error.reason() == Reason::EngineUnavailable => {
                    self.client.suspect.notify_one();
                    Err(RunError::Unsent { inputs: call.inputs, source: Box::new(error) })
                }
                Err(error) => Err(error),
            }
        })
    }
}
