//! TLS, tokens and rights hold on its listener as on the others, over gRPC and REST.

use outrigger_proto::{
    tensorflow::serving::{
        GetModelStatusRequest, ModelConfig, ModelConfigList, ModelServerConfig,
        ReloadConfigRequest, model_server_config::Config, model_service_client::ModelServiceClient,
    },
    xgboost_serving::{PredictRequest, prediction_service_client::PredictionServiceClient},
};
use serde_json::{Value, json};
use tonic::{Code, Request, Status, transport::Channel};

use super::fixture::{TREES, floats, request, spec, start};
use crate::{
    auth::with,
    certificates::{Authority, Mount, Pair, channel, http, shake},
    stack::{Stack, reason},
};

const SHOP: &str = "the-token-of-the-shop";
const CI: &str = "the-token-of-deployments";
const UNKNOWN: &str = "a-token-of-nobody";

fn trees() -> PredictRequest {
    request(TREES, &[("xgboost_features", &[&[(1, 2.0), (2, 0.5)]])])
}

/// [`trees`] over REST.
fn document() -> Value {
    json!({"xgboost_features": [{"feature_score": {"id": [1, 2], "score": [2, 0.5]}}]})
}

fn reload() -> ReloadConfigRequest {
    let config = vec![ModelConfig { name: TREES.to_owned(), ..ModelConfig::default() }];
    let config = Some(Config::ModelConfigList(ModelConfigList { config }));
    let config = Some(ModelServerConfig { config });
    ReloadConfigRequest { config, ..ReloadConfigRequest::default() }
}

/// A server whose listener has this transport, and the files of its certificate and of the
/// authority of its callers, which are `authority`'s.
async fn with_tls(authority: &Authority, transport: &str) -> (Stack, [Mount; 2]) {
    let own = Mount::pair(&authority.server());
    let client_ca = Mount::new(&[("ca.crt", &authority.pem)]);
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| own.setting(name));
    let authority = client_ca.setting("ca.crt");
    let mut settings = vec![
        ("tls.certificate", certificate.as_str()),
        ("tls.key", key.as_str()),
        ("tls.xgboost_serving", transport),
        // The speed of a busy machine is not under test, so the deadline is long.
        ("server.default_deadline", "10m"),
    ];
    if transport == "mutual" {
        settings.push(("tls.client_ca", &authority));
    }
    (start(&settings).await, [own, client_ca])
}

/// True for each call that is answered: a prediction over gRPC, a load, a prediction over REST.
async fn answers(stack: &Stack, authorities: &str, caller: Option<&Pair>) -> [bool; 3] {
    let address = stack.addresses.xgboost_serving.expect("a listener");
    let channel = || channel(address, authorities, caller);
    let predicted = PredictionServiceClient::new(channel()).predict(trees()).await;
    let predicted = predicted.is_ok_and(|answer| floats(answer.into_inner(), &[1]) == [5.5]);
    let reloaded = ModelServiceClient::new(channel()).handle_reload_config_request(reload()).await;
    let url = format!("https://{address}/v1/models/{TREES}:predict");
    let posted = http(authorities, caller).post(url).json(&document()).send().await;
    [predicted, reloaded.is_ok(), posted.is_ok_and(|answer| answer.status().is_success())]
}

#[tokio::test]
async fn it_answers_over_tls_to_callers_that_trust_its_authority() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (stack, _files) = with_tls(&authority, "server").await;
    assert_eq!(answers(&stack, &authority.pem, None).await, [true; 3]);
    assert_eq!(answers(&stack, &other.pem, None).await, [false; 3]);
    let address = stack.addresses.xgboost_serving.expect("a listener");
    let stream = shake(address, &authority.pem, None).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let plain = super::fixture::predict(&stack, trees()).await;
    assert!(plain.is_err(), "not without TLS");
    let plain = reqwest::get(format!("http://{address}/v1/models/{TREES}")).await;
    assert!(plain.is_err(), "not without TLS");
}

#[tokio::test]
async fn with_mutual_tls_its_callers_need_a_certificate() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (stack, _files) = with_tls(&authority, "mutual").await;
    for (caller, expected) in [
        (Some(authority.caller("shop", Vec::new())), true),
        (None, false),
        (Some(other.caller("shop", Vec::new())), false),
    ] {
        assert_eq!(answers(&stack, &authority.pem, caller.as_ref()).await, [expected; 3]);
    }
}

