use std::{fs, sync::Barrier, time::Duration};

use futures::FutureExt as _;
use outrigger_core::{EngineId, ModelName, PackageLayout, ServableName, Version, Versions};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::Clock;

pub(super) const WAIT: Duration = Duration::from_secs(10);
/// The memory of a loaded [`Meeting`] in bytes.
const MEETING: usize = 1 << 20;

/// A model whose runs end when as many are under way as the barrier asks for.
struct Meeting {
    runs: Barrier,
    remark: Option<String>,
}

impl Meeting {
    fn of(runs: usize) -> Self {
        Self { runs: Barrier::new(runs), remark: None }
    }
}

impl Model for Meeting {
    fn interface(&self, _: &str) -> Option<Interface> {
        None
    }

    fn run(&self, _: Call) -> Result<Vec<Tensor>, RunError> {
        self.runs.wait();
        Ok(Vec::new())
    }

    fn remark(&self) -> Option<String> {
        self.remark.clone()
    }

    fn memory(&self) -> usize {
        MEETING
    }
}

/// Binds a version whose runs wait for `runs` of them.
fn bound(runs: usize) -> Bound {
    bind(Arc::new(Meeting::of(runs)))
}

/// Binds a version of this model, on a pool of two threads.
fn bind(model: Arc<dyn Model>) -> Bound {
    bind_on(&Pool::start(2), model)
}

/// Binds a version of this model, whose long runs are on this pool.
pub(super) fn bind_on(pool: &Pool, model: Arc<dyn Model>) -> Bound {
    let (id, models) = (id(1), engine_on(pool, &Budget::default()).models);
    let memory = Budget::default().plans.open(Owner::of(&id.name));
    lock(&models.loaded).insert(id.clone(), Arc::new(Held { model, _memory: memory }));
    Bound { id, signature: "serving_default".into(), models, estimates: Arc::default() }
}

fn id(version: i64) -> ServableId {
    let name: ModelName = "m".parse().expect("a valid name");
    ServableId { name: ServableName::of(&name), version: Version(version) }
}

/// The file with the remark about the files of a [`Meeting`], if there is one.
const REMARK: &str = "remark";

/// The framework of [`Meeting`]s, whose files take a thousand times their size to be read.
const MEETINGS: Framework = Framework {
    name: "meeting",
    layout: PackageLayout {
        directory: "meeting",
        files: &["m"],
        parts: &[],
        max_file: 1,
        versioned: false,
    },
    reading: |size| size * 1000,
    interface: |_, _| Ok(Interface::default()),
    others: None,
    describer: None,
    remark: None,
};

fn engine_on(pool: &Pool, budget: &Budget) -> Local {
    let load: Load = |model| {
        let remark = fs::read_to_string(model.directory.join(REMARK)).ok();
        Ok(Arc::new(Meeting { remark, ..Meeting::of(1) }))
    };
    Local::on(pool.clone(), vec![MEETINGS], load, budget)
}

/// A running engine, with a directory whose model has a file of `size` bytes.
struct Loading {
    engine: Arc<Local>,
    events: mpsc::Receiver<(EngineId, Event)>,
    directory: TempDir,
    _task: JoinSet<()>,
}

impl Loading {
    fn start(budget: &Budget, size: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("m"), vec![0; size]).expect("a file");
        let (engine, (reports, events)) =
            (Arc::new(engine_on(&Pool::start(1), budget)), mpsc::channel(16));
        let (versions, clock) = (Versions::after(Version(1)), Clock::start());
        let start = Start { engine: EngineId::default(), clock, versions, events: reports };
        let task = JoinSet::from_iter([Arc::clone(&engine).run(start)]);
        Self { engine, events, directory, _task: task }
    }

    /// Loads a version, or unloads it. Returns the engine's report about it.
    async fn send(&mut self, message: ToEngine) -> FromEngine {
        if let ToEngine::Add(id) = &message {
            let model = self.directory.path().into();
            self.engine.publish(id.clone(), Digest::of(b"m"), model).await.expect("published");
        }
        self.engine.send(message);
        loop {
            let event = timeout(WAIT, self.events.recv()).await.expect("a report");
            if let Some((_, Event::Version(report))) = event {
                return report;
            }
        }
    }
}

