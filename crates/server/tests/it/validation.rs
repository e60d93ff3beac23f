//! Validation of files beside predictions.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use outrigger_proto::outrigger::v1::{
    ValidateFileRequest, ValidationReport, predict_response::Output, validate_file_response::Event,
    validation_service_client::ValidationServiceClient,
};
use outrigger_testkit::engine::{Predicting, Received, float_values, row_sums};
use tonic::{Code, Request, Status, transport::Channel};

use crate::{
    auth::{outcome_of, with},
    certificates::Mount,
    stack::{MODEL, Stack, by_name, channel, hold, linear, reason, request},
};

/// Starts a server that validates files, with these files in its directory.
async fn stack(files: &[(&str, &str)]) -> Stack {
    let stack = Stack::with(&[("validation.directory", "{root}/files")]).await;
    fs::create_dir(stack.path("files")).expect("a directory");
    for (name, content) in files {
        fs::write(stack.path("files").join(name), content).expect("a file");
    }
    stack
}

fn service(stack: &Stack) -> ValidationServiceClient<Channel> {
    ValidationServiceClient::new(channel(stack.addresses.admin))
}

pub(crate) fn asked(input: &str, scores: &str) -> ValidateFileRequest {
    ValidateFileRequest {
        model: Some(by_name(MODEL)),
        input: input.to_owned(),
        scores: scores.to_owned(),
        ..ValidateFileRequest::default()
    }
}

/// The report of a run, which is its last message.
pub(crate) async fn validate(
    stack: &Stack,
    request: ValidateFileRequest,
) -> Result<ValidationReport, Status> {
    let mut events = service(stack).validate_file(request).await?.into_inner();
    let mut last = None;
    while let Some(message) = events.message().await? {
        last = message.event;
    }
    match last {
        Some(Event::Report(report)) => Ok(report),
        other => panic!("the last message is {other:?}"),
    }
}

async fn refused(stack: &Stack, request: ValidateFileRequest) -> String {
    reason(&validate(stack, request).await.expect_err("refused"))
}

/// Rows of three users, whose scores are the sums of their treatments' features.
const ROWS: &str = "user,treatment,u0,t0,t1,expected\nu,a,1,1,2,3\nu,b,1,5,0.5,5.5\nv,a,2,1,1,2\n\
                    w,a,0,2,2,4\nw,b,0,2,many,4\n";

#[tokio::test]
async fn the_rows_of_a_file_get_the_scores_of_predict() {
    let stack = stack(&[("rows.csv", ROWS)]).await;
    let report = validate(&stack, asked("rows.csv", "scores.csv")).await.expect("a report");
    assert_eq!((report.rows, report.scored, report.requests, report.errors), (5, 4, 3, 1));
    assert_eq!((report.passed, report.stopped), (false, false));
    let error = &report.first_errors[0];
    assert_eq!((error.row, error.reason.as_str()), (5, "FEATURE_TYPE"));
    let agreement = report.agreement.expect("expected scores");
    assert_eq!((agreement.compared, agreement.differing, agreement.largest), (4, 0, 0.0));

    let predicted = stack.predictions().predict(request(&[(1.0, 2.0), (5.0, 0.5)])).await;
    let predicted = predicted.expect("scores").into_inner();
    let Some(Output::Scores(scores)) = predicted.output else { panic!("no scores") };
    assert_eq!(scores.values, [3.0, 5.5]);
    let digest = predicted.model.expect("a model").digest;
    assert_eq!(report.digest, digest);
    let written = fs::read_to_string(stack.path("files/scores.csv")).expect("scores");
    let lines: Vec<_> = written.lines().collect();
    assert_eq!(lines[0], "user,treatment,expected,score,digest,error");
    assert_eq!(lines[1..3], [format!("u,a,3,3,{digest},"), format!("u,b,5.5,5.5,{digest},")]);
    assert!(lines[5].starts_with("w,b,4,,"), "{}", lines[5]);
}

