//! Predictions over gRPC.

use bytes::Bytes;
use outrigger_proto::{
    outrigger::v1::{
        Arm, BatchPredictRequest, Matrix, OnTreatmentError, PredictRequest, ResponseOptions,
        ScoreList, TreatmentTable, Value, ValueOrigin, predict_response::Output, value::Kind,
    },
    raw::outrigger::prediction_service_client::PredictionServiceClient as RawClient,
};
use outrigger_testkit::engine::{Predicting, Received, floats};
use prost::Message as _;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

use crate::stack::{MODEL, Stack, by_digest, by_name, channel, features, linear, reason, request};

fn scores(output: Option<Output>) -> ScoreList {
    match output {
        Some(Output::Scores(scores)) => scores,
        other => panic!("no scores: {other:?}"),
    }
}

/// The number of predictions that the engine has received since its start.
fn predictions(stack: &Stack) -> usize {
    let predict = |call: &Received| matches!(call, Received::Predict { .. });
    stack.engine.received().into_iter().filter(predict).count()
}

#[tokio::test]
async fn a_named_model_is_pulled_loaded_and_answers_in_the_order_of_the_request() {
    let stack = Stack::start().await;
    let response =
        stack.predictions().predict(request(&[(1.0, 2.0), (5.0, 0.5), (0.0, 0.0)])).await;
    let response = response.unwrap().into_inner();
    assert_eq!(scores(response.output).values, [3.0, 5.5, 0.0]);
    assert_eq!(response.request_id, "r1");
    let model = response.model.unwrap();
    assert_eq!((model.name.as_str(), model.tag.as_str()), (MODEL, "latest"));
    assert_eq!(model.arm(), Arm::Live);
    assert!(model.digest.starts_with("sha256:") && model.digest == model.platform_digest);
}

#[tokio::test]
async fn a_digest_is_pinned_and_an_unknown_one_is_not_found() {
    let stack = Stack::start().await;
    let digest = stack.publish(MODEL, &linear(0.0)).await;
    let mut client = stack.predictions();
    let pinned =
        PredictRequest { model: Some(by_digest(MODEL, &digest)), ..request(&[(1.0, 1.0)]) };
    let model = client.predict(pinned).await.unwrap().into_inner().model.unwrap();
    assert_eq!((model.digest, model.tag.as_str()), (digest, ""));
    assert_eq!(model.arm, i32::from(Arm::Pinned));

    let absent = format!("sha256:{}", "0".repeat(64));
    let absent = PredictRequest { model: Some(by_digest(MODEL, &absent)), ..request(&[]) };
    assert_eq!(reason(&client.predict(absent).await.unwrap_err()), "DIGEST_NOT_FOUND");
}

#[tokio::test]
async fn the_columnar_form_gives_the_same_scores() {
    let stack = Stack::start().await;
    let values = [1.0_f32, 2.0, 5.0, 0.5].iter().flat_map(|value| value.to_le_bytes());
    let table = TreatmentTable {
        ids: vec!["a".into(), "b".into()],
        numbers: Some(Matrix {
            names: vec!["t0".into(), "t1".into()],
            values: values.collect::<Vec<u8>>().into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let columnar = PredictRequest { treatment_table: Some(table), ..request(&[]) };
    let response = stack.predictions().predict(columnar).await.unwrap().into_inner();
    assert_eq!(scores(response.output).values, [3.0, 5.5]);
}

#[tokio::test]
async fn the_best_are_returned_first_with_their_places_and_ids() {
    let stack = Stack::start().await;
    let options = ResponseOptions { top_k: 2, treatment_ids: true, ..Default::default() };
    let ranked = request(&[(1.0, 0.0), (9.0, 0.0), (5.0, 0.0)]);
    let ranked = PredictRequest { options: Some(options), ..ranked };
    let list = scores(stack.predictions().predict(ranked).await.unwrap().into_inner().output);
    assert_eq!((list.values, list.indices), (vec![9.0, 5.0], vec![1, 2]));
    assert_eq!(list.treatment_ids, ["t1", "t2"]);
}

#[tokio::test]
async fn a_bad_treatment_fails_the_request_or_is_left_out_as_asked() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    let mut bad = request(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]);
    bad.treatments[1].features.remove("t1");
    let status = client.predict(bad.clone()).await.unwrap_err();
    assert_eq!(
        (reason(&status).as_str(), status.code()),
        ("FEATURE_MISSING", Code::InvalidArgument)
    );
    let field = &status.get_details_bad_request().unwrap().field_violations[0].field;
    assert_eq!(field, "treatments[1].features[\"t1\"]");

    let skip = OnTreatmentError::Skip.into();
    bad.options = Some(ResponseOptions { on_treatment_error: skip, ..Default::default() });
    let response = client.predict(bad).await.unwrap().into_inner();
    let error = &response.treatment_errors[0];
    assert_eq!((error.index, error.id.as_str()), (1, "t1"));
    assert_eq!((error.reason.as_str(), error.feature.as_str()), ("FEATURE_MISSING", "t1"));
    let list = scores(response.output);
    assert_eq!((list.values, list.indices), (vec![1.0, 3.0], vec![0, 2]));
}

#[tokio::test]
async fn values_of_the_wrong_type_and_not_finite_are_refused_by_name() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    for (kind, expected) in [
        (Kind::Text("much".into()), "FEATURE_TYPE"),
        (Kind::Number(f32::NAN), "FEATURE_NOT_FINITE"),
        (Kind::Number(f32::INFINITY), "FEATURE_NOT_FINITE"),
    ] {
        let mut bad = request(&[(1.0, 0.0)]);
        bad.treatments[0].features.insert("t0".into(), Value { kind: Some(kind) });
        let status = client.predict(bad).await.unwrap_err();
        assert_eq!(reason(&status), expected);
        let field = &status.get_details_bad_request().unwrap().field_violations[0].field;
        assert_eq!(field, "treatments[0].features[\"t0\"]");
    }
}

