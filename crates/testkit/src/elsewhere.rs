//! Scenarios of engines elsewhere: what must hold for each of them when its servers fail, or callers
//! send bad data. An engine's test implements [`Site`] and calls the scenarios.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use outrigger_core::{
    Digest, EngineId, ModelName, Reason, ServableId, ServableName, Version, Versions,
    engine::{Condition, FromEngine, ToEngine},
};
use outrigger_run::{
    Call, Clock, Engine, Event, PackagedModel, RowLayout, Run, RunError, Start, Target,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout},
};

/// The time limit for any wait, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The deadline of a run.
const DEADLINE: Duration = Duration::from_secs(20);

/// The servers of an engine, as a test can make them fail.
pub trait Site {
    /// Starts another engine in front of the servers, as after a restart of the control plane.
    fn engine(&self) -> Arc<dyn Engine>;

    /// The number of servers.
    fn servers(&self) -> usize;

    /// The files of the version with this number, each with a model of its own.
    fn package(&self, number: i64) -> PackagedModel;

    /// A run of a version, by this time.
    fn call(&self, deadline: Instant) -> Call;

    /// Ends the process of a server: connections break, nothing listens, its models are lost.
    fn stop(&self, server: usize) -> BoxFuture<'_, ()>;

    /// Starts the process again at the same address, without models.
    fn resume(&self, server: usize) -> BoxFuture<'_, ()>;

    /// Changes the answers of a server.
    fn behave(&self, server: usize, behaviour: Behaviour);

    /// The loads, unloads and runs that the server was told so far.
    fn told(&self, server: usize) -> Told;

    /// The number of runs that the server has answered so far.
    fn answered(&self, server: usize) -> usize;
}

/// The answers of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// It works.
    Works,
    /// It takes connections, and answers nothing.
    IsSilent,
    /// It is healthy, and answers no run.
    Hangs,
    /// It is healthy, and has none of the models that runs name.
    Lacks,
    /// It is healthy, and fails each run.
    Fails,
    /// It refuses the values of each run.
    Refuses,
}

/// The calls that a server was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// Loads.
    pub loads: usize,
    /// Unloads.
    pub unloads: usize,
    /// Runs.
    pub runs: usize,
}

/// A running engine in front of a site.
struct Bench<'a, S> {
    site: &'a S,
    engine: Arc<dyn Engine>,
    events: mpsc::Receiver<(EngineId, Event)>,
    clock: Clock,
    condition: Condition,
    task: JoinHandle<()>,
}

impl<S> Drop for Bench<'_, S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn version(number: i64) -> ServableId {
    let name: ModelName = format!("m{number}").parse().expect("a name");
    ServableId { name: ServableName::of(&name), version: Version(number) }
}

impl<'a, S: Site> Bench<'a, S> {
    fn start(site: &'a S) -> Self {
        let engine = site.engine();
        let (reports, events) = mpsc::channel(64);
        let clock = Clock::start();
        let start = Start {
            engine: EngineId::default(),
            clock,
            versions: Versions::after(Version(1)),
            events: reports,
        };
        let task = tokio::spawn(Arc::clone(&engine).run(start));
        Self { site, engine, events, clock, condition: Condition::default(), task }
    }

    /// Publishes and adds a version.
    async fn add(&self, number: i64) {
        let digest: Digest = format!("sha256:{number:064}").parse().expect("a digest");
        let model = self.site.package(number);
        self.engine.publish(version(number), digest, model).await.expect("published");
        self.engine.send(ToEngine::Add(version(number)));
    }

    /// Adds versions, and waits until they are up.
    async fn up(&mut self, numbers: &[i64]) {
        for number in numbers {
            self.add(*number).await;
            assert_eq!(self.next().await, FromEngine::Up(version(*number)));
        }
    }

    /// Adds a version, and waits until every server runs it, as the engine knows.
    async fn up_everywhere(&mut self, number: i64) {
        self.up(&[number]).await;
        for server in 0..self.site.servers() {
            self.until_runs_at(server, number).await;
        }
        self.until_condition("well", |it| *it == Condition::up()).await;
    }

