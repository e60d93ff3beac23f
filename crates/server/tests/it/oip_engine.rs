//! Models on servers of the Open Inference Protocol, through `serve`'s own wiring.

mod repository;

use std::time::{Duration, Instant};

use bytes::Bytes;
use outrigger_proto::{
    inference::ModelInferResponse,
    outrigger::v1::{
        FeatureMap, ModelSelector, PredictRequest, Treatment, UnloadModelRequest, Value,
        predict_request::User, predict_response::Output, value::Kind,
    },
};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use serde_json::json;
use tonic::Status;

use crate::stack::{Stack, reason};

/// The time limit for any wait, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const NAME: &str = "far";

/// A server of the protocol whose models return their input, and a control plane in front of it.
struct Far {
    stack: Stack,
    server: Server,
}

/// The files of a package whose golden case expects this score of a treatment with the feature 3.
fn package(expected: f32) -> Vec<(String, String)> {
    let metadata = json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "oip",
        "remote": {"model": "m"},
        "inputs": [{
            "tensor": "x", "entity": "joined", "dtype": "float32",
            "features": [{"name": "discount", "entity": "treatment", "required": true}],
        }],
        "outputs": [{"tensor": "OUT_x", "name": "score", "kind": "per_treatment"}],
    });
    let golden = json!({
        "request": {"user": {}, "treatments": [{"features": {"discount": 3}}]},
        "expected": {"scores": [expected]},
    });
    vec![
        ("metadata.json".to_owned(), metadata.to_string()),
        ("golden.jsonl".to_owned(), golden.to_string()),
    ]
}

impl Far {
    /// With further settings of the engine.
    async fn start(settings: &str) -> Self {
        let server = Server::start(Protocol::Http2, identity::server).await;
        let address = server.address();
        Self::before(server, &format!("endpoint: '{address}'{settings}")).await
    }

    /// A control plane whose engine has these settings, beside the server.
    async fn before(server: Server, settings: &str) -> Self {
        Self::with(server, settings, "30m").await
    }

    /// As [`Self::before`], with this time until an idle version is unloaded.
    async fn with(server: Server, settings: &str, idle: &str) -> Self {
        let engines = format!(
            "{{default: {{kind: tfserving, endpoint: '{{engine}}'}}, \
               gpu: {{kind: oip, {settings}}}}}"
        );
        let settings =
            [("engines", &*engines), ("images.poll_interval", "1s"), ("store.idle_ttl", idle)];
        Self { stack: Stack::with(&settings).await, server }
    }

    async fn publish(&self, expected: f32) -> String {
        self.stack.publish_files(NAME, "latest", &package(expected)).await
    }

    /// The scores of treatments with these features.
    async fn scores(&self, discounts: &[f32]) -> Result<Vec<f32>, Status> {
        let mut request = tonic::Request::new(request(discounts));
        request.set_timeout(PATIENCE);
        let answer = self.stack.predictions().predict(request).await?.into_inner();
        let Some(Output::Scores(scores)) = answer.output else { panic!("scores") };
        Ok(scores.values)
    }

    /// Answers calls of ModelInfer with `answer`, and others as before.
    fn infer(&self, answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) {
        self.server.script(move |seen| match seen.call.ends_with("ModelInfer") {
            true => answer(seen),
            false => identity::server(seen),
        });
    }

    /// The models for which the server had calls of this method of the repository, in order.
    fn models(&self, method: &str) -> Vec<String> {
        let seen = self.server.seen().into_iter().filter(|seen| seen.call.ends_with(method));
        seen.map(|seen| name_of(&seen, 2)).collect()
    }

    /// Waits until a request fails with this reason.
    async fn until_refused(&self, expected: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.scores(&[1.0]).await;
            if answer.as_ref().is_err_and(|status| reason(status) == expected) {
                return;
            }
            assert!(Instant::now() < end, "not {expected}: {answer:?}");
        }
    }
}

/// The name in a message about a model, which is the field with this number.
fn name_of(seen: &Seen, field: u8) -> String {
    let body = &seen.body;
    assert_eq!(body[0], (field << 3) | 2, "the name comes first");
    String::from_utf8_lossy(&body[2..2 + usize::from(body[1])]).into_owned()
}

