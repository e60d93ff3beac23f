//! The page `/ui` beside gRPC on the admin listener.

use std::{net::IpAddr, time::Duration};

use outrigger_proto::outrigger::v1::{
    ListModelsRequest, LoadModelRequest, UnloadModelRequest,
    model_service_client::ModelServiceClient,
};
use reqwest::{Response, StatusCode, header};
use serde_json::Value;
use tokio::time::timeout;

use crate::stack::{MODEL, Stack, by_name, channel, request};

/// The time limit for an event; the stream sends one every second.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most open pages, as defined in the server.
const MOST_WATCHERS: usize = 64;

impl Stack {
    async fn page(&self, path: &str) -> Response {
        let url = format!("http://{}{path}", self.addresses.admin);
        reqwest::get(url).await.expect("an answer")
    }

    pub(crate) async fn watch(&self) -> Events {
        let response = self.page("/ui/events").await;
        assert_eq!(response.status(), StatusCode::OK);
        Events { response, text: String::new() }
    }
}

/// A stream of events, parsed as a browser does.
pub(crate) struct Events {
    response: Response,
    text: String,
}

impl Events {
    /// Name and data of the next event; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (name, data) = event.split_once('\n').expect("two lines");
                let name = name.strip_prefix("event: ").expect("a name").to_owned();
                let data = data.strip_prefix("data: ").expect("data");
                let data = serde_json::from_str(data).expect("JSON in one line");
                self.text = rest.to_owned();
                return Some((name, data));
            }
            let chunk = timeout(PATIENCE, self.response.chunk()).await.expect("it goes on");
            let chunk = chunk.ok().flatten()?;
            self.text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }

    /// The data of the next event of that name that satisfies the condition.
    pub(crate) async fn until(&mut self, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let found = timeout(PATIENCE, async {
            loop {
                let (event, data) = self.next().await.expect("not the end");
                if event == name && condition(&data) {
                    return data;
                }
            }
        });
        found.await.unwrap_or_else(|_| panic!("no such {name}"))
    }
}

#[tokio::test]
async fn the_page_is_served_with_its_security_headers() {
    let stack = Stack::start().await;
    for (path, kind) in [
        ("/ui", "text/html"),
        ("/ui/app.js", "text/javascript"),
        ("/ui/style.css", "text/css"),
        ("/ui/events", "text/event-stream"),
        ("/ui/nothing-there", "text/plain"),
    ] {
        let answer = stack.page(path).await;
        let value = |name: header::HeaderName| answer.headers()[name].to_str().unwrap().to_owned();
        assert!(value(header::CONTENT_TYPE).starts_with(kind), "{path}: {:?}", answer.headers());
        let policy = value(header::CONTENT_SECURITY_POLICY);
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(value(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert!(["no-cache", "no-store"].contains(&&*value(header::CACHE_CONTROL)), "{path}");
    }
    // A request for the address alone, with or without a slash, is redirected to the page.
    for path in ["/", "/ui/"] {
        assert_eq!(stack.page(path).await.url().path(), "/ui");
    }
    assert_eq!(stack.page("/ui/nothing-there").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(stack.page("/ui/models/not/known").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn assets_cached_by_the_browser_are_not_sent_again() {
    let stack = Stack::start().await;
    let tag = stack.page("/ui/app.js").await.headers()[header::ETAG].clone();
    let again = reqwest::Client::new()
        .get(format!("http://{}/ui/app.js", stack.addresses.admin))
        .header(header::IF_NONE_MATCH, tag)
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn the_stream_sends_the_full_state_and_then_changes() {
    let stack = Stack::start().await;
    let mut events = stack.watch().await;
    let mut first = Vec::new();
    for _ in 0..4 {
        first.push(events.next().await.expect("an event").0);
    }
    assert_eq!(first, ["overview", "models", "canaries", "traffic"]);
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let is_up = |data: &Value| data["models"][0]["state"] == "available";
    let step = events.until("models-step", is_up).await;
    assert_eq!(step["models"][0]["name"], MODEL);
    events.until("traffic-step", |sample| sample["models"][MODEL].is_array()).await;
    let overview = events.until("overview", |it| it["engines"][0]["loaded"] == 1).await;
    let engine = &overview["engines"][0];
    assert_eq!((&engine["name"], &engine["reachable"]), (&"default".into(), &true.into()));
    assert!(overview["store"]["max_bytes"].as_f64() > Some(0.0));
    assert!(overview["memory"]["requests"]["limit"].as_f64() > Some(0.0));
    let cpus = &overview["about"]["cpus"];
    assert!(cpus["cores"].as_u64() >= Some(1) && cpus["threads"].as_u64() >= Some(1), "{cpus}");

    // A later viewer receives the full state first.
    let whole = stack.watch().await.until("models", |_| true).await;
    assert_eq!(whole["models"][0]["name"], MODEL);
    let life: Value = stack.page(&format!("/ui/models/{MODEL}")).await.json().await.unwrap();
    let last = life["model"]["versions"][0]["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["to"], "available");
    assert!(!last["cause"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn as_many_may_watch_as_there_are_places() {
    let stack = Stack::start().await;
    let mut watching = Vec::new();
    for _ in 0..MOST_WATCHERS {
        watching.push(stack.watch().await);
    }
    let refused = stack.page("/ui/events").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    // A client with fewer pages than the others gets a place of theirs.
    let other = reqwest::Client::builder().local_address(IpAddr::from([127, 0, 0, 2])).build();
    let url = format!("http://{}/ui/events", stack.addresses.admin);
    let operator = other.unwrap().get(url).send().await.unwrap();
    assert_eq!(operator.status(), StatusCode::OK);
    let ended = async { while watching[0].next().await.is_some() {} };
    timeout(PATIENCE, ended).await.expect("the oldest page loses its place");
    watching.pop();
    let place = async {
        while stack.page("/ui/events").await.status() != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, place).await.expect("the place is free again");
}

#[tokio::test]
async fn a_stop_ends_the_streams() {
    let stack = Stack::start().await;
    let mut events = stack.watch().await;
    events.until("overview", |_| true).await;
    stack.tell_to_stop();
    while events.next().await.is_some() {}
    stack.stopped().await.expect("it stops in order");
}

#[tokio::test]
async fn grpc_on_the_same_port_is_as_it_was() {
    let stack = Stack::start().await;
    let _watching = stack.watch().await;
    let mut admin = ModelServiceClient::new(channel(stack.addresses.admin));
    let load = LoadModelRequest { model: Some(by_name(MODEL)) };
    admin.load_model(load).await.unwrap();
    let listed = admin.list_models(ListModelsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.models[0].name, MODEL);
}

/// Any page in a browser can send such a request to loopback. The browser holds back only requests
/// that need a preflight.
#[tokio::test]
async fn another_page_in_the_browser_changes_nothing() {
    use prost::Message as _;

    let stack = Stack::start().await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let unload = UnloadModelRequest { model: Some(by_name(MODEL)), delete: true };
    let length = u32::try_from(unload.encoded_len()).unwrap();
    let frame = [&[0][..], &length.to_be_bytes(), &unload.encode_to_vec()].concat();
    let path = "/outrigger.v1.ModelService/UnloadModel";
    let answer = reqwest::Client::new()
        .post(format!("http://{}{path}", stack.addresses.admin))
        .header(header::CONTENT_TYPE, "text/plain")
        .body(frame)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let life: Value = stack.page(&format!("/ui/models/{MODEL}")).await.json().await.unwrap();
    assert_eq!(life["model"]["versions"][0]["state"], "available");
}
