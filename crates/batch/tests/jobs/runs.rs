//! Jobs that succeed.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use outrigger_batch::{Control, Error, Host, Job, Period, Reader, Size, State, Watch, run};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};

use crate::harness::{
    Place, dead, expected, host, ids, model, reasons, score, scored, write_control,
};

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_several_files_are_scored_in_order() {
    let (place, host) = (Place::new(), host().await);
    place.rows("b.parquet", 20..25);
    place.rows("a.parquet", 0..20);
    let pattern = place.path("*.parquet").to_string_lossy().into_owned();
    let manifest = score(place.job(&[&pattern], &[&host.address()])).await.expect("scored");
    assert_eq!((manifest.rows, manifest.scored, manifest.dead), (25, 25, 0));
    let rows: Vec<_> = manifest.chunks.iter().map(|chunk| chunk.rows).collect();
    assert_eq!(rows, [7, 7, 6, 5], "a chunk has rows of one file");
    assert_eq!(manifest.chunks[0].version.as_deref(), Some("1"));
    assert_eq!(scored(&place.output()), expected(0..25));
    let again = score(place.job(&[&pattern], &["localhost:1"])).await.expect("no host is asked");
    assert_eq!(again, manifest);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_over_http_are_hosts_too() {
    let server = Server::start(Protocol::Http1, |seen| match seen.call.starts_with("GET") {
        true => Answer::json(200, r#"{"name": "m"}"#),
        false => identity::json(seen),
    });
    let (place, server) = (Place::new(), server.await);
    let file = place.rows("a.parquet", 0..20);
    score(place.job(&[&file], &[&server.address()])).await.expect("scored");
    assert_eq!(scored(&place.output()), expected(0..20));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_have_a_low_priority() {
    let script = |seen: &Seen| match seen.headers.get("outrigger-priority") {
        Some(priority) if priority == "batch" => identity::grpc(seen),
        _ => Answer::Status(3, "no priority".to_owned()),
    };
    let (place, host) = (Place::new(), model(script).await);
    let file = place.rows("a.parquet", 0..9);
    score(place.job(&[&file], &[&host.address()])).await.expect("scored");
    assert_eq!(scored(&place.output()), expected(0..9));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_value_is_dead_and_never_sent() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", [0, -1, 2, -3, -4, -5, 6, 7].into_iter());
    let manifest = score(place.job(&[&file], &[&host.address()])).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (4, 4));
    assert_eq!(scored(&place.output()), expected([0, 2, 6, 7].into_iter()));
    let invalid = [1, 3, 4, 5].map(|row| (row, "invalid_input".to_owned()));
    assert_eq!(reasons(&place.output()), invalid);
    let letter = &dead(&place.output())[0];
    assert_eq!((letter["file"].as_str(), letter["attempts"].as_u64()), (Some(&*file), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_no_host_scores_is_dead_and_no_other() {
    let script = |seen: &_| match ids(seen).contains(&13) {
        true => Answer::Status(13, "the model failed".to_owned()),
        false => identity::grpc(seen),
    };
    let (place, one, two) = (Place::new(), model(script).await, model(script).await);
    let file = place.rows("a.parquet", 0..40);
    let mut job = place.job(&[&file], &[&one.address(), &two.address()]);
    (job.batch_size, job.chunk_rows) = (8, Some(40));
    score(job).await.expect("scored");
    assert_eq!(scored(&place.output()), expected((0..40).filter(|id| *id != 13)));
    assert_eq!(reasons(&place.output()), [(13, "model_error".to_owned())]);
    let letter = &dead(&place.output())[0];
    let hosts = letter["hosts"].as_array().expect("hosts");
    assert_eq!(hosts.len(), 2, "{letter}");
    assert!(letter["error"].as_str().expect("an error").contains("the model failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_fails_is_left_to_the_others() {
    let (place, good) = (Place::new(), host().await);
    let bad = model(|_| Answer::Status(14, "not now".to_owned())).await;
    let file = place.rows("a.parquet", 0..100);
    let job = place.job(&[&file], &[&bad.address(), "localhost:1", &good.address()]);
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (100, 0));
    assert_eq!(scored(&place.output()), expected(0..100));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_lies_changes_no_row() {
    let calls = AtomicUsize::new(0);
    let liar = model(move |seen| match calls.fetch_add(1, Relaxed) % 9 {
        0 => Answer::Status(13, "the model failed".to_owned()),
        3 => identity::grpc_with(seen, |reply| reply.id = "another".to_owned()),
        6 => identity::grpc_with(seen, |reply| {
            reply.outputs[0].shape[0] = 1;
            reply.raw_output_contents[0] = vec![0; 8].into();
        }),
        _ => identity::grpc(seen),
    });
    let (place, liar, good) = (Place::new(), liar.await, host().await);
    let file = place.rows("a.parquet", 0..500);
    let mut job = place.job(&[&file], &[&liar.address(), &good.address()]);
    (job.batch_size, job.chunk_rows) = (4, Some(50));
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (500, 0));
    assert_eq!(scored(&place.output()), expected(0..500));
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_stay_within_the_memory() {
    const TEXT: usize = 256 << 10;
    let script = |seen: &_| {
        identity::grpc_with(seen, |reply| {
            let rows = reply.outputs[0].shape[0];
            reply.outputs[0].datatype = "BYTES".to_owned();
            reply.outputs[0].shape = vec![rows, 1];
            let mut text = (TEXT as u32).to_le_bytes().to_vec();
            text.resize(4 + TEXT, b'a');
            reply.raw_output_contents[0] = text.repeat(rows as usize).into();
        })
    };
    let (place, server) = (Place::new(), model(script).await);
    let file = place.rows("a.parquet", 0..400);
    let mut job = place.job(&[&file], &[&server.address()]);
    (job.memory, job.batch_size, job.chunk_rows) = (Size(64 << 20), 64, None);
    let watch = Watch::default();
    let manifest = run(job, place.store(), watch.clone()).await.expect("scored");
    assert_eq!(manifest.scored, 400);
    let peak = watch.get().memory_peak;
    assert!((1 << 20..=32 << 20).contains(&peak), "{peak} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_job_sends_nothing_until_it_may() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..60);
    let job = place.job(&[&file], &[&host.address()]);
    // The control object is there before the first batch.
    let store = place.store().observed({
        let store = place.store();
        move |step| {
            if step == "plan.json: done" {
                let paused = Control { paused: true, ..Control::default() };
                write_control(&paused, &store);
            }
        }
    });
    let watch = Watch::default();
    let running = tokio::spawn(run(job, store, watch.clone()));
    while !watch.get().is_paused {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let sent = host.count("/ModelInfer");
    let two = Control { batch_size: Some(2), ..Control::default() };
    place.control(&two);
    running.await.expect("no panic").expect("scored");
    assert_eq!(scored(&place.output()), expected(0..60));
    let later = host.seen().into_iter().filter(|seen| seen.call.ends_with("/ModelInfer"));
    assert!(later.skip(sent).any(|seen| ids(&seen).len() == 2), "the batches are smaller");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_goes_on_when_it_is_run_again() {
    let (place, calls) = (Place::new(), AtomicUsize::new(0));
    // After the two requests of the start, the first batch gets no answer, so those after it in its chunk wait to be written.
    let server = model(move |seen| match (calls.fetch_add(1, Relaxed), ids(seen)[0]) {
        (2.., 0) => Answer::Never,
        _ => identity::grpc(seen),
    })
    .await;
    let file = place.rows("a.parquet", 0..60);
    let mut job = place.job(&[&file], &[&server.address()]);
    job.timeout = Period(Duration::from_secs(3600));
    let running = tokio::spawn(score(job.clone()));
    while place.store().list("commit").expect("listed").len() < 8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    place.control(&Control { cancelled: true, ..Control::default() });
    assert_eq!(running.await.expect("no panic"), Err(Error::Cancelled));
    server.script(identity::server);
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, scored(&place.output())), (60, expected(0..60)));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_fed_back() {
    let script = |seen: &_| match ids(seen).iter().any(|id| [4, 17, 18].contains(id)) {
        true => Answer::Status(13, "the model failed".to_owned()),
        false => identity::grpc(seen),
    };
    let (place, one, two) = (Place::new(), model(script).await, model(script).await);
    let files = [place.rows("a.parquet", 0..12), place.rows("b.parquet", 12..40)];
    let files = files.each_ref().map(|file| &**file);
    let mut job = place.job(&files, &[&one.address(), &two.address()]);
    job.chunk_rows = Some(100);
    assert_eq!(score(job).await.expect("scored").dead, 3);
    one.script(identity::server);
    let again = Job {
        retry: Some(place.output()),
        ..Job::new(Vec::new(), place.path("again"), "", vec![Host::new(&one.address())])
    };
    let manifest = score(again).await.expect("scored");
    assert_eq!((manifest.rows, manifest.scored), (3, 3));
    assert_eq!(scored(&place.path("again")), expected([4, 17, 18].into_iter()));
    let none = Job {
        retry: Some(place.path("again")),
        ..Job::new(Vec::new(), place.path("third"), "", vec![Host::new(&one.address())])
    };
    let refused = score(none).await.expect_err("nothing is dead");
    assert!(matches!(&refused, Error::Usage(it) if it.contains("no dead letters")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_leaves_its_history_and_its_counts() {
    let script = |seen: &_| match ids(seen).contains(&13) {
        true => Answer::Status(13, "the model failed".to_owned()),
        false => identity::grpc(seen),
    };
    let (place, one, two) = (Place::new(), model(script).await, model(script).await);
    let file = place.rows("a.parquet", (0..40).map(|id| if id == 7 { -7 } else { id }));
    let watch = Watch::default();
    let job = place.job(&[&file], &[&one.address(), &two.address()]);
    run(job, place.store(), watch.clone()).await.expect("scored");
    let progress = watch.get();
    assert_eq!((progress.rows, progress.read, progress.committed), (40, 40, 40));
    assert_eq!((progress.scored, progress.dead, progress.done()), (38, 2, 40));
    assert_eq!(progress.committed_chunks, 6);
    let reasons = ["invalid_input", "model_error"].map(|reason| (reason.to_owned(), 1));
    assert_eq!(progress.reasons, reasons.into());
    let ends = |end: &str| -> u64 {
        progress.hosts.iter().map(|host| host.ends.get(end).copied().unwrap_or_default()).sum()
    };
    let calls: u64 = progress.hosts.iter().map(|host| host.calls).sum();
    assert!(ends("ambiguous") >= 2, "{progress:?}");
    let ended = ends("scored") + ends("ambiguous") + ends("withdrawn");
    assert!(ends("scored") > 0 && ended <= calls, "{progress:?}");
    let failure = progress.hosts.iter().find_map(|host| host.last_failure.as_ref());
    assert!(failure.is_some_and(|it| it.message.contains("the model failed")), "{failure:?}");
    let mut reader = Reader::new(place.store());
    let status = reader.read().expect("read");
    assert_eq!((status.state, status.workers), (State::Finished, Vec::new()));
    assert_eq!((status.history.total(), status.runs.len()), (40, 1));
    assert_eq!(status.runs[0].worker, progress.worker);
    let letters: Vec<_> = reader.letters().expect("read").iter().map(|it| it.row).collect();
    assert_eq!(letters, [7, 13]);
}