/// A server with two callers that have tokens; all others may only read. `further` is for all
/// callers of the listener.
async fn guarded(further: &str) -> Stack {
    let tokens = Mount::new(&[("shop", SHOP), ("ci", CI)]);
    start(&[
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.anonymous", "[read]"),
        ("auth.callers", r#"{"token:shop": [predict], "token:ci": [change]}"#),
        ("auth.xgboost_serving", further),
    ])
    .await
}

const OK: (Code, &str) = (Code::Ok, "");
const UNAUTHENTICATED: (Code, &str) = (Code::Unauthenticated, "UNAUTHENTICATED");
const DENIED: (Code, &str) = (Code::PermissionDenied, "PERMISSION_DENIED");

/// The status and the reason of an answer; the reason is empty for success.
fn status_of<T>(result: Result<T, Status>) -> (Code, String) {
    result.map_or_else(|it| (it.code(), reason(&it)), |_| (Code::Ok, String::new()))
}

/// The outcomes of each of its three predictions, of a status and of a load, with this token.
async fn over_grpc(stack: &Stack, token: Option<&str>) -> [(Code, String); 5] {
    let channel = crate::stack::channel(stack.addresses.xgboost_serving.expect("a listener"));
    let mut predictions = PredictionServiceClient::new(channel.clone());
    let mut models = ModelServiceClient::<Channel>::new(channel);
    let states = GetModelStatusRequest { model_spec: Some(spec(TREES, None)) };
    let asked = || -> Request<PredictRequest> { with(token, trees()) };
    [
        status_of(predictions.predict(asked()).await),
        status_of(predictions.predict_alphafm(asked()).await),
        status_of(predictions.predict_alphafm_softmax(asked()).await),
        status_of(models.get_model_status(with(token, states)).await),
        status_of(models.handle_reload_config_request(with(token, reload())).await),
    ]
}

#[tokio::test]
async fn each_method_takes_its_right() {
    let stack = guarded("[]").await;
    // The request of `trees` has no row for the machine.
    let malformed = (Code::InvalidArgument, "REQUEST_MALFORMED");
    let unknown = UNAUTHENTICATED;
    for (token, expected) in [
        (Some(CI), [DENIED, DENIED, DENIED, OK, OK]),
        (None, [unknown, unknown, unknown, OK, unknown]),
        (Some(SHOP), [OK, malformed, malformed, OK, DENIED]),
        (Some(UNKNOWN), [unknown; 5]),
    ] {
        if token == Some(CI) {
            // A model has a status once somebody has asked for it.
            let [.., reloaded] = over_grpc(&stack, token).await;
            assert_eq!(reloaded.0, Code::Ok);
        }
        let found = over_grpc(&stack, token).await;
        let found = found.each_ref().map(|(code, reason)| (*code, &**reason));
        assert_eq!(found, expected, "{token:?}");
    }
}

#[tokio::test]
async fn the_further_rights_of_its_callers_are_not_for_a_wrong_token() {
    let stack = guarded("[predict, change]").await;
    for (token, expected) in [(None, OK), (Some(SHOP), OK), (Some(UNKNOWN), UNAUTHENTICATED)] {
        let [predicted, .., reloaded] = over_grpc(&stack, token).await;
        for (code, reason) in [predicted, reloaded] {
            assert_eq!((code, &*reason), expected, "{token:?}");
        }
    }
}

#[tokio::test]
async fn rest_says_401_and_403() {
    let stack = guarded("[]").await;
    let address = stack.addresses.xgboost_serving.expect("a listener");
    let client = reqwest::Client::new();
    let model = format!("/v1/models/{TREES}");
    let verbs = [":predict", ":predict_alphafm", ":predict_softmax"];
    let [predict, machine, softmax] = verbs.map(|verb| format!("{model}{verb}"));
    for (method, path, token, status, reason) in [
        ("POST", &predict, None, 401, "UNAUTHENTICATED"),
        ("POST", &predict, Some(UNKNOWN), 401, "UNAUTHENTICATED"),
        ("POST", &predict, Some(CI), 403, "PERMISSION_DENIED"),
        ("POST", &machine, Some(CI), 403, "PERMISSION_DENIED"),
        ("POST", &softmax, Some(CI), 403, "PERMISSION_DENIED"),
        ("POST", &predict, Some(SHOP), 200, ""),
        ("GET", &model, None, 200, ""),
        ("GET", &model, Some(CI), 200, ""),
        ("GET", &model, Some(UNKNOWN), 401, "UNAUTHENTICATED"),
    ] {
        let url = format!("http://{address}{path}");
        let mut asked = client.request(method.parse().expect("a method"), url);
        if method == "POST" {
            asked = asked.json(&document());
        }
        if let Some(token) = token {
            asked = asked.bearer_auth(token);
        }
        let answer = asked.send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{method} {path} {token:?}");
        assert_eq!(answer.headers().contains_key("www-authenticate"), status == 401);
        let body: Value = answer.json().await.expect("a document");
        assert_eq!(body["reason"].as_str().unwrap_or_default(), reason, "{body}");
    }
}
