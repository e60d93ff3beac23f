use std::{sync::Arc, time::Duration};

use outrigger_core::{Reason, ServableId};
use outrigger_run::RunError;
use outrigger_testkit::engine::{Gate, Predicting, Received, Reloading};
use outrigger_tfserving::{Client, Config, ReloadError, ServingConfig};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{Harness, call, id, patient, within};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn calls_wait_for_an_engine_that_comes_back_within_the_window() {
    let patient_client = |config: &mut Config| config.reconnect_window = LONG;
    for harness in [Harness::tcp(patient_client), Harness::unix(patient_client)] {
        let id = id("m", 1);
        harness.serve(std::slice::from_ref(&id)).await;
        harness.client.predict(call(&id, &[[1.0, 1.0]], patient())).await.expect("answered");
        harness.engine.stop().await;
        noticed(&harness, &id).await;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (client, call) = (Arc::clone(&harness.client), call(&id, &[], patient()));
            waiting.spawn(async move { client.predict(call).await });
        }
        let status = harness.client.status(&id.name);
        let (status, resumed) = tokio::join!(status, async { harness.engine.resume() });
        resumed.expect("listens again");
        // The engine is empty after its restart and reports so: no call got a connection error.
        assert_eq!(status.expect("answered"), []);
        while let Some(answer) = waiting.join_next().await {
            let error = answer.expect("no panic").expect_err("no model");
            assert!(matches!(error, RunError::NotServed { .. }), "{error}");
        }
        harness.serve(std::slice::from_ref(&id)).await;
        harness.client.predict(call(&id, &[[1.0, 1.0]], patient())).await.expect("answered");
    }
}

/// Waits until all connections of the client have noticed that the engine is gone. Only a call sent
/// before that can fail on its way.
async fn noticed(harness: &Harness, id: &ServableId) {
    let soon = || within(Duration::from_millis(20));
    while !waits(&harness.client.predict(call(id, &[], soon())).await) {}
    while !waits(&harness.client.signature(id, "serving_default", soon()).await) {}
}

fn waits<T>(answer: &Result<T, RunError>) -> bool {
    matches!(answer, Err(RunError::DeadlineExceeded))
}

#[tokio::test]
async fn an_engine_that_stays_away_is_unavailable() {
    let impatient = |config: &mut Config| config.reconnect_window = Duration::ZERO;
    for harness in [Harness::tcp(impatient), Harness::unix(impatient)] {
        let id = id("m", 1);
        harness.serve(std::slice::from_ref(&id)).await;
        harness.engine.stop().await;
        for _ in 0..3 {
            let error = harness.client.predict(call(&id, &[], patient())).await.expect_err("down");
            assert!(matches!(error, RunError::Unavailable(_)), "{error}");
            assert_eq!(error.reason(), Reason::EngineUnavailable);
        }
        assert!(matches!(harness.client.status(&id.name).await, Err(RunError::Unavailable(_))));
        let reload = harness.client.reload(ServingConfig::default()).await;
        assert!(matches!(reload, Err(ReloadError::Unavailable(_))));
        harness.engine.resume().expect("listens again");
        // The client answers after its next attempt to connect.
        while harness.client.status(&id.name).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_client_starts_before_its_engine() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("engine.sock");
    let mut config = Config::new(format!("unix:{}", path.display()));
    config.reconnect_window = LONG;
    config.status_timeout = LONG;
    let client = Client::connect(config).expect("valid");
    let name = id("m", 1).name;
    let (status, engine) = tokio::join!(client.status(&name), async {
        outrigger_testkit::engine::FakeEngine::unix(&path).expect("listens")
    });
    assert_eq!(status.expect("answered"), []);
    drop(engine);
}

#[tokio::test]
async fn calls_under_way_when_the_engine_dies_are_unavailable() {
    for harness in [Harness::tcp(|_| {}), Harness::unix(|_| {})] {
        let id = id("m", 1);
        harness.serve(std::slice::from_ref(&id)).await;
        let (arrived, held) = (Gate::closed(), Gate::closed());
        let (signal, never) = (arrived.clone(), held.clone());
        harness.engine.on_predict(move |_| {
            signal.open();
            Predicting::Held(never.clone(), Box::new(Predicting::Outputs(Vec::new())))
        });
        let predict = harness.client.predict(call(&id, &[], patient()));
        let (answer, ()) = tokio::join!(predict, async {
            arrived.pass().await;
            harness.engine.stop().await;
        });
        let error = answer.expect_err("died");
        assert!(matches!(error, RunError::Lost { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_reload_under_way_when_the_engine_dies_is_unavailable() {
    let harness = Harness::unix(|_| {});
    let (arrived, held) = (Gate::closed(), Gate::closed());
    let (signal, never) = (arrived.clone(), held.clone());
    harness.engine.on_reload(move || {
        signal.open();
        Reloading::Held(never.clone())
    });
    let (answer, ()) = tokio::join!(harness.client.reload(ServingConfig::default()), async {
        arrived.pass().await;
        harness.engine.stop().await;
    });
    assert!(matches!(answer, Err(ReloadError::Unavailable(_))));
    assert_eq!(harness.engine.received(), [Received::Reload(Default::default())]);
}

#[tokio::test]
async fn a_peer_that_does_not_speak_grpc_is_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let address = listener.local_addr().expect("an address");
    let mut peer = tokio::task::JoinSet::new();
    peer.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            // The client need not read the greeting, so a failed write is fine.
            drop(stream.write_all(b"220 mail.example ready\r\n").await);
        }
    });
    let mut config = Config::new(address.to_string());
    config.status_timeout = LONG;
    let client = Client::connect(config).expect("valid");
    let status = client.status(&id("m", 1).name).await;
    assert!(matches!(status, Err(RunError::Unavailable(_))), "{status:?}");
    let answer = client.predict(call(&id("m", 1), &[], patient())).await;
    assert!(matches!(answer, Err(RunError::Unavailable(_))), "{answer:?}");
}
