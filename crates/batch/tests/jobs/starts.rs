//! Jobs whose first rows or hosts are at fault when they begin.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use outrigger_batch::{Error, Host, Job, MaxErrors, OneOrMore};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};

use crate::harness::{Place, expected, host, ids, model, reasons, score, scored};

/// The answer of a model that fails on rows for which `is_bad` holds.
fn failing_on(is_bad: impl Fn(i64) -> bool) -> impl Fn(&Seen) -> Answer {
    move |seen| match ids(seen).into_iter().any(&is_bad) {
        true => Answer::Status(13, "the model failed".to_owned()),
        false => identity::grpc(seen),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_rows_at_fault_are_dead_and_the_others_scored() {
    const BAD: i64 = 70;
    for count in [1, 2] {
        let (place, mut servers) = (Place::new(), Vec::new());
        for _ in 0..count {
            servers.push(model(failing_on(|id| id < BAD)).await);
        }
        let addresses: Vec<_> = servers.iter().map(Server::address).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        let file = place.rows("a.parquet", 0..300);
        let mut job = place.job(&[&file], &addresses);
        (job.batch_size, job.chunk_rows) = (64, Some(100));
        // A number of dead rows stops a job that has begun.
        job.max_errors = Some(MaxErrors::Rows(5));
        assert_eq!(score(job.clone()).await, Err(Error::TooManyDead));
        job.max_errors = None;
        let manifest = score(job).await.expect("scored");
        assert_eq!((manifest.scored, manifest.dead), (300 - BAD as u64, BAD as u64));
        assert_eq!(scored(&place.output()), expected(BAD..300));
        assert!(reasons(&place.output()).iter().all(|(_, reason)| reason == "model_error"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_model_is_wrong_does_not_begin() {
    let script = || failing_on(|_| true);
    let (place, one, two) = (Place::new(), model(script()).await, model(script()).await);
    let file = place.rows("a.parquet", 0..300);
    let job = place.job(&[&file], &[&one.address(), &two.address()]);
    // With and without a number of errors that are allowed: nothing is known about the outputs.
    for max_errors in [None, Some(MaxErrors::Rows(1000))] {
        let error = score(Job { max_errors, ..job.clone() }).await.expect_err("a wrong model");
        let is_clear = matches!(&error, Error::Failed(it)
            if it.contains("the columns may be wrong") && it.contains("the model failed"));
        assert!(is_clear, "{error}");
    }
    assert!(!place.output().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_rows_all_have_a_wrong_length_is_an_error_of_its_settings() {
    let place = Place::new();
    let host = host().await;
    let file = place.rows("a.parquet", 0..300);
    let mut job = place.job(&[&file], &[&host.address()]);
    job.inputs.get_mut("x").expect("an input").shape = Some(vec![3]);
    let error = score(job).await.expect_err("lists of two");
    let is_clear = matches!(&error, Error::Usage(it)
        if it.contains("none of the rows that were looked at can be sent"));
    assert!(is_clear, "{error}");
    assert!(!place.output().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_that_are_still_at_fault_are_dead_letters_again() {
    let is_bad = |id: i64| [4, 17, 18].contains(&id) || id < 0;
    let (place, one) = (Place::new(), model(failing_on(is_bad)).await);
    let two = model(failing_on(is_bad)).await;
    let file = place.rows("a.parquet", (0..40).map(|id| if id == 20 { -1 } else { id }));
    let mut job = place.job(&[&file], &[&one.address(), &two.address()]);
    job.chunk_rows = Some(100);
    assert_eq!(score(job).await.expect("scored").dead, 4);
    for (name, hosts) in [("one", vec![&one]), ("both", vec![&one, &two])] {
        let hosts = hosts.into_iter().map(|host| Host::new(&host.address())).collect();
        let again = Job {
            retry: Some(place.output()),
            ..Job::new(Vec::new(), place.path(name), "", hosts)
        };
        let manifest = score(again.clone()).await.expect("ended");
        assert_eq!((manifest.rows, manifest.scored, manifest.dead), (4, 0, 4), "{name}");
        let rows: Vec<_> = reasons(&place.path(name)).into_iter().map(|(row, _)| row).collect();
        assert_eq!(rows, [4, 17, 18, 20]);
        // The model fails on the rows that it has scored, too: it is another fault.
        one.script(|seen| match seen.call.ends_with("/ModelInfer") {
            true => Answer::Status(13, "the model failed".to_owned()),
            false => identity::server(seen),
        });
        let other = Job { output: place.path("none"), ..again };
        let hosts = vec![Host::new(&one.address())];
        let error = score(Job { hosts: OneOrMore(hosts), ..other }).await;
        assert!(
            matches!(&error, Err(Error::Failed(it)) if it.contains("may be wrong")),
            "{error:?}"
        );
        one.script(move |seen| match seen.call.ends_with("/ModelInfer") {
            true => failing_on(is_bad)(seen),
            false => identity::server(seen),
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_has_stopped_goes_on_with_its_row_for_tests() {
    let is_bad = |id: i64| id < 20;
    let (place, server) = (Place::new(), model(failing_on(is_bad)).await);
    let file = place.rows("a.parquet", 0..40);
    let job = place.job(&[&file], &[&server.address()]);
    assert_eq!(score(job).await.expect("scored").dead, 20);
    let again = Job {
        retry: Some(place.output()),
        max_errors: Some(MaxErrors::Rows(3)),
        chunk_rows: Some(2),
        ..Job::new(Vec::new(), place.path("again"), "", vec![Host::new(&server.address())])
    };
    assert_eq!(score(again.clone()).await, Err(Error::TooManyDead));
    let manifest = score(Job { max_errors: None, ..again }).await.expect("ended");
    assert_eq!((manifest.scored, manifest.dead), (0, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_ready_at_first_is_waited_for() {
    let (questions, requests) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = Server::start(Protocol::Http1, move |seen| {
        let is_question = seen.call.starts_with("GET");
        let calls = if is_question { &questions } else { &requests };
        match (calls.fetch_add(1, Relaxed), is_question) {
            (0 | 2, _) => Answer::json(503, r#"{"error": "later"}"#),
            (1, _) => Answer::json(429, r#"{"error": "too many requests"}"#),
            (_, true) => Answer::json(200, r#"{"name": "m"}"#),
            (_, false) => identity::json(seen),
        }
    });
    let (place, server) = (Place::new(), server.await);
    let file = place.rows("a.parquet", 0..20);
    let manifest = score(place.job(&[&file], &[&server.address()])).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (20, 0));
    assert_eq!(scored(&place.output()), expected(0..20));
}