pub(super) fn call(within: Duration) -> Call {
    Call::new(Vec::new(), Vec::new(), Instant::now() + within)
}

#[tokio::test]
async fn a_run_that_may_be_long_does_not_occupy_the_callers_thread() {
    let bound = bound(2);
    let (one, other) = tokio::join!(bound.run(call(WAIT)), bound.run(call(WAIT)));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
}

#[tokio::test]
async fn short_runs_move_to_the_callers_thread() {
    // A run that waits for another one would keep the caller's thread.
    let unknown = bound(2);
    let mut first = unknown.run(call(WAIT));
    assert!((&mut first).now_or_never().is_none(), "nothing is known about the first run");
    let (first, second) = futures::join!(first, unknown.run(call(WAIT)));
    first.and(second).expect("they run");
    let bound = bound(1);
    while !bound.estimates.pace.is_short(0) {
        bound.run(call(WAIT)).await.expect("it runs");
    }
    assert!(bound.run(call(WAIT)).now_or_never().is_some());
}

const ONE: ContributionSize = ContributionSize { margins: 1, columns: 0, by_id: false };

/// One contribution to a row.
fn half() -> Explanation {
    let values = tensor("contributions".into(), vec![1, 1, 1], &[0.5]);
    Explanation { values, columns: None }
}

/// A model with one contribution for each row, whose explanation waits for `self.0` to be dropped.
struct Explained(Mutex<Option<std::sync::mpsc::Receiver<()>>>);

impl Model for Explained {
    fn interface(&self, _: &str) -> Option<Interface> {
        None
    }

    fn run(&self, _: Call) -> Result<Vec<Tensor>, RunError> {
        Ok(Vec::new())
    }

    fn contributions(&self, _: &str) -> Result<ContributionSize, RunError> {
        Ok(ONE)
    }

    fn explain(&self, _: Call, _: Proceed<'_>) -> Result<Explanation, RunError> {
        if let Some(end) = lock(&self.0).take() {
            // The sender is dropped, so that there is nothing to receive.
            end.recv().ok();
        }
        Ok(half())
    }

    fn memory(&self) -> usize {
        0
    }
}

#[tokio::test]
async fn an_explanation_does_not_occupy_the_callers_thread_and_ends_at_the_deadline() {
    let (end, ended) = std::sync::mpsc::channel();
    let bound = bind_on(&Pool::start(1), Arc::new(Explained(Mutex::new(Some(ended)))));
    assert_eq!(bound.contributions().expect("a size").of_row(), 1);
    // Until the first one ends, there is no place for the second.
    for _ in 0..2 {
        let late = bound.explain(call(Duration::from_millis(50))).await;
        assert!(matches!(late, Err(RunError::DeadlineExceeded)), "{late:?}");
    }
    drop(end);
    let explained = bound.explain(call(WAIT)).await.expect("contributions");
    assert_eq!(explained.values.shape, [1, 1, 1]);
}

/// A model whose first explanation ends only when it is to end, and reports that it has begun.
struct Endless(Mutex<Option<oneshot::Sender<()>>>);

impl Model for Endless {
    fn interface(&self, _: &str) -> Option<Interface> {
        None
    }

    fn run(&self, _: Call) -> Result<Vec<Tensor>, RunError> {
        Ok(Vec::new())
    }

    fn contributions(&self, _: &str) -> Result<ContributionSize, RunError> {
        Ok(ONE)
    }

    fn explain(&self, _: Call, proceed: Proceed<'_>) -> Result<Explanation, RunError> {
        let Some(begun) = lock(&self.0).take() else { return Ok(half()) };
        begun.send(()).expect("the test waits");
        while proceed() {
            std::thread::yield_now();
        }
        Err(RunError::DeadlineExceeded)
    }

    fn memory(&self) -> usize {
        0
    }
}

