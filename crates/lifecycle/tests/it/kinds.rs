//! The engines beside TensorFlow Serving: two in this process and one in another, with their
//! packages.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use outrigger_budget::Budget;
use outrigger_canary::Outcome;
use outrigger_core::{Arm, Content, EngineId, Failure, ServableId};
use outrigger_lifecycle::{Handle, Lease};
use outrigger_proto::outrigger::v1::{Value, value};
use outrigger_run::Engine;
use outrigger_testkit::{
    layers::LayerBuilder,
    package::{Framework, Package},
    remote::{self, Request, Server},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::rig::{ANSWERING, MakeEngine, PATIENCE, Rig, acquire, run};

/// The scores of one treatment that [`Load`] asks for, without the model's bias.
const SCORES: std::ops::Range<f32> = 0.0..8.0;

/// A kind of engine.
#[derive(Clone)]
pub(crate) struct Kind {
    /// The name of the engine: that of its framework, unless there are two of the kind.
    pub(crate) name: &'static str,
    pub(crate) framework: Framework,
    /// The process of an engine elsewhere.
    pub(crate) server: Option<Arc<Server>>,
    /// The patience with that process.
    pub(crate) timeout: Duration,
}

impl Kind {
    /// The engine in this process for linear models.
    pub(crate) fn linear() -> Self {
        Self::of(Framework::Linear, None)
    }

    /// The engine in this process for trees.
    pub(crate) fn trees() -> Self {
        Self::of(Framework::Xgboost, None)
    }

    /// The engine in another process.
    pub(crate) fn scripted() -> Self {
        let server = Server::start().expect("a socket");
        Self::of(Framework::Scripted, Some(Arc::new(server)))
    }

    fn of(framework: Framework, server: Option<Arc<Server>>) -> Self {
        Self { name: framework.name(), framework, server, timeout: ANSWERING }
    }

    pub(crate) fn id(&self) -> EngineId {
        EngineId::new(self.name)
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_deref().expect("an engine elsewhere")
    }

    /// The versions that the other process was requested to load, in order.
    pub(crate) fn loads(&self) -> Vec<ServableId> {
        let loads = self.server().received().into_iter().filter_map(|request| match request {
            Request::Load(id, _) => Some(id),
            _ => None,
        });
        loads.collect()
    }

    pub(crate) fn make(&self) -> MakeEngine {
        let Self { framework, server, timeout, .. } = self.clone();
        let (id, budget) = (self.id(), Budget::default());
        Arc::new(move || {
            let engine: Arc<dyn Engine> = match (&server, framework) {
                (Some(server), _) => Arc::new(remote::Engine::new(server.socket(), timeout)),
                (None, Framework::Xgboost) => Arc::new(outrigger_forest::engine(&budget)),
                (None, _) => Arc::new(outrigger_testkit::linear::engine(&budget)),
            };
            (id.clone(), engine)
        })
    }

    /// A rig with this engine beside TensorFlow Serving.
    pub(crate) async fn rig(&self) -> Rig {
        let mut rig = Rig::new().await;
        rig.beside.push(self.make());
        rig
    }

    /// The framework of its models.
    pub(crate) fn framework(&self) -> Framework {
        self.framework
    }

    /// The layer of `package`, made for this kind.
    pub(crate) fn package(&self, package: Package) -> LayerBuilder {
        let framework = self.framework();
        let files = Package { framework, ..package }.files().into_iter();
        let layer = LayerBuilder::new().dir("data").dir(&format!("data/{}", framework.name()));
        files.fold(layer, |layer, (path, text)| layer.file(&format!("data/{path}"), text))
    }
}

/// The score of a treatment whose features have the sum `sum`.
pub(crate) async fn score(lease: &Lease, sum: f32) -> Result<f32, Failure> {
    let mut request = lease.scorer.plan.smoke_request();
    let features = [("t0", sum - 1.0), ("t1", 1.0)]
        .map(|(name, value)| (name.to_owned(), Value { kind: Some(value::Kind::Number(value)) }));
    request.treatments[0].features = features.into();
    let outputs = run(lease, &request).await?;
    let Content::Bytes(scores) = &outputs[0].content else { panic!("floats") };
    Ok(f32::from_le_bytes(scores[..4].try_into().expect("a score")))
}

/// A load of requests for one model; none may fail.
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    answered: watch::Sender<usize>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts four callers of `model:latest`.
    pub(crate) fn start(handle: &Handle, model: &'static str) -> Self {
        let (over, answered) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(0));
        let caller = || call(handle.clone(), model, Arc::clone(&over), answered.clone());
        let clients = (0..4).map(|_| caller()).collect();
        Self { over, answered, clients }
    }

    /// Waits until `count` more requests have been answered.
    pub(crate) async fn more(&self, count: usize) {
        let enough = *self.answered.borrow() + count;
        let mut answered = self.answered.subscribe();
        let reached = timeout(PATIENCE, answered.wait_for(|answered| *answered >= enough));
        reached.await.expect("the load goes on").expect("the load goes on");
    }

    /// Ends the load, and checks that every request was answered.
    pub(crate) async fn succeeded(self) {
        self.over.store(true, SeqCst);
        self.clients.join_all().await;
        assert!(*self.answered.borrow() > 0);
    }
}

/// Sends requests as the server does: if the canary fails, live answers.
async fn call(
    handle: Handle,
    model: &'static str,
    over: Arc<AtomicBool>,
    answered: watch::Sender<usize>,
) {
    let mut pace = interval(Duration::from_millis(5));
    // After a delay, a burst of ticks would keep the engines' tasks from running.
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !over.load(SeqCst) {
        pace.tick().await;
        let lease = acquire(&handle, model).await.expect("served all the time");
        let sum = rand::random_range(SCORES);
        let score = score(&lease, sum).await;
        lease.end_call();
        match score {
            Ok(score) => lease.observe(Default::default(), Outcome::Scored(score.into())),
            Err(error) => {
                assert_eq!(lease.arm(), Arm::Canary, "{error}");
                lease.observe(Default::default(), Outcome::Failed);
                let live = lease.stand_in().expect("a canary has a live version");
                self::score(&live, sum).await.expect("live answers");
            }
        }
        answered.send_modify(|count| *count += 1);
    }
}
