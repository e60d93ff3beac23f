//! TensorFlow Serving's behaviour on configurations, as the client sees it. These tests check that
//! the fake behaves like the original.

use outrigger_core::ServableId;
use outrigger_testkit::engine::{Gate, Loading, Predicting, State as Engine, Violation, floats};
use outrigger_tfserving::EngineState;

use crate::harness::{Harness, call, id, patient};

async fn states(harness: &Harness, id: &ServableId) -> Vec<(i64, EngineState)> {
    let status = harness.client.status(&id.name).await.expect("answered");
    status.into_iter().map(|status| (status.version.0, status.state)).collect()
}

/// Blocks the loads of one version.
fn hold(harness: &Harness, id: &ServableId) -> Gate {
    let gate = Gate::closed();
    let (held, version) = (gate.clone(), id.version.0);
    harness.engine.on_load(move |load| match load.version == version {
        true => Loading::Held(held.clone()),
        false => Loading::Normal,
    });
    gate
}

#[tokio::test]
async fn a_reload_waits_for_a_name_it_has_not_seen() {
    let harness = Harness::unix(|_| {});
    let id = id("m", 1);
    harness.publish(&id);
    let gate = hold(&harness, &id);
    let key = (id.name.as_str().to_owned(), 1);
    let reload = harness.client.reload(harness.config(std::slice::from_ref(&id)));
    let observe = async {
        harness.engine.until(|view| view.contains_key(&key)).await;
        harness.engine.until(|view| view[&key] == Engine::Loading).await;
        assert_eq!(states(&harness, &id).await, [(1, EngineState::Loading)]);
        gate.open();
    };
    let (reload, ()) = tokio::join!(reload, observe);
    reload.expect("applied");
    assert_eq!(states(&harness, &id).await, [(1, EngineState::Available)]);
    harness.assert_no_violations();
}

#[tokio::test]
async fn the_old_version_serves_until_the_new_one_does() {
    let harness = Harness::unix(|_| {});
    let (old, new) = (id("m", 1), id("m", 2));
    harness.serve(std::slice::from_ref(&old)).await;
    harness.publish(&new);
    let gate = hold(&harness, &new);
    harness.client.reload(harness.config(std::slice::from_ref(&new))).await.expect("applied");
    let key = |version| (old.name.as_str().to_owned(), version);
    harness
        .engine
        .until(|view| view.get(&key(2)).is_some_and(|state| *state == Engine::Loading))
        .await;
    harness.client.predict(call(&old, &[[1.0, 1.0]], patient())).await.expect("still serving");
    gate.open();
    harness.engine.until(|view| view[&key(1)] == Engine::End).await;
    assert_eq!(states(&harness, &new).await, [(2, EngineState::Available), (1, EngineState::End)]);
    harness.assert_no_violations();
}

#[tokio::test]
async fn an_unload_waits_for_the_calls_in_flight() {
    let harness = Harness::unix(|_| {});
    let id = id("m", 1);
    harness.serve(std::slice::from_ref(&id)).await;
    let (arrived, gate) = (Gate::closed(), Gate::closed());
    let (signal, held) = (arrived.clone(), gate.clone());
    harness.engine.on_predict(move |_| {
        signal.open();
        let answer = Predicting::Outputs(vec![floats("scores", &[0], [])]);
        Predicting::Held(held.clone(), Box::new(answer))
    });
    let predict = harness.client.predict(call(&id, &[], patient()));
    let (answer, ()) = tokio::join!(predict, async {
        arrived.pass().await;
        harness.client.reload(harness.config(&[])).await.expect("applied");
        assert_eq!(states(&harness, &id).await, [(1, EngineState::Unloading)]);
        gate.open();
    });
    answer.expect("finished");
    harness.engine.until(|view| view.values().all(|state| *state == Engine::End)).await;
}

#[tokio::test]
async fn one_missing_base_path_stops_discovery_for_all_and_is_noticed() {
    let harness = Harness::unix(|_| {});
    let (good, missing) = (id("b", 1), id("a", 1));
    harness.publish(&good);
    let config = harness.config(&[good.clone(), missing.clone()]);
    let path = harness.dir.path().join(missing.name.as_str());
    let (reload, ()) = tokio::join!(harness.client.reload(config), async {
        harness.engine.until_violated().await;
        assert_eq!(states(&harness, &good).await, []);
        // Publishing the missing version ends the wait without a restart.
        harness.publish(&missing);
    });
    reload.expect("applied");
    assert!(harness.engine.violations().contains(&Violation::MissingBasePath(path)));
}

#[tokio::test]
async fn a_version_used_twice_is_noticed() {
    let harness = Harness::unix(|_| {});
    let (one, two) = (id("m", 1), id("m", 2));
    harness.serve(std::slice::from_ref(&one)).await;
    harness.serve(std::slice::from_ref(&two)).await;
    let key = (one.name.as_str().to_owned(), 1);
    harness.engine.until(|view| view[&key] == Engine::End).await;
    harness.serve(&[one.clone(), two]).await;
    let name = one.name.as_str().to_owned();
    assert_eq!(harness.engine.violations(), [Violation::VersionReused(name, 1)]);
}

#[tokio::test]
async fn a_failed_version_is_not_tried_again() {
    let harness = Harness::unix(|_| {});
    let (good, bad) = (id("m", 1), id("m", 2));
    harness.serve(std::slice::from_ref(&good)).await;
    // The directory has no model in it.
    let path = harness.dir.path().join(bad.name.as_str()).join("2");
    std::fs::create_dir(&path).expect("created");
    let both = harness.config(&[good.clone(), bad.clone()]);
    harness.client.reload(both.clone()).await.expect("applied");
    let key = (bad.name.as_str().to_owned(), 2);
    harness.engine.until(|view| view.get(&key).is_some_and(|state| *state == Engine::End)).await;
    harness.publish(&bad);
    harness.client.reload(both).await.expect("a reload says nothing about health");
    assert_eq!(states(&harness, &good).await, [(2, EngineState::End), (1, EngineState::Available)]);
}