fn request(discounts: &[f32]) -> PredictRequest {
    let treatment = |discount: &f32| {
        let value = Value { kind: Some(Kind::Number(*discount)) };
        Treatment { features: [("discount".to_owned(), value)].into(), ..Treatment::default() }
    };
    PredictRequest {
        model: Some(ModelSelector { name: NAME.to_owned(), ..ModelSelector::default() }),
        user: Some(User::UserFeatures(FeatureMap::default())),
        treatments: discounts.iter().map(treatment).collect(),
        ..PredictRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_on_a_server_of_the_inference_protocol_is_served() {
    let far = Far::start("").await;
    far.publish(3.0).await;
    assert_eq!(far.scores(&[1.0, 2.5]).await.expect("scores"), [1.0, 2.5]);
    assert_eq!(far.server.count("RepositoryModelLoad"), 0, "it was not allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_says_it_is_ready_must_pass_the_golden_cases() {
    let far = Far::start("").await;
    far.publish(4.0).await;
    let status = far.scores(&[1.0]).await.expect_err("refused");
    assert_eq!(reason(&status), "GOLDEN_MISMATCH");
}

/// A change of an answer.
type Distort = fn(&mut ModelInferResponse);

/// The answer of the identity model, changed by `distort`.
fn distorted(distort: Distort) -> impl Fn(&Seen) -> Answer {
    move |seen| identity::grpc_with(seen, distort)
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_server_have_reasons() {
    let far = Far::start("").await;
    far.publish(3.0).await;
    far.scores(&[1.0]).await.expect("scores");
    let status = |code, message: &str| Answer::Status(code, message.to_owned());
    let answers = [
        (status(13, "Stub process is not healthy"), "ENGINE_FAILED"),
        (status(3, "unexpected shape"), "REQUEST_MALFORMED"),
        (status(13, "onnx runtime error 2: idx=9"), "REQUEST_MALFORMED"),
        (status(8, "Exceeds maximum queue size"), "OVERLOADED"),
        (Answer::Message(Bytes::from_static(b"\xff")), "SCORES_INVALID"),
    ];
    for (answer, expected) in answers {
        far.infer(move |_| answer.clone());
        let status = far.scores(&[1.0]).await.expect_err("a failure");
        assert_eq!(reason(&status), expected, "{status}");
    }
    far.server.script(identity::server);
    far.scores(&[1.0]).await.expect("scores again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_that_of_the_request_gives_no_score() {
    let far = Far::start("").await;
    far.publish(3.0).await;
    far.scores(&[1.0]).await.expect("scores");
    let distortions: [(&str, Distort); 7] = [
        ("model", |reply| reply.model_name = "other".to_owned()),
        ("id", |reply| reply.id = "other".to_owned()),
        ("name", |reply| reply.outputs[0].name = "other".to_owned()),
        ("type", |reply| reply.outputs[0].datatype = "BYTES".to_owned()),
        ("shape", |reply| reply.outputs[0].shape = vec![2, 1]),
        ("rows", |reply| {
            reply.outputs[0].shape = vec![2, 1];
            reply.raw_output_contents = vec![Bytes::from_static(&[0; 8])];
        }),
        ("none", |reply| reply.outputs.clear()),
    ];
    for (what, distort) in distortions {
        far.infer(distorted(distort));
        let status = far.scores(&[1.0]).await.expect_err("refused");
        assert_eq!(reason(&status), "SCORES_INVALID", "{what}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_costs_the_deadline_only() {
    let far = Far::start("").await;
    far.publish(3.0).await;
    far.scores(&[1.0]).await.expect("scores");
    far.infer(|_| Answer::Never);
    let mut request = tonic::Request::new(request(&[1.0]));
    request.set_timeout(Duration::from_millis(300));
    let status = far.stack.predictions().predict(request).await.expect_err("no answer");
    assert!(["DEADLINE", ""].contains(&&*reason_or_none(&status)), "{status}");
    far.server.script(identity::server);
    far.scores(&[1.0]).await.expect("scores again");
}

/// The reason of a status; none if the client's own clock ended the call first.
fn reason_or_none(status: &Status) -> String {
    if status.details().is_empty() { String::new() } else { reason(status) }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_too_many_for_the_server_are_sent_in_parts() {
    let far = Far::start("").await;
    far.publish(3.0).await;
    far.infer(|seen| {
        let message = "inference request batch-size must be <= 2 for 'm'";
        let mut rows = 0;
        let answer = identity::grpc_with(seen, |reply| rows = reply.outputs[0].shape[0]);
        if rows > 2 { Answer::Status(3, message.to_owned()) } else { answer }
    });
    assert_eq!(far.scores(&[1.0, 2.0, 3.0, 4.0, 5.0]).await.expect("scores"), [1., 2., 3., 4., 5.]);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_loaded_and_unloaded_where_that_is_allowed() {
    let far = Far::start(", load: true").await;
    far.publish(3.0).await;
    far.scores(&[1.0]).await.expect("scores");
    assert_eq!(far.models("RepositoryModelLoad"), ["m"]);
    let unload = UnloadModelRequest { model: request(&[]).model, ..Default::default() };
    far.stack.admin().unload_model(unload).await.expect("unloaded");
    let end = Instant::now() + PATIENCE;
    while far.server.count("RepositoryModelUnload") == 0 {
        assert!(Instant::now() < end, "the model is not unloaded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_the_server_does_not_have_ready_is_unavailable() {
    let far = Far::start("").await;
    far.server.script(|seen| match seen.call.ends_with("ModelReady") {
        true => Answer::Message(Bytes::new()),
        false => identity::server(seen),
    });
    far.publish(3.0).await;
    far.until_refused("ENGINE_UNAVAILABLE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_server_that_is_gone_get_the_reason_long_before_their_deadlines() {
    let far = Far::start("").await;
    far.publish(3.0).await;
    far.scores(&[1.0]).await.expect("scores");
    far.server.stop().await;
    for _ in 0..2 {
        let began = Instant::now();
        let refused = far.scores(&[1.0]).await.expect_err("nothing listens");
        assert_eq!(reason(&refused), "ENGINE_UNAVAILABLE", "{refused:?}");
        // Requests wait for 5 s; the rest is for a busy machine.
        assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    }
}

/// A server over HTTP that has the model ready, and understands binary tensors or only JSON.
fn over_http(seen: &Seen, infer: fn(&Seen) -> Answer) -> Answer {
    if seen.call.ends_with("/infer") { infer(seen) } else { Answer::json(200, "{}") }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_of_messages_is_found_by_trying() {
    for infer in [identity::binary as fn(&Seen) -> Answer, identity::json] {
        let server = Server::start(Protocol::Http1, move |seen| over_http(seen, infer)).await;
        let endpoint = format!("endpoint: 'http://{}'", server.address());
        let far = Far::before(server, &endpoint).await;
        far.publish(3.0).await;
        assert_eq!(far.scores(&[1.0, 2.5]).await.expect("scores"), [1.0, 2.5]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosted_endpoint_gets_prefix_headers_and_token_over_tls() {
    let infer = |seen: &Seen| over_http(seen, identity::binary);
    let (server, authority) = Server::start_tls(Protocol::Http1, infer).await;
    let files = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let file = files.path().join(name);
        std::fs::write(&file, text).expect("written");
        file.display().to_string()
    };
    let (ca, token) = (file("ca.pem", &authority), file("token", "s3cret\n"));
    let port = server.address().rsplit(':').next().expect("a port").to_owned();
    let settings = format!(
        "endpoint: 'https://localhost:{port}', prefix: /hosted/churn, headers: {{x-team: a}}, \
         ca: '{ca}', token_file: '{token}', token_header: X-Api-Key"
    );
    let far = Far::before(server, &settings).await;
    far.publish(3.0).await;
    assert_eq!(far.scores(&[2.0]).await.expect("scores"), [2.0]);
    for seen in far.server.seen() {
        assert!(seen.call.split(' ').nth(1).is_some_and(|it| it.starts_with("/hosted/churn/v2/")));
        assert_eq!(seen.headers["x-team"], "a");
        assert_eq!(seen.headers["x-api-key"], "s3cret");
    }
}
