//! Tokens, certificates, the rights of either, and the record of changes.

use std::{net::SocketAddr, time::Duration};

use outrigger_proto::outrigger::v1::{
    AbortCanaryRequest, ListModelsRequest, LoadModelRequest, PromoteCanaryRequest,
    UnloadModelRequest, canary_service_client::CanaryServiceClient,
    model_service_client::ModelServiceClient, model_version::State,
    prediction_service_client::PredictionServiceClient,
};
use serde_json::Value;
use tonic::{Code, Request, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    certificates::{self, Authority, Mount, uri},
    logged::{Lines, logged},
    stack::{MODEL, Stack, by_name, channel, linear, reason, request},
};

const SHOP: &str = "the-token-of-the-shop";
const CI: &str = "the-token-of-deployments";

/// The rights of two callers; all others may only read.
const CALLERS: &str = r#"{"token:shop": [predict], "token:ci": [change]}"#;

async fn guarded(tokens: &Mount) -> Stack {
    Stack::with(&[
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.anonymous", "[read]"),
        ("auth.callers", CALLERS),
    ])
    .await
}

fn tokens() -> Mount {
    Mount::new(&[("shop", SHOP), ("ci", CI)])
}

/// Wraps a message in a request with a token.
pub(crate) fn with<T>(token: Option<&str>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().expect("a header");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// `OK`, or the reason of the failure.
pub(crate) fn outcome_of<T>(result: Result<T, Status>) -> String {
    result.map_or_else(|status| reason(&status), |_| "OK".to_owned())
}

async fn predict(stack: &Stack, token: Option<&str>) -> String {
    outcome_of(stack.predictions().predict(with(token, request(&[(1.0, 1.0)]))).await)
}

async fn list(stack: &Stack, token: Option<&str>) -> String {
    outcome_of(stack.models().list_models(with(token, ListModelsRequest {})).await)
}

/// Loads the model on the admin listener; returns `OK` or the reason of the failure.
async fn load(stack: &Stack, token: Option<&str>) -> String {
    let load = LoadModelRequest { model: Some(by_name(MODEL)) };
    outcome_of(stack.admin().load_model(with(token, load)).await)
}

#[tokio::test]
async fn each_verb_takes_its_right_over_grpc() {
    let stack = guarded(&tokens()).await;
    let wrong = Some("not-a-token-of-anybody");
    let deny = ["UNAUTHENTICATED", "PERMISSION_DENIED"];
    for (token, expected) in [
        (None, [deny[0], "OK", deny[0]]),
        (Some(SHOP), ["OK", "OK", deny[1]]),
        (Some(CI), [deny[1], "OK", "OK"]),
        (wrong, [deny[0], deny[0], deny[0]]),
    ] {
        let got =
            [predict(&stack, token).await, list(&stack, token).await, load(&stack, token).await];
        assert_eq!(got, expected, "{token:?}");
    }
}

#[tokio::test]
async fn every_change_takes_the_right_to_change() {
    let stack = guarded(&tokens()).await;
    let mut canaries = CanaryServiceClient::new(channel(stack.addresses.admin));
    let (model, by) = (MODEL.to_owned(), "somebody".to_owned());
    let promote = PromoteCanaryRequest { model, by, ..Default::default() };
    let abort = AbortCanaryRequest {
        model: promote.model.clone(),
        by: promote.by.clone(),
        ..Default::default()
    };
    let unload = UnloadModelRequest { model: Some(by_name(MODEL)), delete: false };
    for (token, expected, unloaded) in [
        (None, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        (Some(SHOP), "PERMISSION_DENIED", "PERMISSION_DENIED"),
        (Some(CI), "CANARY_NOT_FOUND", "OK"),
    ] {
        if token == Some(CI) {
            assert_eq!(load(&stack, token).await, "OK");
        }
        assert_eq!(
            outcome_of(canaries.promote_canary(with(token, promote.clone())).await),
            expected
        );
        assert_eq!(outcome_of(canaries.abort_canary(with(token, abort.clone())).await), expected);
        assert_eq!(
            outcome_of(stack.admin().unload_model(with(token, unload.clone())).await),
            unloaded
        );
    }
    let elsewhere = stack.models().unload_model(with(Some(CI), unload)).await;
    assert_eq!(outcome_of(elsewhere), "ADMIN_ONLY", "whoever asks");
}

#[tokio::test]
async fn http_says_401_and_403() {
    let stack = guarded(&tokens()).await;
    let client = reqwest::Client::new();
    for (method, path, token, status, reason) in [
        ("GET", "/v1/models", None, 200, None),
        ("GET", "/v1/models", Some("not-a-token-of-anybody"), 401, Some("UNAUTHENTICATED")),
        ("POST", "/v1/predict", None, 401, Some("UNAUTHENTICATED")),
        ("POST", "/v1/predict", Some(CI), 403, Some("PERMISSION_DENIED")),
        ("POST", "/v1/predict", Some(SHOP), 400, Some("REQUEST_MALFORMED")),
        ("POST", "/v1/explain", Some(CI), 403, Some("PERMISSION_DENIED")),
        ("POST", "/v1/explain", Some(SHOP), 400, Some("REQUEST_MALFORMED")),
    ] {
        let mut asked = client.request(method.parse().unwrap(), stack.http(path)).body("{}");
        if let Some(token) = token {
            asked = asked.bearer_auth(token);
        }
        let answer = asked.send().await.unwrap();
        assert_eq!(answer.status(), status, "{method} {path} {token:?}");
        let challenge = answer.headers().get("www-authenticate").cloned();
        assert_eq!(challenge.is_some(), status == 401);
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["reason"].as_str(), reason);
    }
    let basic = client.get(stack.http("/v1/models")).basic_auth("shop", Some(SHOP)).send().await;
    assert_eq!(basic.unwrap().status(), 401, "another scheme is no token");
}

#[tokio::test]
async fn probes_are_open_to_all() {
    let stack = guarded(&tokens()).await;
    let mut health = HealthClient::new(channel(stack.addresses.grpc));
    health.check(HealthCheckRequest::default()).await.expect("gRPC health is open");
    for path in ["/healthz", "/metrics"] {
        assert_eq!(stack.health(path).await.0, 200);
    }
}

#[tokio::test]
async fn the_description_of_the_http_surface_is_open_to_all() {
    let tokens = tokens();
    let stack = Stack::with(&[
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.callers", r#"{"token:ci": [read]}"#),
    ])
    .await;
    let get = async |path: &str| reqwest::get(stack.http(path)).await.unwrap();
    assert_eq!(get("/v1/models").await.status(), 401);
    let document: Value = get("/openapi.json").await.json().await.unwrap();
    assert_eq!(document["openapi"], "3.1.0");
}

#[tokio::test]
async fn the_page_is_for_those_who_may_read_with_a_token_as_password() {
    let tokens = tokens();
    let stack = Stack::with(&[
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.callers", r#"{"token:ci": [read]}"#),
    ])
    .await;
    let page = || reqwest::Client::new().get(format!("http://{}/ui", stack.addresses.admin));
    let status = async |asked: reqwest::RequestBuilder| asked.send().await.unwrap().status();
    assert_eq!(status(page().basic_auth("anybody", Some(CI))).await, 200);
    assert_eq!(status(page().bearer_auth(CI)).await, 200);
    assert_eq!(status(page().basic_auth("anybody", Some(SHOP))).await, 403);
    let answer = page().send().await.unwrap();
    assert_eq!(answer.status(), 401);
    let challenge = answer.headers()["www-authenticate"].to_str().unwrap().to_owned();
    assert!(challenge.starts_with("Basic "), "a browser asks its user: {challenge}");
}

/// The message of an unload of [`MODEL`], framed as gRPC does.
fn unload_message() -> Vec<u8> {
    let unload = UnloadModelRequest { model: Some(by_name(MODEL)), delete: true };
    outrigger_proto::raw::unary::framed(&prost::Message::encode_to_vec(&unload)).to_vec()
}

/// A browser's request to unload [`MODEL`]: a browser uses HTTP/1.1 without TLS.
fn unload_by_browser(client: &reqwest::Client, host: &str) -> reqwest::RequestBuilder {
    let path = "outrigger.v1.ModelService/UnloadModel";
    client.post(format!("http://{host}/{path}")).body(unload_message())
}

/// Whether [`MODEL`] is in the engine.
async fn is_loaded(stack: &Stack) -> bool {
    let models =
        stack.models().list_models(ListModelsRequest {}).await.expect("the states").into_inner();
    let versions = models.models.into_iter().flat_map(|model| model.versions);
    versions.into_iter().any(|version| version.state() == State::Available)
}

#[tokio::test]
async fn a_change_is_not_taken_from_a_browser_that_another_site_has_send_it() {
    let stack = Stack::start().await;
    assert_eq!(load(&stack, None).await, "OK");
    let client = reqwest::Client::new();
    let admin = stack.addresses.admin.to_string();
    // A page of another site may send this content type without a preflight.
    let asked = unload_by_browser(&client, &admin).header("content-type", "text/plain");
    assert_eq!(asked.send().await.unwrap().status(), 415);
    for headers in [
        &[("origin", "http://evil.example")][..],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
        // Even the page's own scripts change nothing: changes are made over HTTP/2.
        &[("origin", &format!("http://{admin}")), ("sec-fetch-site", "same-origin")],
    ] {
        let asked = unload_by_browser(&client, &admin).header("content-type", "application/grpc");
        let asked = headers.iter().fold(asked, |asked, (name, value)| asked.header(*name, *value));
        let answer = asked.send().await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "7", "{headers:?}: {answer:?}");
        assert!(is_loaded(&stack).await, "{headers:?}");
    }
}

