//! Limits of requests and tokens, those of the job and those that hosts ask for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use outrigger_batch::{Control, Watch, run};
use outrigger_testkit::oip::Seen;

use super::{echo, job, lines, server};
use crate::harness::{Place, score};

/// The time between two looks at the progress, and the time of a slow answer.
const WAIT: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_requests_and_tokens_hold() {
    let host = server(echo).await;
    // 600 requests a minute are one in 100 ms. A line has 15 tokens, though more are expected, and
    // 9,000 a minute are those of 10 lines in a second.
    for (requests, tokens, least) in [(Some(600), None, 1500), (None, Some(9000), 1500)] {
        let place = Place::new();
        let file = place.text("lines.jsonl", &lines(0..20));
        let mut job = job(&place, &[&file], &[&host]);
        (job.requests_per_minute, job.tokens_per_minute) = (requests, tokens);
        let start = Instant::now();
        let manifest = score(job).await.expect("answered");
        assert_eq!((manifest.scored, manifest.dead), (20, 0));
        let took = start.elapsed().as_millis();
        assert!(took >= least, "{requests:?} {tokens:?}: {took} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_a_job_runs() {
    let (place, host, watch) = (Place::new(), server(echo).await, Watch::default());
    let file = place.text("lines.jsonl", &lines(0..200));
    let mut job = job(&place, &[&file], &[&host]);
    // One line in a minute: without the change the job would take three hours.
    job.requests_per_minute = Some(1);
    let running = tokio::spawn(run(job, place.store(), watch.clone()));
    while watch.get().hosts.first().is_none_or(|host| host.bound != "quota") {
        tokio::time::sleep(WAIT).await;
    }
    let tokens = watch.get().hosts[0].tokens;
    assert!(tokens <= 30, "{tokens}");
    let control = Control { requests_per_minute: Some(60_000), ..Control::default() };
    place.control(&control);
    let manifest = running.await.expect("no panic").expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (200, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_gets_no_further_line_while_its_tokens_are_in_flight() {
    let place = Place::new();
    let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let script = {
        let (in_flight, most) = (Arc::clone(&in_flight), Arc::clone(&most));
        move |seen: &Seen| {
            if seen.call.starts_with("POST") {
                most.fetch_max(in_flight.fetch_add(1, Relaxed) + 1, Relaxed);
                std::thread::sleep(WAIT);
                in_flight.fetch_sub(1, Relaxed);
            }
            echo(seen)
        }
    };
    let host = server(script).await;
    let file = place.text("lines.jsonl", &lines(0..20));
    let mut job = job(&place, &[&file], &[&host]);
    // A line has more: a quarter of its body's bytes, and 8.
    job.tokens_in_flight = Some(20);
    let manifest = score(job).await.expect("answered");
    assert_eq!((manifest.scored, most.load(Relaxed)), (20, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_asks_for_a_pause_by_its_limits_gets_it() {
    let place = Place::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let host = server(move |seen| {
        let answer = echo(seen);
        match seen.call.starts_with("POST") && counted.fetch_add(1, Relaxed) == 1 {
            true => answer
                .with("x-ratelimit-remaining-requests", "0")
                .with("x-ratelimit-reset-requests", "1s"),
            false => answer,
        }
    })
    .await;
    let file = place.text("lines.jsonl", &lines(0..20));
    let start = Instant::now();
    let manifest = score(job(&place, &[&file], &[&host])).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (20, 0));
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}
