//! Reloads and states over a real socket.

use std::fs;

use outrigger_engine::{Engine, Error, Models, Options};
use outrigger_proto::tensorflow::serving::{
    GetModelStatusRequest, Metric, ReloadConfigRequest, metric::ValueIncrease,
    model_version_status::State,
};
use outrigger_testkit::saved_model::affine;
use tonic::Code;

use crate::{
    harness::{Local, options, reload_request, request, spec},
    models::{busy, column, size},
    raw,
};

#[tokio::test]
async fn a_model_is_loaded_replaced_and_unloaded_and_its_past_is_kept() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    assert_eq!(local.status("half").await, [(1, State::Available)]);
    local.write("half", 2, &affine(0.5, 3.0));
    local.reload(vec![local.model("half", &[2])]).await.unwrap();
    local.reaches("half", 1, State::End).await;
    assert_eq!(local.status("half").await, [(2, State::Available), (1, State::End)]);
    let answer = local.predict(request("half", [("x", column(&[2.0]))])).await.unwrap();
    assert_eq!(answer.outputs["y"].float_val, [4.0]);
    local.reload(vec![]).await.unwrap();
    local.reaches("half", 2, State::End).await;
    assert_eq!(local.status("half").await, [(2, State::End), (1, State::End)]);
    let gone = local.refused(request("half", [("x", column(&[2.0]))])).await;
    assert_eq!(gone.code(), Code::NotFound);
    local.stop().await;
}

#[tokio::test]
async fn a_directory_without_a_model_fails_with_tensorflows_message() {
    let local = Local::start().await;
    fs::create_dir_all(local.root.path().join("bad/7")).unwrap();
    let status = local.reload(vec![local.model("bad", &[7])]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let message = "1 model(s) did not become available: {{{name: bad version: 7} due to error: NOT_FOUND: Could not find SavedModel .pb";
    assert!(status.message().starts_with(message), "{status}");
    let request = GetModelStatusRequest { model_spec: Some(spec("bad")) };
    let answer = local.models.clone().get_model_status(request).await.unwrap().into_inner();
    let failed = &answer.model_version_status[0];
    assert_eq!((failed.version, failed.state()), (7, State::End));
    assert_eq!(failed.status.as_ref().unwrap().error_code, Code::NotFound as i32);
}

#[tokio::test]
async fn a_models_own_batching_parameters_are_checked_if_enabled() {
    const MALFORMED: &str = "max_batch_size: 8";
    let message = "line 1: max_batch_size needs a message in braces";
    for (per_model_batching, parameters, problem) in [
        (true, "max_batch_size { value: 8 }", None),
        (true, MALFORMED, Some(message)),
        (false, MALFORMED, None),
    ] {
        let root = tempfile::tempdir().unwrap();
        let options = Options { batching: true, per_model_batching, ..options(root.path()) };
        let local = Local::with(root, options).await;
        local.write("half", 1, &affine(0.5, 2.0));
        let file = local.root.path().join("half/1/batching_params.pbtxt");
        fs::write(file, parameters).unwrap();
        let loaded = local.reload(vec![local.model("half", &[1])]).await;
        let message = loaded.err().map(|status| status.message().to_owned());
        let fits = |message: &String| problem.is_some_and(|problem| message.contains(problem));
        assert!(message.as_ref().map_or(problem.is_none(), fits), "{parameters}: {message:?}");
        local.stop().await;
    }
}

#[tokio::test]
async fn the_status_of_an_unknown_model_is_not_found() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let mut client = local.models.clone();
    let mut ask = async |model_spec| {
        let request = GetModelStatusRequest { model_spec };
        client.get_model_status(request).await.unwrap_err()
    };
    assert_eq!(ask(None).await.code(), Code::InvalidArgument);
    let unknown = ask(Some(spec("z"))).await;
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(unknown.message(), "Could not find any versions of model z");
    let mut absent = spec("half");
    absent.version_choice = crate::harness::version(9);
    let absent = ask(Some(absent)).await;
    assert_eq!(absent.message(), "Could not find version 9 of model half");
}

