use std::{sync::Arc, time::Duration};

use outrigger_core::{Reason, Version};
use outrigger_run::RunError;
use outrigger_testkit::engine::{Gate, Loading, Received, Reloading, State as Engine, Violation};
use outrigger_tfserving::{Client, Config, EngineState, ReloadError, ServedModel, ServingConfig};
use tonic::Code;

use crate::harness::{Harness, id, patient, within};

#[tokio::test]
async fn a_name_the_engine_does_not_know_has_no_versions() {
    for harness in Harness::both() {
        let status = harness.client.status(&id("m", 1).name).await;
        assert_eq!(status.expect("answered"), []);
    }
}

#[tokio::test]
async fn states_distinguish_a_failed_load_from_a_serving_one() {
    let harness = Harness::unix(|_| {});
    let (good, bad) = (id("m", 1), id("m", 2));
    harness.serve(std::slice::from_ref(&good)).await;
    harness.engine.on_load(|_| Loading::Fails(Code::DataLoss, "checksum mismatch".to_owned()));
    harness.publish(&bad);
    let both = [good.clone(), bad.clone()];
    harness.client.reload(harness.config(&both)).await.expect("a known name is not waited for");
    let key = (bad.name.as_str().to_owned(), 2);
    harness.engine.until(|view| view.get(&key).is_some_and(|state| *state == Engine::End)).await;
    let status = harness.client.status(&good.name).await.expect("answered");
    let states: Vec<_> = status.iter().map(|status| (status.version.0, status.state)).collect();
    assert_eq!(states, [(2, EngineState::End), (1, EngineState::Available)]);
    let error = status[0].error.clone().expect("why it failed");
    assert_eq!(error.reason(), Reason::ImageInvalid);
    assert_eq!(error.to_string(), "DataLoss: checksum mismatch");
    assert_eq!(status[1].error, None);
}

#[tokio::test]
async fn a_signature_is_the_loaded_models_own() {
    for harness in Harness::both() {
        let id = id("m", 1);
        harness.serve(std::slice::from_ref(&id)).await;
        let found = harness.client.signature(&id, "serving_default", patient()).await;
        let found = found.expect("answered");
        assert_eq!(found.input("treatment").map(|spec| &*spec.name), Some("treatment"));
        let error = harness.client.signature(&id, "other", patient()).await.expect_err("none");
        assert!(
            matches!(&error, RunError::NoSignature { known, .. } if *known == ["serving_default"])
        );
        assert_eq!(error.reason(), Reason::ImageInvalid);
    }
}

#[tokio::test]
async fn a_signature_of_an_unloaded_version_is_not_served() {
    let harness = Harness::tcp(|_| {});
    let error = harness.client.signature(&id("m", 1), "serving_default", patient()).await;
    assert!(matches!(error, Err(RunError::NotServed { .. })));
}

#[tokio::test]
async fn a_reload_that_hangs_times_out_and_status_goes_on() {
    let harness = Harness::tcp(|config| config.reload_timeout = Duration::from_millis(50));
    let gate = Gate::closed();
    let held = gate.clone();
    harness.engine.on_reload(move || Reloading::Held(held.clone()));
    let error = harness.client.reload(ServingConfig::default()).await.expect_err("hangs");
    assert!(matches!(error, ReloadError::Timeout), "{error}");
    assert!(!error.was_applied());
    harness.client.status(&id("m", 1).name).await.expect("answered");
    harness.assert_no_violations();
    // The engine is still working on the first reload; a second one is the violation that callers
    // must avoid.
    harness.client.reload(ServingConfig::default()).await.expect_err("hangs");
    assert_eq!(harness.engine.violations(), [Violation::ConcurrentReload]);
    gate.open();
}

