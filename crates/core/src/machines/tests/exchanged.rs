//! Tests of the invariants that debug builds check by the messages with the engines.

use super::*;
use crate::{
    ServableId,
    invariants::{Violation, check},
};

fn servable(bench: &Bench, text: &str) -> ServableId {
    let model = bench.machines.model(&model(text)).expect("it is known");
    model.state().servable().cloned().expect("it is in the engine")
}

fn violation(bench: &Bench) -> Violation {
    check(&bench.machines, bench.now).expect_err("an invariant is violated")
}

#[test]
fn a_version_that_is_removed_while_its_route_lives_is_found() {
    let mut bench = Bench::serving(&["a"]);
    let id = servable(&bench, "a");
    let message = Effect::Engine(EngineId::default(), ToEngine::Remove(id.clone()));
    bench.machines.exchanged.sent(&message);
    assert_eq!(violation(&bench), Violation::RemovedInUse(id));
}

#[test]
fn files_that_may_go_while_an_engine_may_have_them_are_found() {
    let mut bench = Bench::serving(&["a"]);
    let id = servable(&bench, "a");
    bench.handle(Event::Unload { name: name("a"), selector: latest(), delete: false });
    assert_eq!(check(&bench.machines, bench.now), Ok(()), "the engine has confirmed it");
    bench.machines.exchanged.adopt(id.clone());
    assert_eq!(violation(&bench), Violation::FilesInEngine(id));
}

#[test]
fn a_version_number_that_was_never_assigned_is_found() {
    let mut bench = Bench::serving(&["a"]);
    let version = Version(bench.machines.last_version().0 + 1);
    let id = ServableId { version, ..servable(&bench, "a") };
    bench.machines.exchanged.adopt(id.clone());
    assert_eq!(violation(&bench), Violation::UnknownVersion(id));
}

#[test]
fn a_version_that_a_restart_lost_may_leave_without_a_message() {
    let mut bench = Bench::serving(&["a"]);
    let id = servable(&bench, "a");
    let calls = CutCalls { lost: [model("a")].into(), ..CutCalls::default() };
    bench.handle(Event::Restarted(EngineId::default(), calls));
    bench.machines.handle(bench.now, 0.5, Event::Engine(EngineId::default(), FromEngine::Lost(id)));
    bench.handle(Event::Unload { name: name("a"), selector: latest(), delete: false });
    assert_eq!(check(&bench.machines, bench.now), Ok(()));
}