#[tokio::test]
async fn an_explanation_ends_when_its_caller_has_gone() {
    let (begin, begun) = oneshot::channel();
    let bound = bind_on(&Pool::start(1), Arc::new(Endless(Mutex::new(Some(begin)))));
    let first = bound.explain(call(1000 * WAIT));
    tokio::select! {
        ended = first => panic!("it goes on: {ended:?}"),
        begun = begun => begun.expect("it begins"),
    }
    // Its future is dropped by now. There is one place, which the next one takes.
    bound.explain(call(WAIT)).await.expect("contributions");
}

#[tokio::test]
async fn an_explanation_that_panics_is_a_failure() {
    let (begin, begun) = oneshot::channel();
    drop(begun);
    let bound = bind_on(&Pool::start(1), Arc::new(Endless(Mutex::new(Some(begin)))));
    let failed = bound.explain(call(WAIT)).await.expect_err("nobody waits for it to begin");
    assert!(failed.to_string().contains("panicked"), "{failed}");
    bound.explain(call(WAIT)).await.expect("contributions");
}

#[tokio::test]
async fn a_model_without_contributions_says_so() {
    let bound = bound(1);
    let refused = [bound.contributions().err(), bound.explain(call(WAIT)).await.err()];
    for error in refused {
        let error = error.expect("there are none");
        assert_eq!(error.reason(), Reason::ContributionsUnsupported);
        assert!(error.to_string().contains("computes no contributions"), "{error}");
    }
}

#[tokio::test]
async fn a_loaded_model_is_charged_until_it_is_unloaded() {
    let budget = Budget::new(64 << 20);
    let mut loading = Loading::start(&budget, 1);
    assert_eq!(loading.send(ToEngine::Add(id(1))).await, FromEngine::Up(id(1)));
    assert_eq!((budget.packages.used(), budget.plans.used()), (0, MEETING as u64));
    assert_eq!(loading.send(ToEngine::Remove(id(1))).await, FromEngine::Gone(id(1)));
    assert_eq!(budget.plans.used(), 0);
}

/// Keeps the events of this thread with the level WARN, as text.
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn fmt::Debug| {
            text += &format!("{field}={value:?} ");
        });
        lock(&self.0).push(text);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_remark_about_the_files_of_a_model_is_logged_at_its_load() {
    let lines = Arc::default();
    let _guard = tracing::subscriber::set_default(Warnings(Arc::clone(&lines)));
    let mut loading = Loading::start(&Budget::new(64 << 20), 1);
    let file = loading.directory.path().join(REMARK);
    fs::write(file, "its files are odd").expect("a file");
    assert_eq!(loading.engine.remark(&id(1)), None, "it is not loaded");
    assert_eq!(loading.send(ToEngine::Add(id(1))).await, FromEngine::Up(id(1)));
    let digest = Digest::of(b"m");
    let line = format!("message=its files are odd servable={} model.digest={digest} ", id(1));
    assert_eq!(*lock(&lines), [line]);
    assert_eq!(loading.engine.remark(&id(1)).as_deref(), Some("its files are odd"));
}

#[tokio::test]
async fn a_model_that_never_fits_into_the_account_of_packages_is_refused() {
    // Packages have an eighth: 128 KiB.
    let budget = Budget::new(1 << 20);
    let mut loading = Loading::start(&budget, 200);
    let report = loading.send(ToEngine::Add(id(1))).await;
    let FromEngine::Failed(_, failure) = report else { panic!("{report:?}") };
    assert_eq!(failure.reason, Reason::ImageInvalid);
    assert!(failure.message.contains("server.memory"), "{failure}");
}

#[tokio::test]
async fn a_model_without_memory_for_it_is_not_loaded_until_another_one_is_unloaded() {
    // Plans have 2.4 MiB, of which one owner may hold half.
    let budget = Budget::new(16 << 20);
    let mut loading = Loading::start(&budget, 1);
    assert_eq!(loading.send(ToEngine::Add(id(1))).await, FromEngine::Up(id(1)));
    let report = loading.send(ToEngine::Add(id(2))).await;
    let FromEngine::Failed(failed, failure) = report else { panic!("{report:?}") };
    assert_eq!((failed, failure.reason), (id(2), Reason::MemoryFull));
    loading.send(ToEngine::Remove(id(1))).await;
    assert_eq!(loading.send(ToEngine::Add(id(3))).await, FromEngine::Up(id(3)));
}