#[tokio::test]
async fn without_treatments_the_engine_is_not_asked_but_the_model_must_exist() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let before = predictions(&stack);
    let response = client.predict(request(&[])).await.unwrap().into_inner();
    assert!(scores(response.output).values.is_empty());
    assert_eq!(predictions(&stack), before);
    let unknown = PredictRequest { model: Some(by_name("nobody")), ..request(&[]) };
    let status = client.predict(unknown).await.unwrap_err();
    assert_eq!((reason(&status).as_str(), status.code()), ("MODEL_NOT_FOUND", Code::NotFound));
}

#[tokio::test]
async fn users_of_a_batch_are_scored_together_and_answered_apart() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let before = predictions(&stack);
    let inner = |id: &str, treatments: &[(f32, f32)]| PredictRequest {
        model: None,
        request_id: id.to_owned(),
        ..request(treatments)
    };
    let batch = BatchPredictRequest {
        model: Some(by_name(MODEL)),
        request_id: "batch".into(),
        requests: vec![
            inner("one", &[(1.0, 1.0), (3.0, 0.0), (2.0, 0.0)]),
            inner("none", &[]),
            inner("two", &[(4.0, 0.0)]),
        ],
        options: Some(ResponseOptions { top_k: 2, ..Default::default() }),
    };
    let response = client.batch_predict(batch.clone()).await.unwrap().into_inner();
    assert_eq!(response.request_id, "batch");
    let answers: Vec<_> = response
        .responses
        .into_iter()
        .map(|response| {
            assert_eq!(response.model.as_ref().unwrap().name, MODEL);
            (response.request_id.clone(), scores(response.output).values)
        })
        .collect();
    let expected = [("one", vec![3.0, 2.0]), ("none", vec![]), ("two", vec![4.0])];
    assert_eq!(answers, expected.map(|(id, values)| (id.to_owned(), values)));
    assert_eq!(predictions(&stack), before + 1, "one call of the engine");

    let mut bad = batch;
    bad.requests[2].treatments[0].features.remove("t0");
    let status = client.batch_predict(bad).await.unwrap_err();
    assert_eq!(reason(&status), "FEATURE_MISSING");
    let field = &status.get_details_bad_request().unwrap().field_violations[0].field;
    assert_eq!(field, "requests[2].treatments[0].features[\"t0\"]");
}

#[tokio::test]
async fn a_batch_gives_the_model_and_options_for_all_its_requests() {
    let stack = Stack::start().await;
    let with_model = BatchPredictRequest {
        model: Some(by_name(MODEL)),
        requests: vec![request(&[(1.0, 1.0)])],
        ..Default::default()
    };
    let empty = BatchPredictRequest { model: Some(by_name(MODEL)), ..Default::default() };
    for bad in [with_model, empty] {
        let status = stack.predictions().batch_predict(bad).await.unwrap_err();
        assert_eq!(reason(&status), "REQUEST_MALFORMED");
    }
}

