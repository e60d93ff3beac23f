//! Starting and stopping.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use futures::future::join_all;
use outrigger_proto::outrigger::v1::{
    LoadModelRequest, WatchModelsRequest, predict_response::Output,
};
use outrigger_server::{Error, Kinds, config};
use outrigger_testkit::engine::{Predicting, floats};
use tokio::sync::watch;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::stack::{Stack, by_name, channel, hold, reason, request};

#[tokio::test]
async fn requests_in_flight_are_answered_before_the_server_stops() {
    // More would wait for their turn: nothing is known about the version yet.
    const CALLS: usize = 16;
    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (gate, mut arrivals) = hold(&stack);
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let mut client = stack.predictions();
            tokio::spawn(async move { client.predict(request(&[(3.0, 4.0)])).await })
        })
        .collect();
    for _ in 0..CALLS {
        arrivals.recv().await.expect("all calls arrive");
    }
    // Streams without an end must not delay the stop.
    let all = WatchModelsRequest::default();
    let mut models = stack.models().watch_models(all).await.unwrap().into_inner();
    let mut health = HealthClient::new(channel(stack.addresses.grpc));
    let mut health = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();

    stack.tell_to_stop();
    let ended = loop {
        match models.message().await {
            Ok(message) => assert!(message.is_some(), "the end has a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(reason(&ended), "SHUTTING_DOWN");
    while health.message().await.is_ok() {}
    let load = LoadModelRequest { model: Some(by_name("offers/other")) };
    let status = stack.admin().load_model(load).await.unwrap_err();
    assert_eq!(reason(&status), "SHUTTING_DOWN", "nothing new is loaded");
    assert_eq!(stack.health("/readyz").await.0, 503);
    assert_eq!(stack.health("/healthz").await.0, 200);

    gate.open();
    for answer in join_all(calls).await {
        let response = answer.unwrap().expect("no request is lost").into_inner();
        assert!(matches!(response.output, Some(Output::Scores(list)) if list.values == [7.0]));
    }
    stack.stopped().await.unwrap();
}

#[tokio::test]
async fn an_idle_server_stops_and_gives_its_addresses_back() {
    // No other test uses this address: a port that is freed at 127.0.0.1 may belong to another test
    // a moment later.
    let own = ["grpc", "http", "health", "admin"].map(|name| format!("server.{name}"));
    let own = own.each_ref().map(|key| (key.as_str(), "127.0.81.1:0"));
    let stack = Stack::with(&own).await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let addresses = stack.addresses;
    stack.tell_to_stop();
    stack.stopped().await.unwrap();
    for address in [addresses.grpc, addresses.http, addresses.health, addresses.admin] {
        std::net::TcpListener::bind(address).expect("the address is free");
    }
}

#[tokio::test]
async fn requests_that_outlast_the_grace_period_are_cut_off() {
    let stack = Stack::with(&[("server.shutdown_grace", "300ms")]).await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (gate, mut arrivals) = hold(&stack);
    let call = tokio::spawn(async move { client.predict(request(&[(1.0, 1.0)])).await });
    arrivals.recv().await.unwrap();
    stack.tell_to_stop();
    stack.stopped().await.unwrap();
    call.await.unwrap().expect_err("cut off");
    gate.open();
}

#[tokio::test]
async fn an_address_in_use_is_named_and_nothing_is_left_behind() {
    let stack = Stack::start().await;
    let taken = stack.addresses.http.to_string();
    let store = tempfile::tempdir().unwrap();
    let flags = [
        ("server.grpc", "127.0.0.1:0"),
        ("server.http", taken.as_str()),
        ("server.health", "127.0.0.1:0"),
        ("server.admin", "127.0.0.1:0"),
        ("images.repository", "registry.example/team"),
        ("store.path", store.path().to_str().unwrap()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = config::load(&Kinds::shipped(), None, [], &flags).unwrap().config;
    let error = outrigger_server::start(config, &Kinds::shipped()).unwrap_err();
    assert!(matches!(error, Error::Bind(_)), "{error}");
    assert_eq!(error.to_string(), format!("cannot listen on {taken} for http"));
    assert_eq!(store.path().read_dir().unwrap().count(), 0, "the store was not touched");
}

#[tokio::test]
async fn an_unusable_store_is_reported_and_the_addresses_are_released() {
    let file = tempfile::NamedTempFile::new().unwrap();
    // No other test uses this address, so the port stays free until the server binds it.
    let free = std::net::TcpListener::bind("127.0.81.2:0").unwrap().local_addr().unwrap();
    let free = free.to_string();
    let flags = [
        ("server.grpc", free.as_str()),
        ("server.http", "127.0.0.1:0"),
        ("server.health", "127.0.0.1:0"),
        ("server.admin", "127.0.0.1:0"),
        ("images.repository", "registry.example/team"),
        ("store.path", file.path().to_str().unwrap()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = config::load(&Kinds::shipped(), None, [], &flags).unwrap().config;
    let error = outrigger_server::start(config, &Kinds::shipped()).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    std::net::TcpListener::bind(&free).expect("the address is free");
}

#[tokio::test]
async fn under_load_every_request_that_reached_the_engine_is_answered() {
    const CLIENTS: u32 = 8;
    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let (asking, mut enough) = watch::channel(0);
    let count = Arc::clone(&asked);
    stack.engine.on_predict(move |_| {
        asking.send_replace(count.fetch_add(1, SeqCst) + 1);
        Predicting::Outputs(vec![floats("scores", &[1, 1], [7.0])])
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = stack.predictions();
            tokio::spawn(async move {
                let mut answered = 0;
                while client.predict(request(&[(1.0, 1.0)])).await.is_ok() {
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    enough.wait_for(|asked| *asked > 200).await.expect("the load goes on");
    stack.tell_to_stop();
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    stack.stopped().await.unwrap();
    assert_eq!(answered, asked.load(SeqCst));
}
