//! The configuration is reloaded at run time, all of a change or nothing.

use outrigger_proto::outrigger::v1::{BatchPredictRequest, PredictRequest};

use crate::stack::{MODEL, Stack, by_name, hold, reason, request};

#[tokio::test]
async fn models_come_and_go() {
    let stack = Stack::with_file("models: []", &[]).await;
    let mut client = stack.predictions();
    let ask = || PredictRequest { model: Some(by_name("alias")), ..request(&[(1.0, 2.0)]) };
    let unknown = reason(&client.predict(ask()).await.unwrap_err());
    let listed = "models: [{name: alias, image: 'oci:{root}/models/offers/spring', preload: true}]";
    for _ in 0..2 {
        assert_eq!(stack.configure(listed).await.outcome, "ok");
        client.predict(ask()).await.expect("it is known");
        assert_eq!(stack.configure("models: []").await.outcome, "ok");
        assert_eq!(reason(&client.predict(ask()).await.unwrap_err()), unknown);
    }
    client.predict(request(&[(1.0, 2.0)])).await.expect("its own name is another matter");
}

#[tokio::test]
async fn a_lowered_limit_lets_requests_in_progress_finish() {
    let stack = Stack::with_file("server: {max_in_flight: 2}", &[]).await;
    let client = stack.predictions();
    client.clone().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (gate, mut arrivals) = hold(&stack);
    let ask = || {
        let mut client = client.clone();
        async move { client.predict(request(&[(1.0, 1.0)])).await }
    };
    let (first, second) = (tokio::spawn(ask()), tokio::spawn(ask()));
    arrivals.recv().await.unwrap();
    arrivals.recv().await.unwrap();

    let reload = stack.configure("server: {max_in_flight: 1}").await;
    assert_eq!((reload.outcome, reload.error), ("ok", None));
    let third = tokio::spawn(ask());
    gate.open();
    first.await.unwrap().expect("it had begun");
    second.await.unwrap().expect("it had begun");
    third.await.unwrap().expect("it has a place now");

    let (gate, mut arrivals) = hold(&stack);
    let only = tokio::spawn(ask());
    arrivals.recv().await.unwrap();
    let waiting = tokio::spawn(ask());
    stack.until_waiting("place", 1).await;
    assert!(arrivals.try_recv().is_err(), "there is one place");
    gate.open();
    for answer in [only, waiting] {
        answer.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_raised_limit_holds_for_models_that_are_loaded_already() {
    let stack = Stack::with_file("server: {max_treatments: 1}", &[]).await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.expect("the model is loaded");
    let two = request(&[(1.0, 1.0), (2.0, 2.0)]);
    let refused = client.predict(two.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), "TOO_MANY_TREATMENTS");
    assert_eq!(stack.configure("server: {max_treatments: 2}").await.outcome, "ok");
    client.predict(two.clone()).await.expect("a single request");
    let batch = BatchPredictRequest {
        model: two.model.clone(),
        requests: vec![PredictRequest { model: None, ..two }],
        ..Default::default()
    };
    client.batch_predict(batch).await.expect("a batch");
    let features = r#"{"t0": 1, "t1": 1}"#;
    let body = format!(
        r#"{{"model": {{"name": "{MODEL}"}}, "user": {{"u0": 1}},
             "treatments": [{{"id": "a", "features": {features}}}, {{"id": "b", "features": {features}}}]}}"#
    );
    let json = reqwest::Client::new().post(stack.http("/v1/predict")).body(body);
    let answer = json.send().await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
}

#[tokio::test]
async fn a_change_that_needs_a_restart_is_refused_by_name_and_shown() {
    let stack = Stack::with_file("server: {max_users: 1}", &[]).await;
    let mut events = stack.watch().await;
    let before = events.until("overview", |_| true).await;
    assert!(before["last_reload"].is_null());

    let text = "server: {max_users: 2, threads: 7}\nauth: {callers: {'*': [read]}}";
    let reload = stack.configure(text).await;
    let error =
        "a restart is needed for auth.callers (was not given), server.threads (was not given)";
    assert_eq!((reload.outcome, reload.error.as_deref()), ("refused", Some(error)));
    let shown = events.until("overview", |overview| !overview["last_reload"].is_null()).await;
    assert_eq!(shown["last_reload"]["outcome"], "refused");
    assert_eq!(shown["last_reload"]["error"], error);
    assert_eq!(shown["last_reload"]["at"].as_u64(), Some(reload.at));
    let (_, metrics) = stack.health("/metrics").await;
    for outcome in ["ok", "unchanged", "refused", "invalid"] {
        let series = format!("outrigger_config_reloads_total{{outcome=\"{outcome}\"}} ");
        assert!(metrics.contains(&series), "{series}");
    }

    let reload = stack.configure("server: {max_users: none}").await;
    assert_eq!(reload.outcome, "invalid");
    assert!(reload.error.unwrap().starts_with("server.max_users: "));
    let reload = stack.configure("server: {max_users: 1}").await;
    assert_eq!((reload.outcome, reload.error), ("unchanged", None));
    assert_eq!(stack.reload().await.outcome, "unchanged", "on request, too");
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.expect("the old one goes on");
}