    /// Waits for the next report about a version.
    async fn next(&mut self) -> FromEngine {
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await.expect("a report in time");
            match event.expect("the engine runs").1 {
                Event::Version(report) => return report,
                Event::Condition(condition) => self.condition = condition,
                Event::Settled => {}
            }
        }
    }

    /// Waits until the condition of the engine is such.
    async fn until_condition(&mut self, what: &str, holds: impl Fn(&Condition) -> bool) {
        let wait = async {
            while !holds(&self.condition) {
                match self.events.recv().await.expect("the engine runs").1 {
                    Event::Condition(condition) => self.condition = condition,
                    Event::Version(report) => panic!("{report:?} before {what}"),
                    Event::Settled => {}
                }
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not {what}"));
    }

    fn bound(&self, number: i64) -> Arc<dyn Run> {
        self.engine.bind(Target {
            id: version(number),
            signature: "serving_default".into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            layout: RowLayout::Unknown,
        })
    }

    async fn run(&self, number: i64) -> Result<(), RunError> {
        self.run_by(number, Instant::now() + DEADLINE).await
    }

    async fn run_by(&self, number: i64, deadline: Instant) -> Result<(), RunError> {
        self.bound(number).run(self.site.call(deadline)).await.map(drop)
    }

    async fn runs(&self, number: i64, times: usize) {
        for time in 0..times {
            self.run(number).await.unwrap_or_else(|error| panic!("run {time}: {error}"));
        }
    }

    /// Runs a version until the site is such. No run fails.
    async fn runs_until(&self, number: i64, what: &str, holds: impl Fn(&S) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self.site) {
            assert!(Instant::now() < end, "not {what}");
            self.runs(number, 1).await;
        }
    }

    /// Waits until a server answers runs of a version.
    async fn until_runs_at(&self, server: usize, number: i64) {
        let before = self.site.answered(server);
        let what = format!("a run at server {server}");
        self.runs_until(number, &what, |site| site.answered(server) > before).await;
    }

    fn told(&self, server: usize) -> Told {
        self.site.told(server)
    }
}

/// A server that is down while versions come and go is left out, and follows when it is back.
pub async fn one_is_down_at_load(site: &impl Site) {
    site.stop(1).await;
    let mut bench = Bench::start(site);
    bench.up(&[1]).await;
    bench.runs(1, 10).await;
    // Another tag, and a restart of the control plane.
    bench.up(&[2]).await;
    bench.engine.send(ToEngine::Remove(version(1)));
    assert_eq!(bench.next().await, FromEngine::Gone(version(1)));
    bench.until_condition("one is away", |it| it.is_reachable() && it.failure.is_some()).await;
    assert_eq!(bench.told(0), Told { loads: 2, unloads: 1, runs: 10 }, "each was told once");
    drop(bench);
    let mut bench = Bench::start(site);
    bench.up(&[2]).await;
    bench.runs(2, 10).await;
    assert_eq!(bench.told(1), Told::default(), "it is down");
    site.resume(1).await;
    bench.until_runs_at(1, 2).await;
    assert_eq!(bench.told(1).loads, 1);
    bench.until_condition("well", |it| *it == Condition::up()).await;
}

/// A server that restarts without its models loads them again, and gets no run before. No run fails.
pub async fn one_restarts_empty(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    for _ in 0..2 {
        let before = bench.told(1);
        site.stop(1).await;
        bench.runs(1, 20).await;
        site.resume(1).await;
        bench.until_runs_at(1, 1).await;
        assert_eq!(bench.told(1).loads, before.loads + 1, "loaded once again");
    }
    assert_eq!(bench.told(0).loads, 1);
    assert_eq!((bench.told(0).unloads, bench.told(1).unloads), (0, 0));
}

/// Servers that restart one after the other fail no run.
pub async fn all_restart_in_turn(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    for server in 0..site.servers() {
        site.stop(server).await;
        bench.runs(1, 20).await;
        site.resume(server).await;
        bench.until_runs_at(server, 1).await;
    }
}

/// A server that says that it does not have the model: the other one is asked at once.
pub async fn one_lacks_the_model(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    site.behave(1, Behaviour::Lacks);
    let start = Instant::now();
    let before = bench.told(1).runs;
    bench.runs(1, 50).await;
    // A pause for each would be a hundred seconds.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let asked = bench.told(1).runs - before;
    assert!((1..=6).contains(&asked), "{asked} runs at the server without the model");
}