#[tokio::test]
async fn a_refused_reload_reports_whether_it_was_applied() {
    for harness in Harness::both() {
        let code = Code::InvalidArgument;
        harness.engine.on_reload(move || Reloading::Refused(code, "no".to_owned()));
        let error = harness.client.reload(ServingConfig::default()).await.expect_err("refused");
        assert!(matches!(&error, ReloadError::Refused { code: Code::InvalidArgument, .. }));
        assert!(!error.was_applied());
        harness.engine.on_reload(|| Reloading::Normal);
        harness.engine.on_load(|_| Loading::Fails(Code::NotFound, "no op".to_owned()));
        let id = id("m", 1);
        harness.publish(&id);
        let error = harness.client.reload(harness.config(&[id])).await.expect_err("fails");
        assert!(error.was_applied(), "{error}");
        assert!(error.to_string().contains("no op"), "{error}");
    }
}

#[tokio::test]
async fn an_engine_without_room_for_a_reload_is_not_a_refusal() {
    for code in [Code::ResourceExhausted, Code::Unavailable] {
        let harness = Harness::tcp(|_| {});
        harness.engine.on_reload(move || Reloading::Refused(code, String::new()));
        let error = harness.client.reload(ServingConfig::default()).await.expect_err("refused");
        assert!(matches!(error, ReloadError::Unavailable(_)), "{error}");
    }
}

#[tokio::test]
async fn configurations_that_would_hang_the_engine_are_not_sent() {
    let harness = Harness::tcp(|_| {});
    let name = id("m", 1).name;
    let cases = [("/models/m", vec![]), ("models/m", vec![Version(1)])];
    for (base_path, versions) in cases {
        let versions = versions.into_iter().collect();
        let model = ServedModel { base_path: base_path.into(), versions };
        let config = ServingConfig { models: [(name.clone(), model)].into() };
        let error = harness.client.reload(config).await.expect_err("refused");
        assert!(matches!(error, ReloadError::Refused { code: Code::InvalidArgument, .. }));
    }
    assert_eq!(harness.engine.received(), []);
}

#[tokio::test]
async fn a_reload_carries_the_whole_configuration() {
    let harness = Harness::unix(|_| {});
    let ids = [id("a", 1), id("a", 2), id("b/c", 9)];
    harness.serve(&ids).await;
    let reloads = harness.engine.received();
    let Received::Reload(models) = &reloads[0] else { panic!("a reload: {reloads:?}") };
    let sent: Vec<_> =
        models.iter().map(|(name, versions)| (name.as_str(), versions.len())).collect();
    assert_eq!(sent, [(ids[0].name.as_str(), 2), (ids[2].name.as_str(), 1)]);
    harness.assert_no_violations();
}

#[tokio::test]
async fn a_frozen_engine_holds_no_control_call_past_its_deadline() {
    let harness = Harness::unix(|config| config.status_timeout = Duration::from_millis(30));
    harness.engine.freeze();
    let id = id("m", 1);
    let status = harness.client.status(&id.name).await;
    assert!(matches!(status, Err(RunError::DeadlineExceeded)));
    let deadline = within(Duration::from_millis(30));
    let signature = harness.client.signature(&id, "serving_default", deadline).await;
    assert!(matches!(signature, Err(RunError::DeadlineExceeded)));
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    let refused = |configure: fn(&mut Config)| {
        let mut config = Config::new("localhost:1");
        configure(&mut config);
        let error = Client::connect(config).expect_err("refused");
        error.to_string()
    };
    assert!(refused(|config| config.endpoint = "nowhere".to_owned()).contains("nowhere"));
    assert!(refused(|config| config.connections = 0).contains("connections"));
    assert!(refused(|config| config.max_in_flight = 0).contains("max_in_flight"));
    assert!(refused(|config| config.max_message = 0).contains("max_message"));
}

#[tokio::test]
async fn many_control_calls_share_their_connection() {
    let harness = Harness::unix(|_| {});
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let client = Arc::clone(&harness.client);
        calls.spawn(async move { client.status(&id("m", 1).name).await });
    }
    while let Some(answer) = calls.join_next().await {
        answer.expect("no panic").expect("answered");
    }
}