#[tokio::test]
async fn metrics_count_a_run_apart_from_predictions() {
    const VALIDATED: &str = "offers/validated";
    let stack = stack(&[("rows.csv", ROWS)]).await;
    stack.publish(VALIDATED, &linear(0.0)).await;
    let asked = ValidateFileRequest { model: Some(by_name(VALIDATED)), ..asked("rows.csv", "") };
    assert_eq!(validate(&stack, asked).await.expect("a report").scored, 4);
    let (_, metrics) = stack.health("/metrics").await;
    assert!(metrics.contains("outrigger_validations_total{reason=\"OK\"}"), "{metrics}");
    // Other tests of this process count predictions of other models.
    let series = format!("model=\"{VALIDATED}\"");
    let predictions = |line: &&str| line.starts_with("outrigger_request") && line.contains(&series);
    assert_eq!(metrics.lines().filter(predictions).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn files_are_only_those_of_the_directory() {
    let stack = stack(&[("rows.csv", ROWS), ("bad.parquet", "PAR1"), ("old.csv", "before")]).await;
    fs::write(stack.path("secret.csv"), ROWS).expect("a file");
    symlink("../secret.csv", stack.path("files/link.csv")).expect("a link");
    for (input, expected) in [
        ("../secret.csv", "REQUEST_MALFORMED"),
        (stack.path("secret.csv").to_str().expect("utf-8"), "REQUEST_MALFORMED"),
        ("link.csv", "REQUEST_MALFORMED"),
        ("rows", "REQUEST_MALFORMED"),
        ("none.csv", "FILE_NOT_FOUND"),
        ("bad.parquet", "FILE_INVALID"),
    ] {
        assert_eq!(refused(&stack, asked(input, "")).await, expected, "{input}");
    }
    for (scores, expected) in [
        ("../scores.csv", "REQUEST_MALFORMED"),
        ("link.csv", "REQUEST_MALFORMED"),
        ("rows.csv", "REQUEST_MALFORMED"),
        ("none/scores.csv", "FILE_NOT_FOUND"),
        ("old.csv", "FILE_EXISTS"),
    ] {
        assert_eq!(refused(&stack, asked("rows.csv", scores)).await, expected, "{scores}");
    }
    let old = || fs::read_to_string(stack.path("files/old.csv")).expect("a file");
    assert_eq!(old(), "before");
    let replaced = ValidateFileRequest { overwrite: true, ..asked("rows.csv", "old.csv") };
    validate(&stack, replaced).await.expect("a report");
    assert!(old().starts_with("user,treatment,expected,score,"), "{}", old());
    assert_eq!(fs::read_to_string(stack.path("secret.csv")).expect("a file"), ROWS);
}

#[tokio::test]
async fn there_is_one_run_at_a_time_and_it_ends_with_its_caller() {
    let stack = stack(&[("rows.csv", ROWS)]).await;
    // The model is loaded before the engine's answers are held.
    stack.predictions().predict(request(&[(1.0, 2.0)])).await.expect("scores");
    let (_gate, mut arrivals) = hold(&stack);
    let running = service(&stack).validate_file(asked("rows.csv", "scores.csv")).await;
    let running = running.expect("a run").into_inner();
    arrivals.recv().await.expect("a call to the engine");
    assert_eq!(refused(&stack, asked("rows.csv", "")).await, "OVERLOADED");
    drop(running);
    stack.engine.on_predict(row_sums);
    while let Err(status) = validate(&stack, asked("rows.csv", "")).await {
        assert_eq!(reason(&status), "OVERLOADED");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let names = fs::read_dir(stack.path("files")).expect("a directory").count();
    assert_eq!(names, 1, "neither scores nor an unfinished file");
}

#[tokio::test]
async fn a_run_goes_on_when_the_engine_fails_for_a_moment_and_ends_when_its_time_is_over() {
    let stack = stack(&[("rows.csv", ROWS)]).await;
    stack.predictions().predict(request(&[(1.0, 2.0)])).await.expect("scores");
    let failing = AtomicBool::new(true);
    stack.engine.on_predict(move |prediction| match failing.swap(false, Relaxed) {
        true => Predicting::Fails(Code::ResourceExhausted, "a full queue".to_owned()),
        false => row_sums(prediction),
    });
    let report = validate(&stack, asked("rows.csv", "")).await.expect("a report");
    assert_eq!(report.scored, 4);
    let (_gate, _arrivals) = hold(&stack);
    let mut short = Request::new(asked("rows.csv", ""));
    // The server's deadline, without that of the client, which would end the call itself.
    short.metadata_mut().insert("grpc-timeout", "2S".parse().expect("a value"));
    let mut events = service(&stack).validate_file(short).await.expect("a run").into_inner();
    let ended = loop {
        match events.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no outcome"),
            Err(status) => break status,
        }
    };
    assert_eq!(reason(&ended), "DEADLINE");
}

#[tokio::test]
async fn a_request_that_fails_in_the_engine_does_not_fail_others() {
    let stack = stack(&[("rows.csv", ROWS)]).await;
    stack.predictions().predict(request(&[(1.0, 2.0)])).await.expect("scores");
    // The user v has the feature 2.
    stack.engine.on_predict(|prediction| {
        let users = float_values(&prediction.inputs["user"]);
        match users.contains(&2.0) {
            true => Predicting::Fails(Code::InvalidArgument, "not this one".to_owned()),
            false => row_sums(prediction),
        }
    });
    let report = validate(&stack, asked("rows.csv", "")).await.expect("a report");
    let reasons: Vec<_> = report.first_errors.iter().map(|it| (it.row, &*it.reason)).collect();
    assert_eq!(reasons, [(3, "REQUEST_MALFORMED"), (5, "FEATURE_TYPE")]);
    assert_eq!(report.scored, 3);
    let predictions = stack.engine.received().into_iter();
    let predictions = predictions.filter(|call| matches!(call, Received::Predict { .. })).count();
    assert!(predictions > 3, "{predictions} calls");
}

#[tokio::test]
async fn validation_is_off_without_a_directory_and_on_other_listeners() {
    let off = Stack::start().await;
    assert_eq!(refused(&off, asked("rows.csv", "")).await, "METHOD_UNKNOWN");
    let on = stack(&[("rows.csv", ROWS)]).await;
    let mut elsewhere = ValidationServiceClient::new(channel(on.addresses.grpc));
    let refused = elsewhere.validate_file(asked("rows.csv", "")).await;
    assert_eq!(outcome_of(refused), "ADMIN_ONLY");
}

#[tokio::test]
async fn the_right_to_validate_is_one_of_its_own_where_callers_are_named() {
    const TESTER: &str = "the-token-of-the-tester";
    const OPERATOR: &str = "the-token-of-the-operator";
    let tokens = Mount::new(&[("tester", TESTER), ("operator", OPERATOR)]);
    let directory = ("validation.directory", "{root}/files");
    let named = Stack::with(&[
        directory,
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.callers", r#"{"token:tester": [validate], "token:operator": [change]}"#),
    ])
    .await;
    fs::create_dir(named.path("files")).expect("a directory");
    let unnamed = Stack::with(&[directory, ("auth.token_file", "{root}/control/token")]).await;
    let ask = async |stack: &Stack, token| {
        outcome_of(service(stack).validate_file(with(token, asked("none.csv", ""))).await)
    };
    assert_eq!(ask(&named, Some(TESTER)).await, "OK");
    assert_eq!(ask(&named, Some(OPERATOR)).await, "PERMISSION_DENIED");
    assert_eq!(ask(&named, None).await, "UNAUTHENTICATED");
    assert_eq!(ask(&unnamed, None).await, "UNAUTHENTICATED", "as for changes");
}