#[tokio::test]
async fn a_site_whose_name_resolves_to_the_admin_listener_reads_and_changes_nothing() {
    let lines = logged();
    let stack = Stack::with(&[
        ("auth.anonymous", "[predict, read, change]"),
        ("server.admin_names", "[admin.example]"),
    ])
    .await;
    assert_eq!(load(&stack, None).await, "OK");
    let admin = stack.addresses.admin;
    let client = reqwest::Client::builder()
        .resolve("evil.example", admin)
        .resolve("admin.example", admin)
        .build()
        .unwrap();
    let url = |host: &str, path: &str| format!("http://{host}:{}{path}", admin.port());
    let evil = format!("evil.example:{}", admin.port());
    let asked = unload_by_browser(&client, &evil)
        .header("content-type", "application/grpc")
        .header("origin", format!("http://{evil}"))
        .header("sec-fetch-site", "same-origin");
    let answer = asked.send().await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "7", "{answer:?}");
    assert!(is_loaded(&stack).await);
    assert!(lines.text().contains("evil.example"), "the attempt is in the record of changes");
    for path in ["/ui", "/ui/events", "/ui/models/offers/spring", "/ui/app.js"] {
        let answer = client.get(url("evil.example", path)).send().await.unwrap();
        assert_eq!(answer.status(), 403, "{path}");
    }
    for host in ["admin.example", "localhost", "127.0.0.1"] {
        let answer = client.get(url(host, "/ui")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{host}");
    }
}

