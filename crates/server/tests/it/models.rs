//! ModelService, gRPC health and reflection.

use std::time::Duration;

use outrigger_core::Content;
use outrigger_proto::outrigger::v1::{
    BatchPredictRequest, GetModelRequest, ListModelsRequest, LoadModelRequest, PredictRequest,
    UnloadModelRequest, WatchModelsRequest, model_version::State,
};
use outrigger_testkit::{
    engine::{Predicting, row_sums},
    saved_model::Linear,
};
use tonic::{Code, Request};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::{
    v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    },
    v1alpha::{self, server_reflection_client::ServerReflectionClient as AlphaClient},
};

use crate::stack::{MODEL, Stack, by_name, channel, linear, reason, request};

#[tokio::test]
async fn models_are_listed_and_shown_with_their_history() {
    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let list = stack.models().list_models(ListModelsRequest {}).await.unwrap().into_inner();
    assert_eq!(list.models[0].name, MODEL);
    assert!(list.models[0].versions[0].history.is_empty());
    let asked = GetModelRequest { name: MODEL.to_owned() };
    let model = stack.models().get_model(asked).await.expect("known").into_inner().model;
    let model = model.expect("a model");
    let version = &model.versions[0];
    assert_eq!(version.state(), State::Available);
    assert_eq!(model.tags[0].serving_digest, version.digest);
    assert_eq!(version.history.last().unwrap().to(), State::Available);
    let asked = GetModelRequest { name: "nobody".to_owned() };
    let status = stack.models().get_model(asked).await.unwrap_err();
    assert_eq!(reason(&status), "MODEL_NOT_FOUND");
}

#[tokio::test]
async fn models_are_changed_on_the_admin_listener_only() {
    let stack = Stack::start().await;
    let load = LoadModelRequest { model: Some(by_name(MODEL)) };
    let unload = UnloadModelRequest { model: Some(by_name(MODEL)), delete: false };
    for status in [
        stack.models().load_model(load.clone()).await.unwrap_err(),
        stack.models().unload_model(unload.clone()).await.unwrap_err(),
    ] {
        assert_eq!(
            (reason(&status).as_str(), status.code()),
            ("ADMIN_ONLY", Code::PermissionDenied)
        );
    }
    let loaded = stack.admin().load_model(load).await.unwrap().into_inner().model.unwrap();
    assert_eq!((loaded.name.as_str(), loaded.tag.as_str()), (MODEL, "latest"));
    stack.admin().unload_model(unload).await.unwrap();
    // A request loads the version again.
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
}

#[tokio::test]
async fn a_watch_sends_the_current_state_and_every_change() {
    let stack = Stack::start().await;
    let asked = WatchModelsRequest { names: vec![MODEL.to_owned()] };
    let mut watch = stack.models().watch_models(asked).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert!(first.models.is_empty(), "nobody has asked for it yet");
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    loop {
        let seen = watch.message().await.unwrap().expect("the watch goes on");
        let versions = seen.models.iter().flat_map(|model| &model.versions);
        if versions.into_iter().any(|version| version.state() == State::Available) {
            return;
        }
    }
}

#[tokio::test]
async fn health_is_reported_for_the_server_and_each_model() {
    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let mut health = HealthClient::new(channel(stack.addresses.grpc));
    for service in ["", "outrigger.v1.PredictionService", MODEL] {
        let asked = HealthCheckRequest { service: service.to_owned() };
        let mut watch = health.watch(asked).await.unwrap().into_inner();
        loop {
            let answer = watch.message().await.unwrap().expect("the watch goes on");
            if answer.status() == ServingStatus::Serving {
                break;
            }
        }
    }
    let asked = HealthCheckRequest { service: "nobody".to_owned() };
    assert_eq!(health.check(asked).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_health_watch_reports_only_changes() {
    let stack = Stack::start().await;
    let mut health = HealthClient::new(channel(stack.addresses.grpc));
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let asked = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(asked).await.unwrap().into_inner();
    // The steps are many changes of models, none of which changes the server's own health, and then
    // the server's stop.
    for name in ["offers/one", "offers/two", "offers/three"] {
        stack.publish(name, &linear(0.0)).await;
        let other = PredictRequest { model: Some(by_name(name)), ..request(&[(1.0, 1.0)]) };
        stack.predictions().predict(other).await.unwrap();
    }
    stack.tell_to_stop();
    let mut reported = Vec::new();
    while let Ok(Some(message)) = watch.message().await {
        reported.push(message.status());
    }
    reported.retain(|status| *status == ServingStatus::Serving);
    assert_eq!(reported.len(), 1);
}

#[tokio::test]
async fn reflection_knows_the_services_in_both_versions() {
    const SERVICES: [&str; 3] =
        ["outrigger.v1.PredictionService", "outrigger.v1.ModelService", "grpc.health.v1.Health"];
    let stack = Stack::start().await;
    let asked = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel(stack.addresses.grpc));
    let asked = Request::new(tokio_stream::once(asked));
    let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("no list");
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(SERVICES.iter().all(|service| names.contains(&(*service).to_owned())), "{names:?}");

    let asked = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                "outrigger.v1.PredictRequest".to_owned(),
            ),
        ),
    };
    let mut client = AlphaClient::new(channel(stack.addresses.admin));
    let asked = Request::new(tokio_stream::once(asked));
    let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert!(matches!(
        answer.message_response,
        Some(v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_))
    ));
}

