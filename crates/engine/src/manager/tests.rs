use std::{
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use tonic::Code;

use super::*;

/// A manager that acts only in its ticks, a monitor, and a log of its loaders' calls.
struct World {
    manager: Manager<String>,
    monitor: Monitor,
    record: Arc<Mutex<Vec<String>>>,
}

/// A loader whose first loads fail. It logs each call with the state of its version at
/// that time.
struct Fake {
    id: ServableId,
    monitor: Monitor,
    record: Arc<Mutex<Vec<String>>>,
    failures: AtomicU32,
    /// A load waits until this receives a message.
    gate: Option<Mutex<Receiver<()>>>,
    files_gone: bool,
}

impl Fake {
    fn log(&self, act: &str) {
        let state = self.monitor.version(&self.id.name, self.id.version).map(|state| state.state);
        let line = format!("{act} {}{} {state:?}", self.id.name, self.id.version);
        self.record.lock().unwrap().push(line);
    }
}

impl Loader<String> for Fake {
    fn estimate(&self) -> Result<u64, Status> {
        if self.files_gone { Err(Status::not_found("no files")) } else { Ok(1) }
    }

    fn load(&self) -> Result<String, Status> {
        self.log("load");
        if let Some(gate) = &self.gate {
            gate.lock().unwrap().recv().expect("the test opens the gate");
        }
        let left = self.failures.load(Ordering::SeqCst);
        if left == 0 {
            return Ok(self.id.to_string());
        }
        self.failures.store(left - 1, Ordering::SeqCst);
        Err(Status::new(Code::DataLoss, format!("{left} to go")))
    }

    fn unload(&self, _: String) {
        self.log("unload");
    }
}

impl World {
    fn new() -> Self {
        Self::with(0, 0)
    }

    fn with(threads: usize, max_retries: u32) -> Self {
        let manager = Manager::new(Config {
            load_threads: threads,
            unload_threads: threads,
            max_retries,
            retry_interval: Duration::ZERO,
        });
        Self { monitor: manager.bus().monitor(), manager, record: Arc::default() }
    }

    fn fake(&self, name: &str, version: i64) -> Fake {
        Fake {
            id: ServableId { name: name.into(), version },
            monitor: self.monitor.clone(),
            record: Arc::clone(&self.record),
            failures: AtomicU32::new(0),
            gate: None,
            files_gone: false,
        }
    }

    fn aspire(&self, name: &str, versions: &[i64]) {
        let fakes = versions.iter().map(|&version| self.fake(name, version));
        self.aspire_fakes(name, fakes);
    }

    fn aspire_fakes(&self, name: &str, fakes: impl IntoIterator<Item = Fake>) {
        let aspired = fakes
            .into_iter()
            .map(|fake| Aspired { version: fake.id.version, loader: Arc::new(fake) as _ });
        self.manager.aspire(name, aspired.collect());
    }

    fn aspire_failing(&self, name: &str, version: i64) {
        let fake = Fake { failures: AtomicU32::new(u32::MAX), ..self.fake(name, version) };
        self.aspire_fakes(name, [fake]);
    }

    /// Aspires to a version whose load waits for a message on the returned sender.
    fn aspire_gated(&self, name: &str, version: i64) -> Sender<()> {
        let (open, gate) = channel();
        self.aspire_fakes(name, [Fake { gate: Some(gate.into()), ..self.fake(name, version) }]);
        open
    }

    fn ticks(&self, count: usize) {
        (0..count).for_each(|_| self.manager.tick());
    }

    fn state(&self, name: &str, version: i64) -> Option<State> {
        self.monitor.version(name, version).map(|state| state.state)
    }

    fn failure(&self, name: &str, version: i64) -> Status {
        let state = self.monitor.version(name, version).expect("the version is known");
        assert_eq!(state.state, State::End);
        state.status.expect_err("the version has failed")
    }

    fn latest(&self, name: &str) -> Option<i64> {
        self.manager.handle(name, None).map(|handle| handle.version())
    }

    fn record(&self) -> Vec<String> {
        self.record.lock().unwrap().clone()
    }

    async fn reaches(&self, name: &str, version: i64, state: State) {
        let mut states = self.monitor.states.subscribe();
        let there = |states: &state::States| {
            states.get(name).and_then(|all| all.get(&version)).is_some_and(|at| at.state == state)
        };
        states.wait_for(there).await.expect("the monitor lives");
    }
}

#[test]
fn a_name_or_version_that_is_not_loaded_has_no_handle() {
    let world = World::new();
    world.aspire("a", &[1]);
    world.ticks(1);
    assert!(world.manager.handle("b", None).is_none());
    assert!(world.manager.handle("a", Some(2)).is_none());
    assert_eq!(*world.manager.handle("a", Some(1)).unwrap(), "{name: a version: 1}");
}

#[test]
fn the_latest_is_the_highest_available_version() {
    let world = World::new();
    world.aspire("a", &[1, 3]);
    world.ticks(1);
    assert_eq!(world.latest("a"), Some(3), "the highest is loaded first");
    assert_eq!(world.state("a", 1), Some(State::Start));
    world.ticks(1);
    assert_eq!(world.latest("a"), Some(3));
    assert_eq!(world.manager.handle("a", Some(1)).unwrap().version(), 1);
}

#[test]
fn a_version_passes_through_every_state() {
    let world = World::new();
    world.aspire("a", &[1]);
    world.ticks(1);
    assert_eq!(world.state("a", 1), Some(State::Available));
    world.aspire("a", &[]);
    world.ticks(1);
    assert_eq!(world.state("a", 1), Some(State::End));
    assert_eq!(world.record(), ["load a1 Some(Loading)", "unload a1 Some(Unloading)"]);
    assert_eq!(world.latest("a"), None);
}

#[test]
fn a_new_version_is_loaded_before_the_old_one_goes() {
    let world = World::new();
    world.aspire("a", &[1]);
    world.ticks(1);
    world.aspire("a", &[2]);
    world.ticks(1);
    assert_eq!(world.latest("a"), Some(2));
    assert_eq!(world.state("a", 1), Some(State::Available));
    world.ticks(1);
    assert_eq!(world.state("a", 1), Some(State::End));
}

#[test]
fn a_new_version_that_fails_leaves_the_old_one_in_service() {
    let world = World::new();
    world.aspire("a", &[1]);
    world.ticks(1);
    world.aspire_failing("a", 2);
    world.ticks(4);
    assert_eq!(world.failure("a", 2).code, Code::DataLoss);
    assert_eq!(world.latest("a"), Some(1));
}

#[test]
fn the_lowest_of_several_unaspired_versions_is_unloaded_before_a_new_one_is_available() {
    let world = World::new();
    world.aspire("a", &[1, 2]);
    world.ticks(2);
    world.aspire_failing("a", 3);
    world.ticks(4);
    assert_eq!(world.state("a", 1), Some(State::End));
    assert_eq!(world.state("a", 2), Some(State::Available));
}

#[test]
fn a_tick_takes_one_action_over_all_models_and_unloads_come_before_loads() {
    let world = World::new();
    world.aspire("z", &[1]);
    world.ticks(1);
    world.aspire("z", &[]);
    world.aspire("a", &[7]);
    world.aspire("b", &[9]);
    world.ticks(1);
    assert_eq!(world.state("z", 1), Some(State::End));
    assert_eq!(
        (world.state("a", 7), world.state("b", 9)),
        (Some(State::Start), Some(State::Start))
    );
    world.ticks(1);
    assert_eq!(world.state("b", 9), Some(State::Available), "the higher version comes first");
    assert_eq!(world.state("a", 7), Some(State::Start));
}

#[test]
fn a_failed_version_stays_failed_while_it_is_aspired() {
    let world = World::new();
    world.aspire_failing("a", 1);
    world.ticks(1);
    world.aspire("a", &[1]);
    world.ticks(3);
    assert_eq!(world.failure("a", 1).code, Code::DataLoss);
    assert_eq!(world.record().len(), 1);
}

#[test]
fn a_failed_version_is_loaded_again_once_it_was_not_aspired() {
    let world = World::new();
    world.aspire_failing("a", 1);
    world.ticks(1);
    world.aspire("a", &[]);
    world.ticks(1);
    world.aspire("a", &[1]);
    world.ticks(2);
    assert_eq!(world.state("a", 1), Some(State::Available));
}

#[test]
fn a_version_aspired_again_waits_until_the_old_instance_is_gone() {
    let world = World::new();
    world.aspire("a", &[1]);
    world.ticks(1);
    world.aspire("a", &[]);
    world.ticks(1);
    world.aspire("a", &[1]);
    world.ticks(1);
    assert_eq!(world.record().len(), 3, "gone in one tick, loaded in the next");
    assert_eq!(world.state("a", 1), Some(State::Available));
}

#[test]
fn a_removal_replaced_before_a_tick_has_no_effect() {
    let world = World::new();
    world.aspire("a", &[1]);
    world.ticks(1);
    let fresh = world.manager.bus().monitor();
    world.aspire("a", &[]);
    world.aspire("a", &[1]);
    world.ticks(3);
    assert_eq!(world.latest("a"), Some(1));
    assert_eq!(world.record().len(), 1);
    assert!(fresh.versions("a").is_empty(), "no change is published");
}

#[test]
fn a_version_never_loaded_is_forgotten_without_an_event() {
    let world = World::new();
    world.aspire("a", &[1, 2]);
    world.ticks(1);
    world.aspire("a", &[2]);
    world.ticks(2);
    assert_eq!(world.state("a", 1), Some(State::Start));
    assert_eq!(world.record().len(), 1);
}

#[test]
fn retries_go_on_until_the_load_succeeds() {
    let world = World::with(0, 2);
    world.aspire_fakes("a", [Fake { failures: AtomicU32::new(2), ..world.fake("a", 1) }]);
    world.ticks(1);
    assert_eq!(world.state("a", 1), Some(State::Available));
    assert_eq!(world.record(), ["load a1 Some(Loading)"; 3]);
}

#[test]
fn when_retries_are_used_up_the_last_error_is_reported() {
    let world = World::with(0, 2);
    world.aspire_fakes("a", [Fake { failures: AtomicU32::new(9), ..world.fake("a", 1) }]);
    world.ticks(1);
    assert_eq!(world.failure("a", 1), Status::new(Code::DataLoss, "7 to go"));
}

#[test]
fn a_version_whose_files_are_gone_ends_before_it_is_loading() {
    let world = World::with(0, 1);
    world.aspire_fakes("a", [Fake { files_gone: true, ..world.fake("a", 1) }]);
    world.ticks(1);
    let failure = world.failure("a", 1);
    assert_eq!(failure.code, Code::NotFound);
    assert!(failure.message.contains("reserve resources"), "{}", failure.message);
    assert!(world.record().is_empty());
}

#[test]
fn versions_are_listed_highest_first_and_kept_for_ever() {
    let world = World::new();
    world.aspire("a", &[1, 10, 2]);
    world.ticks(3);
    world.aspire("a", &[]);
    world.ticks(4);
    let versions: Vec<_> = world.monitor.versions("a").into_iter().collect();
    let end = || VersionState::of(State::End);
    assert_eq!(versions, [(10, end()), (2, end()), (1, end())]);
}

#[tokio::test]
async fn a_load_that_succeeds_after_its_version_was_dropped_is_undone() {
    let world = World::with(1, 0);
    let open = world.aspire_gated("a", 1);
    world.ticks(1);
    world.reaches("a", 1, State::Loading).await;
    world.aspire("a", &[]);
    world.ticks(1);
    open.send(()).unwrap();
    world.reaches("a", 1, State::End).await;
    let failure = world.failure("a", 1);
    assert_eq!(failure, Status::new(Code::Cancelled, "Loading of servable cancelled"));
    assert_eq!(world.record(), ["load a1 Some(Loading)", "unload a1 Some(Loading)"]);
}

#[tokio::test]
async fn with_threads_one_slow_load_does_not_hold_up_another() {
    let world = World::with(2, 0);
    let open = world.aspire_gated("a", 1);
    world.aspire("b", &[1]);
    world.ticks(2);
    world.reaches("b", 1, State::Available).await;
    assert_eq!(world.state("a", 1), Some(State::Loading));
    open.send(()).unwrap();
    world.reaches("a", 1, State::Available).await;
}

#[tokio::test]
async fn more_loads_than_threads_wait_in_line() {
    let world = World::with(1, 0);
    let open = world.aspire_gated("b", 1);
    world.ticks(1);
    world.reaches("b", 1, State::Loading).await;
    world.aspire("a", &[1]);
    world.ticks(1);
    assert_eq!(world.state("a", 1), Some(State::Start));
    open.send(()).unwrap();
    world.reaches("a", 1, State::Available).await;
}

#[tokio::test]
async fn a_request_in_progress_delays_the_unload_until_it_is_done() {
    let world = World::with(1, 0);
    world.aspire("a", &[1]);
    world.ticks(1);
    world.reaches("a", 1, State::Available).await;
    let handle = world.manager.handle("a", None).unwrap();
    world.aspire("a", &[]);
    world.ticks(1);
    world.reaches("a", 1, State::Unloading).await;
    assert_eq!(world.record().len(), 1);
    assert_eq!(*handle, "{name: a version: 1}");
    drop(handle);
    world.reaches("a", 1, State::End).await;
    assert_eq!(world.record().len(), 2);
}

#[tokio::test]
async fn a_request_to_any_model_delays_the_next_set_of_servables() {
    let world = World::with(1, 0);
    world.aspire("a", &[1]);
    world.ticks(1);
    world.reaches("a", 1, State::Available).await;
    let handle = world.manager.handle("a", None).unwrap();
    let open = world.aspire_gated("b", 1);
    world.ticks(1);
    open.send(()).unwrap();
    // New requests already get the new set while the old one drains.
    while world.latest("b").is_none() {
        thread::yield_now();
    }
    assert_eq!(world.state("b", 1), Some(State::Loading));
    drop(handle);
    world.reaches("b", 1, State::Available).await;
}

#[tokio::test]
async fn a_wait_ends_when_every_name_has_a_version_available_or_ended() {
    let world = World::new();
    let names = ["a".to_owned(), "b".to_owned()];
    let mut wait = Box::pin(world.monitor.settled(&names));
    world.aspire("a", &[1]);
    world.ticks(1);
    assert!(futures::poll!(&mut wait).is_pending());
    world.aspire_failing("b", 1);
    world.ticks(1);
    let ended = wait.await;
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].0, ServableId { name: "b".into(), version: 1 });
    assert_eq!(ended[0].1.as_ref().unwrap_err().code, Code::DataLoss);
}

#[tokio::test]
async fn a_wait_counts_the_highest_version_that_settled() {
    let world = World::new();
    world.aspire("a", &[1]);
    world.ticks(1);
    world.aspire_failing("a", 2);
    world.ticks(1);
    let ended = world.monitor.settled(&["a".to_owned()]).await;
    assert_eq!(ended[0].0.version, 2);
}