#[tokio::test]
async fn without_rules_changes_take_the_token_that_the_server_has_written() {
    let lines = logged();
    let stack = Stack::with(&[("auth.token_file", "{root}/control/token")]).await;
    let file = stack.path("control/token");
    let token = || std::fs::read_to_string(&file).map(|text| text.trim().to_owned());
    let first = token().unwrap();
    let wrong = "not-a-token-of-anybody";
    for (shown, changes) in [
        (None, "UNAUTHENTICATED"),
        // The header may be meant for a proxy: it takes no right away.
        (Some(wrong), "UNAUTHENTICATED"),
        (Some(&*first), "OK"),
    ] {
        assert_eq!(predict(&stack, shown).await, "OK");
        assert_eq!(list(&stack, shown).await, "OK");
        assert_eq!(load(&stack, shown).await, changes, "{shown:?}");
    }
    let page = reqwest::get(format!("http://{}/ui", stack.addresses.admin)).await.unwrap();
    assert_eq!(page.status(), 200);
    let by_operator = |line: &Value| line["caller"] == "local:operator";
    assert!(audit(&lines, MODEL).iter().any(by_operator));
    assert!(!lines.text().contains(&first), "the token is in the log");

    std::fs::remove_file(&file).unwrap();
    until("UNAUTHENTICATED", || load(&stack, Some(&first))).await;
    assert_eq!(load(&stack, Some(&token().unwrap())).await, "OK");
}