/// A healthy server that fails each run is left out. No run fails.
pub async fn one_fails_each_run(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    site.behave(1, Behaviour::Fails);
    let before = bench.told(1).runs;
    bench.runs(1, 50).await;
    let asked = bench.told(1).runs - before;
    // Five in a row, and then one after each pause.
    assert!((1..=10).contains(&asked), "{asked} runs at the server that fails them");
    site.behave(1, Behaviour::Works);
    bench.until_runs_at(1, 1).await;
}

/// A healthy server that answers no run is left out after five of them.
pub async fn one_hangs(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    site.behave(1, Behaviour::Hangs);
    let before = bench.told(1).runs;
    let mut failed = 0;
    for _ in 0..40 {
        let deadline = Instant::now() + Duration::from_millis(500);
        failed += usize::from(bench.run_by(1, deadline).await.is_err());
    }
    let asked = bench.told(1).runs - before;
    assert!(failed <= 1 && (1..=6).contains(&asked), "{failed} failed, {asked} at the server");
    bench.until_condition("one is left out", |it| it.failure.is_some()).await;
}

/// Servers that are all down: runs fail with the reason and are kept, nothing is loaded meanwhile, and
/// each version is loaded once when they are back.
pub async fn all_are_down(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    let servers = 0..site.servers();
    for server in servers.clone() {
        site.stop(server).await;
    }
    bench.run(1).await.expect_err("none answers");
    bench.until_condition("all are away", |it| it.reachable == Some(false)).await;
    let error = bench.run(1).await.expect_err("none answers");
    assert!(matches!(error, RunError::Unsent { .. }), "{error:?}");
    assert_eq!(error.reason(), Reason::EngineUnavailable);
    bench.add(2).await;
    let before: Vec<_> = servers.clone().map(|server| bench.told(server).loads).collect();
    for server in servers.clone() {
        site.resume(server).await;
    }
    let mut reports = vec![bench.next().await, bench.next().await];
    // A version that was up is lost with the servers; the new one need not be.
    let is_lost = reports.contains(&FromEngine::Lost(version(1)));
    assert!(is_lost, "{reports:?}");
    bench.engine.send(ToEngine::Add(version(1)));
    reports.push(bench.next().await);
    for up in [FromEngine::Up(version(1)), FromEngine::Up(version(2))] {
        assert!(reports.contains(&up), "{reports:?}");
    }
    bench.runs(1, 10).await;
    for server in servers {
        bench.until_runs_at(server, 1).await;
        assert_eq!(bench.told(server).loads, before[server] + 2, "each version once");
    }
}

/// Servers that take connections and answer nothing have been away since their last answers: the
/// patience of requests begins there.
pub async fn all_are_silent(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    (0..site.servers()).for_each(|server| site.behave(server, Behaviour::IsSilent));
    bench.until_condition("all are away", |it| it.reachable == Some(false)).await;
    let Condition { down_since, failure, .. } = &bench.condition;
    let silent = down_since.map(|since| bench.clock.now().since(since));
    assert!(silent >= Some(Duration::from_secs(2)), "{silent:?}");
    assert_eq!(failure.as_ref().map(|failure| failure.reason), Some(Reason::Deadline));
    (0..site.servers()).for_each(|server| site.behave(server, Behaviour::Works));
    bench.until_condition("well", |it| *it == Condition::up()).await;
    bench.runs(1, 10).await;
}

/// Values that servers refuse are the caller's fault: nothing is repeated, and no server is left out.
pub async fn a_caller_sends_bad_data(site: &impl Site) {
    let mut bench = Bench::start(site);
    bench.up_everywhere(1).await;
    let servers = 0..site.servers();
    let runs = || servers.clone().map(|server| site.told(server).runs).sum::<usize>();
    servers.clone().for_each(|server| site.behave(server, Behaviour::Refuses));
    let before = runs();
    for _ in 0..10 {
        let error = bench.run(1).await.expect_err("refused");
        assert_eq!(error.reason(), Reason::RequestMalformed, "{error:?}");
    }
    assert_eq!(runs() - before, 10, "none was repeated");
    servers.clone().for_each(|server| site.behave(server, Behaviour::Works));
    for server in servers {
        bench.until_runs_at(server, 1).await;
    }
    bench.until_condition("well", |it| *it == Condition::up()).await;
}