#[tokio::test]
async fn explain_shows_the_tensors_without_asking_the_engine() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let before = predictions(&stack);
    let mut asked = request(&[(1.0, 2.0), (3.0, 4.0)]);
    asked.user = None;
    asked.treatments[0].features.extend(features(&[("colour", 1.0)]).features);
    let explained = client.explain(asked).await.unwrap().into_inner();
    assert_eq!(predictions(&stack), before);
    assert_eq!(explained.model.unwrap().name, MODEL);
    assert_eq!(explained.unknown_features, ["colour"]);
    let names: Vec<_> = explained.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["user", "treatment", "treatment_counts"]);
    let treatment = &explained.tensors[1];
    assert_eq!(treatment.shape, [1, 2, 2]);
    let expected: Vec<u8> =
        [1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(treatment.content, expected);
    assert_eq!(explained.tensors[0].origins, [i32::from(ValueOrigin::Default)]);
}

#[tokio::test]
async fn garbage_and_requests_without_a_valid_model_are_refused_and_the_next_is_served() {
    let stack = Stack::start().await;
    let mut raw = RawClient::new(channel(stack.addresses.grpc));
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\x0a\x7f", b"\x32\x03\x0a\xff\xff", b""] {
        let status = raw.predict(Bytes::from_static(garbage)).await.unwrap_err();
        assert_eq!(reason(&status), "REQUEST_MALFORMED", "{garbage:?}");
    }
    let mut client = stack.predictions();
    for name in ["", "Offers", "a//b", "../etc", "registry.example/x:1"] {
        let bad = PredictRequest { model: Some(by_name(name)), ..request(&[]) };
        assert_eq!(reason(&client.predict(bad).await.unwrap_err()), "REQUEST_MALFORMED", "{name}");
    }
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_no_message_are_refused_before_their_model_is_looked_for() {
    let stack = Stack::start().await;
    let mut raw = RawClient::new(channel(stack.addresses.grpc));
    let unknown = PredictRequest { model: Some(by_name("nobody")), ..request(&[]) };
    // The message ends in the middle of the options field.
    let malformed = [unknown.encode_to_vec().as_slice(), b"\x4a\x01\xff"].concat();
    let status = raw.predict(Bytes::from(malformed)).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_MALFORMED");
}

#[tokio::test]
async fn the_name_in_metadata_must_be_that_of_the_body() {
    let stack = Stack::start().await;
    let named = |name: &'static str| {
        let mut request = Request::new(request(&[(1.0, 1.0)]));
        request.metadata_mut().insert("outrigger-model", name.parse().unwrap());
        request
    };
    stack.predictions().predict(named(MODEL)).await.unwrap();
    let status = stack.predictions().predict(named("other")).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_MALFORMED");
}

#[tokio::test]
async fn an_image_outside_the_allowed_prefixes_is_refused() {
    let allowed = "[\"oci:{root}/models/offers\"]";
    let stack = Stack::with(&[("images.allowed", allowed)]).await;
    stack.publish("offers-evil", &linear(0.0)).await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let stray = PredictRequest { model: Some(by_name("offers-evil")), ..request(&[]) };
    let status = client.predict(stray).await.unwrap_err();
    assert_eq!(
        (reason(&status).as_str(), status.code()),
        ("IMAGE_NOT_ALLOWED", Code::PermissionDenied)
    );
}

#[tokio::test]
async fn scores_that_cannot_be_right_are_not_passed_on() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    for (shape, values) in
        [(vec![1, 1], vec![1.0]), (vec![1, 2], vec![1.0, f32::NAN]), (vec![2], vec![1.0, 2.0])]
    {
        stack.engine.on_predict(move |_| {
            Predicting::Outputs(vec![floats("scores", &shape, values.clone())])
        });
        let status = client.predict(request(&[(1.0, 1.0), (2.0, 2.0)])).await.unwrap_err();
        assert_eq!((reason(&status).as_str(), status.code()), ("SCORES_INVALID", Code::Internal));
    }
}

#[tokio::test]
async fn failures_of_the_engine_keep_their_kinds() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    for (code, message, expected) in [
        (Code::InvalidArgument, "scripted", "REQUEST_MALFORMED"),
        (Code::NotFound, "Key not found in table", "ENGINE_FAILED"),
        (Code::ResourceExhausted, "OOM when allocating tensor", "ENGINE_FAILED"),
        (Code::ResourceExhausted, "Server Threadpool Exhausted", "OVERLOADED"),
        // UNAVAILABLE is an answer of a running engine whose queue is full, so it is not an outage.
        (Code::Unavailable, "scripted", "OVERLOADED"),
    ] {
        stack.engine.on_predict(move |_| Predicting::Fails(code, message.to_owned()));
        let status = client.predict(request(&[(1.0, 1.0)])).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{code:?} {message}");
    }
    stack.engine.stop().await;
    let status = client.predict(request(&[(1.0, 1.0)])).await.unwrap_err();
    assert_eq!(reason(&status), "ENGINE_UNAVAILABLE");
}