#[tokio::test]
async fn a_request_without_a_list_is_refused_at_once() {
    let local = Local::start().await;
    let mut client = local.models.clone();
    let empty = ReloadConfigRequest::default();
    let status = client.handle_reload_config_request(empty).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_increases_of_metrics_are_returned_once_for_each_name() {
    let local = Local::start().await;
    let metric_names = ["/a", "/b", "/a"].map(str::to_owned).into();
    let reload = ReloadConfigRequest { metric_names, ..reload_request(vec![]) };
    let answer = local.models.clone().handle_reload_config_request(reload).await.unwrap();
    let increase = Some(ValueIncrease::Int64ValueIncrease(0));
    let expected =
        ["/a", "/b"].map(|name| Metric { name: name.to_owned(), value_increase: increase });
    assert_eq!(answer.into_inner().metric, expected);
}

#[tokio::test]
async fn a_reload_goes_on_without_its_caller_and_delays_the_next() {
    let local = Local::start().await;
    let path = "tensorflow.serving.ModelService/HandleReloadConfigRequest";
    let new = reload_request(vec![local.model("late", &[1])]);
    for reload in [new, reload_request(vec![])] {
        let code = raw::call(local.root.path(), path, &reload, "20m").await;
        assert_eq!(code, Code::DeadlineExceeded);
    }
    // The first reload ends when its model appears. Then the second one, which has no
    // caller either, removes the model.
    local.write("late", 1, &affine(1.0, 0.0));
    while local
        .models
        .clone()
        .get_model_status(GetModelStatusRequest { model_spec: Some(spec("late")) })
        .await
        .is_err()
    {}
    local.reaches("late", 1, State::End).await;
}

#[tokio::test]
async fn a_request_in_progress_is_answered_while_its_model_is_unloaded() {
    let local = Local::start().await;
    local.serve("busy", &busy()).await;
    let slow = request("busy", [("x", size(700))]);
    let (answer, unloaded) = tokio::join!(local.predict(slow), local.reload(vec![]));
    unloaded.unwrap();
    // The request may start before the unload, and is answered, or after it.
    match answer {
        Ok(answer) => assert_eq!(answer.outputs["y"].int_val, [700, 700]),
        Err(status) => assert_eq!(status.code(), Code::NotFound),
    }
    local.reaches("busy", 1, State::End).await;
}

#[tokio::test]
async fn the_first_models_are_available_before_the_engine_listens() {
    let root = tempfile::tempdir().unwrap();
    affine(0.5, 2.0).write(&root.path().join("half/00000123")).unwrap();
    let config = format!(
        "model_config_list {{ config {{ name: 'half' base_path: '{}/half' model_platform: 'tensorflow' }} }}",
        root.path().display()
    );
    fs::write(root.path().join("models.txt"), config).unwrap();
    let options = options(root.path());
    let local = Local::with(root, options).await;
    assert_eq!(local.status("half").await, [(123, State::Available)]);
    local.stop().await;
}

#[tokio::test]
async fn a_first_model_that_fails_ends_the_engine_without_a_socket() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("bad/1")).unwrap();
    let base_path = root.path().join("bad").display().to_string();
    let models = Models::One { name: "bad".into(), base_path };
    let options = Options { models, ..options(root.path()) };
    let error = Engine::start(options).await.unwrap_err();
    assert!(matches!(error, Error::Models(_)), "{error}");
    assert!(error.to_string().contains("1 servable(s) did not become available"), "{error}");
    assert!(!root.path().join("engine.sock").exists());
}

#[tokio::test]
async fn start_errors_name_their_cause() {
    let root = tempfile::tempdir().unwrap();
    let nowhere = Options { port: 0, grpc_socket_path: None, ..options(root.path()) };
    assert!(matches!(Engine::start(nowhere).await, Err(Error::NoAddress)));
    let empty = Some(root.path().to_owned());
    let missing = Options { tensorflow: empty, ..options(root.path()) };
    let error = Engine::start(missing).await.unwrap_err();
    assert!(error.is_usage());
    assert!(error.to_string().contains("pip install tensorflow-cpu"), "{error}");
    fs::write(root.path().join("models.txt"), "model_config_list { oops {} }").unwrap();
    let error = Engine::start(options(root.path())).await.unwrap_err();
    assert!(error.to_string().contains("text-format ModelServerConfig"), "{error}");
}

#[tokio::test]
async fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("engine.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let taken = options(root.path());
    let again = taken.clone();
    let local = Local::with(root, taken).await;
    let error = Engine::start(again).await.unwrap_err();
    assert!(matches!(error, Error::Listen { .. }), "{error}");
    local.stop().await;
}