#[tokio::test]
async fn an_unknown_method_is_answered_with_its_reason() {
    let stack = Stack::start().await;
    let mut grpc = tonic::client::Grpc::new(channel(stack.addresses.grpc));
    for path in ["/outrigger.v1.PredictionService/Guess", "/nobody.Service/Do"] {
        grpc.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(path);
        let codec = outrigger_proto::raw::RawCodec;
        let status = grpc.unary(Request::new(bytes::Bytes::new()), path, codec).await.unwrap_err();
        let answered = (reason(&status), status.code());
        assert_eq!(answered, ("METHOD_UNKNOWN".to_owned(), Code::Unimplemented));
    }
}

#[tokio::test]
async fn readiness_waits_for_the_engine_and_says_so() {
    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    assert_eq!(stack.health("/readyz").await.0, 200);
    assert_eq!(stack.health("/healthz").await.0, 200);
    stack.engine.stop().await;
    let mut health = HealthClient::new(channel(stack.addresses.grpc));
    let asked = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(asked).await.unwrap().into_inner();
    let until_down = async {
        while watch.message().await.unwrap().expect("goes on").status() == ServingStatus::Serving {}
    };
    tokio::time::timeout(Duration::from_secs(60), until_down).await.expect("noticed");
    let (status, why) = stack.health("/readyz").await;
    assert_eq!(status, 503);
    assert!(why.contains("engine"), "{why}");
    assert_eq!(stack.health("/healthz").await.0, 200);
}

/// Waits until the version of that digest is available, and returns it.
async fn available(stack: &Stack, digest: &str) -> outrigger_proto::outrigger::v1::ModelVersion {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let asked = GetModelRequest { name: MODEL.to_owned() };
        let model = stack.models().get_model(asked).await.expect("an answer").into_inner().model;
        let versions = model.expect("it is known").versions;
        let version = versions.into_iter().find(|version| version.digest == digest);
        match version {
            Some(version) if version.state() == State::Available => return version,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        assert!(std::time::Instant::now() < end, "it never came up");
    }
}

#[tokio::test]
async fn a_new_version_is_warmed_up_with_recent_requests_and_failures_are_logged() {
    let stack = Stack::with(&[("images.poll_interval", "1s")]).await;
    for _ in 0..3 {
        stack.predictions().predict(request(&[(1.0, 2.0)])).await.unwrap();
    }
    stack.predictions().predict(request(&[(40.0, 2.0)])).await.unwrap();
    let live = stack.models().list_models(ListModelsRequest {}).await.unwrap().into_inner();
    let live = live.models[0].versions[0].clone();
    assert_eq!(live.replay.unwrap_or_default().answered, 0, "nobody had asked before it");
    stack.engine.on_predict(move |prediction| {
        let well = row_sums(prediction);
        let Predicting::Outputs(tensors) = &well else { return well };
        let fails = prediction.version != live.servable_version
            && tensors[0].content == Content::Bytes(42f32.to_le_bytes().to_vec().into());
        if fails { Predicting::Fails(Code::Internal, "it is 42".to_owned()) } else { well }
    });
    let replay = available(&stack, &stack.publish(MODEL, &linear(1.0)).await).await.replay.unwrap();
    assert_eq!((replay.answered, replay.skipped, replay.failed), (3, 0, 1));
    assert!(replay.failure.contains("it is 42"), "{}", replay.failure);
    // This model has one more feature, which the recorded requests lack.
    let other = Linear { user: vec![1.0], treatment: vec![1.0; 3], bias: 0.0 }.model();
    let replay = available(&stack, &stack.publish(MODEL, &other).await).await.replay.unwrap();
    assert_eq!((replay.answered, replay.skipped, replay.failed), (0, 4, 0));
}

#[tokio::test]
async fn a_new_version_is_warmed_up_with_a_request_of_each_recent_batch() {
    let stack = Stack::with(&[("images.poll_interval", "1s")]).await;
    let user = PredictRequest { model: None, ..request(&[(1.0, 2.0)]) };
    let batch = BatchPredictRequest {
        model: Some(by_name(MODEL)),
        requests: vec![user; 4],
        ..Default::default()
    };
    for _ in 0..3 {
        stack.predictions().batch_predict(batch.clone()).await.expect("an answer");
    }
    let replay = available(&stack, &stack.publish(MODEL, &linear(1.0)).await).await.replay.unwrap();
    assert_eq!((replay.answered, replay.skipped, replay.failed), (3, 0, 0));
}