#[tokio::test]
async fn the_token_of_the_server_works_beside_tokens_of_callers() {
    let tokens = tokens();
    let directory = tokens.path("").display().to_string();
    let stack = Stack::with(&[
        ("auth.tokens", &directory),
        ("auth.callers", CALLERS),
        ("auth.token_file", "{root}/control/token"),
    ])
    .await;
    let token = std::fs::read_to_string(stack.path("control/token")).unwrap();
    for (shown, expected) in [
        (Some(token.trim()), ["OK", "OK", "OK"]),
        (Some(SHOP), ["OK", "PERMISSION_DENIED", "PERMISSION_DENIED"]),
        (Some("not-a-token-of-anybody"), ["UNAUTHENTICATED"; 3]),
        (None, ["UNAUTHENTICATED"; 3]),
    ] {
        let got =
            [predict(&stack, shown).await, list(&stack, shown).await, load(&stack, shown).await];
        assert_eq!(got, expected, "{shown:?}");
    }
}

#[tokio::test]
async fn with_every_right_for_anonymous_callers_whatever_they_show_is_fine() {
    let stack = Stack::with(&[("auth.anonymous", "[predict, read, change]")]).await;
    for token in [None, Some("not-a-token-of-anybody")] {
        assert_eq!(predict(&stack, token).await, "OK");
        assert_eq!(list(&stack, token).await, "OK");
        assert_eq!(load(&stack, token).await, "OK");
    }
}

#[tokio::test]
async fn with_tokens_and_no_word_on_others_nothing_is_open_to_them() {
    let tokens = tokens();
    let directory = tokens.path("").display().to_string();
    let stack = Stack::with(&[("auth.tokens", &directory)]).await;
    assert_eq!(predict(&stack, None).await, "UNAUTHENTICATED");
    assert_eq!(list(&stack, None).await, "UNAUTHENTICATED");
    assert_eq!(list(&stack, Some(SHOP)).await, "PERMISSION_DENIED");
}

#[tokio::test]
async fn tokens_rotate_and_a_bad_set_changes_nothing() {
    const NEXT: &str = "the-next-token-of-the-shop";
    let mut tokens = tokens();
    let stack = guarded(&tokens).await;
    assert_eq!(predict(&stack, Some(SHOP)).await, "OK");
    tokens.swap(&[("shop", &format!("{SHOP}\n{NEXT}\n")), ("ci", CI)]);
    until("OK", || predict(&stack, Some(NEXT))).await;
    assert_eq!(predict(&stack, Some(SHOP)).await, "OK", "both, while callers change");
    tokens.swap(&[("shop", NEXT), ("ci", CI)]);
    until("UNAUTHENTICATED", || predict(&stack, Some(SHOP))).await;
    assert_eq!(predict(&stack, Some(NEXT)).await, "OK");

    let failed = failures(&stack).await;
    tokens.swap(&[("shop", "short"), ("ci", CI)]);
    while failures(&stack).await <= failed {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(predict(&stack, Some(NEXT)).await, "OK", "the old set stays");
}

/// The number of token reloads that failed.
async fn failures(stack: &Stack) -> f64 {
    const SERIES: &str = r#"outrigger_secret_reloads_total{secret="tokens",outcome="failed"} "#;
    let (_, text) = stack.health("/metrics").await;
    let value = text.lines().find_map(|line| line.strip_prefix(SERIES));
    value.expect("it is there from the start").parse().expect("a number")
}

async fn until<F: Future<Output = String>>(expected: &str, ask: impl Fn() -> F) {
    while ask().await != expected {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn certificates_are_known_by_uri_then_dns_then_common_name() {
    let authority = Authority::new();
    let (pair, ca) = (Mount::pair(&authority.server()), Mount::new(&[("ca.crt", &authority.pem)]));
    let callers = r#"{"uri:spiffe://shop/deploy": [change], "dns:shop.example": [predict],
                      "cn:operator": [change], "*": [read]}"#;
    let stack = Stack::with(&[
        ("tls.certificate", &pair.setting("tls.crt")),
        ("tls.key", &pair.setting("tls.key")),
        ("tls.client_ca", &ca.setting("ca.crt")),
        ("tls.grpc", "optional"),
        ("tls.admin", "optional"),
        ("auth.callers", callers),
    ])
    .await;
    let dns = || rcgen::SanType::DnsName("shop.example".try_into().unwrap());
    let deny = ["UNAUTHENTICATED", "PERMISSION_DENIED"];
    for (caller, expected) in [
        (None, [deny[0]; 3]),
        (Some(("operator", vec![dns(), uri("spiffe://shop/deploy")])), [deny[1], "OK", "OK"]),
        (Some(("operator", vec![dns()])), ["OK", "OK", deny[1]]),
        (Some(("operator", vec![])), [deny[1], "OK", "OK"]),
        (Some(("stranger", vec![])), [deny[1], "OK", deny[1]]),
        // A name has no rights without the kind of credential that proves it.
        (Some(("spiffe://shop/deploy", vec![])), [deny[1], "OK", deny[1]]),
        (Some(("x", vec![uri("cn:operator")])), [deny[1], "OK", deny[1]]),
    ] {
        let pair = caller.clone().map(|(common, names)| authority.caller(common, names));
        let channel =
            |address: SocketAddr| certificates::channel(address, &authority.pem, pair.as_ref());
        let at = stack.addresses;
        let mut predictions = PredictionServiceClient::new(channel(at.grpc));
        let mut models = ModelServiceClient::new(channel(at.grpc));
        let mut admin = ModelServiceClient::new(channel(at.admin));
        let load = LoadModelRequest { model: Some(by_name(MODEL)) };
        let got = [
            outcome_of(predictions.predict(request(&[(1.0, 1.0)])).await),
            outcome_of(models.list_models(ListModelsRequest {}).await),
            outcome_of(admin.load_model(load).await),
        ];
        assert_eq!(got, expected, "{caller:?}");
    }
}

/// The audit records of a model.
pub(crate) fn audit(lines: &Lines, model: &str) -> Vec<Value> {
    let about = |line: &Value| line["target"] == "outrigger::audit" && line["model.name"] == model;
    lines.all().into_iter().filter(about).collect()
}

#[tokio::test]
async fn every_change_is_logged_with_caller_action_and_outcome() {
    const AUDITED: &str = "offers/audited";
    let lines = logged();
    let stack = guarded(&tokens()).await;
    let digest = stack.publish(AUDITED, &linear(0.0)).await;
    let selector = by_name(AUDITED);
    let load = LoadModelRequest { model: Some(selector.clone()) };
    let unload = UnloadModelRequest { model: Some(selector), delete: true };
    let decide = PromoteCanaryRequest {
        model: AUDITED.to_owned(),
        tag: "latest".to_owned(),
        by: "alice".to_owned(),
        reason: "line\n\"forged\"".to_owned(),
    };
    let mut canaries = CanaryServiceClient::new(channel(stack.addresses.admin));
    let (ci, shop) = (Some(CI), Some(SHOP));
    assert_eq!(outcome_of(stack.admin().load_model(with(ci, load.clone())).await), "OK");
    assert_eq!(
        outcome_of(stack.admin().load_model(with(shop, load.clone())).await),
        "PERMISSION_DENIED"
    );
    assert_eq!(
        outcome_of(stack.admin().load_model(with(None, load.clone())).await),
        "UNAUTHENTICATED"
    );
    assert_eq!(outcome_of(stack.models().load_model(with(ci, load)).await), "ADMIN_ONLY");
    let refused = canaries.promote_canary(with(ci, decide)).await;
    assert_eq!(outcome_of(refused), "CANARY_NOT_FOUND");
    assert_eq!(outcome_of(stack.admin().unload_model(with(ci, unload)).await), "OK");

    let records = audit(&lines, AUDITED);
    let of = |key: &str| -> Vec<_> { records.iter().map(|line| line[key].clone()).collect() };
    let ci = "token:ci";
    assert_eq!(of("caller"), [ci, "token:shop", "anonymous", ci, ci, ci]);
    assert_eq!(of("verb"), ["load", "load", "load", "load", "promote", "unload"]);
    assert_eq!(
        of("outcome"),
        ["OK", "PERMISSION_DENIED", "UNAUTHENTICATED", "ADMIN_ONLY", "CANARY_NOT_FOUND", "OK"]
    );
    assert_eq!(records[0]["model.digest"], digest, "it turned out to be");
    assert_eq!(records[4]["by"], "alice");
    assert_eq!(records[4]["reason"], "line\n\"forged\"");
    assert_eq!(records[5]["delete"], true);
    let peers = of("peer").into_iter().map(|peer| peer.as_str().unwrap().parse::<SocketAddr>());
    assert!(peers.into_iter().all(|peer| peer.unwrap().ip().is_loopback()));
}

#[tokio::test]
async fn a_wrong_token_leaves_a_line_and_no_token_is_ever_logged() {
    const WRONG: &str = "a-wrong-token-that-is-nowhere";
    let lines = logged();
    let stack = guarded(&tokens()).await;
    let before = audit(&lines, "").len();
    assert_eq!(load(&stack, Some(WRONG)).await, "UNAUTHENTICATED");
    assert_eq!(load(&stack, Some(CI)).await, "OK");
    assert_eq!(list(&stack, Some(WRONG)).await, "UNAUTHENTICATED");
    // Other tests of this process write lines of their own.
    let records = audit(&lines, "").split_off(before);
    assert!(records.iter().any(|record| record["verb"] == "load"), "{records:?}");
    let text = lines.text();
    for token in [WRONG, CI, SHOP] {
        assert!(!text.contains(token), "{token} is in the log");
    }
}

#[tokio::test]
async fn a_change_whose_caller_goes_away_leaves_a_line_too() {
    const SLOW: &str = "offers/slow-change";
    let lines = logged();
    let stack = guarded(&tokens()).await;
    stack.publish(SLOW, &linear(0.0)).await;
    let (_gate, mut arrivals) = crate::limits::hold_loads(&stack);
    let mut admin = stack.admin();
    let load = LoadModelRequest { model: Some(by_name(SLOW)) };
    let asked = tokio::spawn(async move { admin.load_model(with(Some(CI), load)).await });
    arrivals.recv().await.expect("it is being loaded");
    asked.abort();
    while audit(&lines, SLOW).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(audit(&lines, SLOW)[0]["outcome"], "CANCELLED");
}

#[tokio::test]
async fn refusals_have_the_codes_of_grpc_and_name_the_caller() {
    let stack = guarded(&tokens()).await;
    let status = stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let asked = with(Some(CI), request(&[(1.0, 1.0)]));
    let status = stack.predictions().predict(asked).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("token:ci"), "{}", status.message());
}
