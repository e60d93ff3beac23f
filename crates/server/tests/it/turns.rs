//! Requests that wait for their turn, with their bodies unread.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use outrigger_proto::{
    outrigger::v1::{PredictRequest, PredictResponse},
    raw::unary,
};
use outrigger_testkit::{
    engine::{Predicting, Workers, row_sums},
    http2::{Frame, Peer},
};
use prost::Message as _;
use tokio::{net::TcpStream, sync::watch, task::JoinSet, time::timeout};

use crate::certificates::Mount;
use crate::stack::{MODEL, Stack, hold, linear, request, request_for};

const PREDICT: &str = "/outrigger.v1.PredictionService/Predict";
const OTHER: &str = "offers/other";

/// Longer than anything that a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets the engine answer one prediction of [`MODEL`] at a time.
pub(crate) fn work(stack: &Stack, time: Duration) {
    let workers = Workers::new(1, time);
    stack.engine.on_predict(move |prediction| {
        Predicting::Worked(workers.clone(), Box::new(row_sums(prediction)))
    });
}

/// Opens a connection to `stack`, and makes it known for requests for [`MODEL`].
async fn known(stack: &Stack) -> Peer<TcpStream> {
    let stream = TcpStream::connect(stack.addresses.grpc).await.expect("it listens");
    stream.set_nodelay(true).expect("an open socket");
    let mut caller = Peer::client(stream).await.expect("an open socket");
    for stream in (0..10).map(|number| 1 + 2 * number) {
        caller.send(&[Frame::request(stream, PREDICT), body(stream, MODEL)]).await.expect("sent");
        assert_predicted(&caller.answer(stream).await.expect("an answer"));
    }
    caller
}

/// The body of a request for `model`.
fn body(stream: u32, model: &str) -> Frame {
    let message = request_for(model, &[(1.0, 1.0)]).encode_to_vec();
    Frame::body(stream, unary::framed(&message).to_vec())
}

fn assert_predicted(body: &[u8]) {
    let (_, message) = body.split_first_chunk::<{ unary::PREFIX }>().expect("a message");
    PredictResponse::decode(message).expect("a response");
}

/// Callers that keep a version crowded: each sends again as soon as it is answered.
pub(crate) struct Crowd {
    answers: watch::Receiver<usize>,
    callers: JoinSet<()>,
}

impl Crowd {
    pub(crate) fn of(stack: &Stack, count: usize) -> Self {
        let (sender, answers) = watch::channel(0);
        let mut callers = JoinSet::new();
        for _ in 0..count {
            let (mut client, sender) = (stack.predictions(), sender.clone());
            callers.spawn(async move {
                loop {
                    client.predict(request(&[(1.0, 1.0)])).await.expect("an answer in its turn");
                    sender.send_modify(|answers| *answers += 1);
                }
            });
        }
        Self { answers, callers }
    }

    /// Waits for so many further answers.
    pub(crate) async fn goes_on(&mut self, more: usize) {
        let target = *self.answers.borrow() + more;
        tokio::select! {
            reached = timeout(PATIENCE, self.answers.wait_for(|answers| *answers >= target)) => {
                reached.expect("answers in time").expect("callers");
            }
            Some(failed) = self.callers.join_next() => failed.expect("no caller fails"),
        }
    }
}

#[tokio::test]
async fn more_requests_than_places_are_answered_one_after_the_other() {
    let stack = Stack::with(&[("server.max_in_flight", "2")]).await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.expect("it is up");
    work(&stack, Duration::from_millis(1));
    let client = stack.predictions();
    let mut sent = JoinSet::new();
    for _ in 0..200 {
        let mut client = client.clone();
        sent.spawn(async move { client.predict(request(&[(1.0, 1.0)])).await });
    }
    for answer in sent.join_all().await {
        answer.expect("an answer in its turn");
    }
}

#[tokio::test]
async fn a_caller_with_one_request_does_not_wait_for_all_of_another() {
    let tokens =
        Mount::new(&[("greedy", "the-token-of-greedy"), ("modest", "the-token-of-modest")]);
    let stack = Stack::with(&[
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.callers", r#"{"*": [predict]}"#),
        ("server.max_in_flight", "1"),
    ])
    .await;
    let answered = Arc::new(AtomicUsize::new(0));
    let ask = |token: &str| {
        let mut request = tonic::Request::new(request(&[(1.0, 1.0)]));
        let value = format!("Bearer the-token-of-{token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
        let (mut client, answered) = (stack.predictions(), Arc::clone(&answered));
        async move {
            client.predict(request).await.expect("an answer in its turn");
            answered.fetch_add(1, SeqCst)
        }
    };
    ask("modest").await;
    let (gate, mut arrivals) = hold(&stack);
    let mut greedy = JoinSet::new();
    (0..100).for_each(|_| drop(greedy.spawn(ask("greedy"))));
    arrivals.recv().await.expect("one has the place");
    stack.until_waiting("place", 99).await;
    let modest = tokio::spawn(ask("modest"));
    stack.until_waiting("place", 100).await;
    gate.open();
    let before = modest.await.unwrap();
    assert!(before < 50, "it was answered after {before} others");
    greedy.join_all().await;
}

#[tokio::test]
async fn large_requests_wait_for_memory_and_none_is_refused() {
    // One caller may take 38.4 MiB, and these are 120 MB together.
    let stack = Stack::with(&[("server.memory", "256MiB")]).await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.expect("it is up");
    work(&stack, Duration::from_millis(1));
    let mut sent = JoinSet::new();
    for number in 0..60 {
        let routing_key = format!("{number}-{}", "x".repeat(2_000_000));
        let large = PredictRequest { routing_key, ..request(&[(1.0, 1.0)]) };
        let mut client = stack.predictions();
        sent.spawn(async move { client.predict(large).await });
    }
    for answer in sent.join_all().await {
        answer.expect("an answer in its turn");
    }
}

#[tokio::test]
async fn slow_bodies_do_not_hold_the_turns_of_a_crowded_version() {
    let stack = Stack::start().await;
    let mut slow = known(&stack).await;
    work(&stack, Duration::from_millis(5));
    let mut crowd = Crowd::of(&stack, 40);
    crowd.goes_on(200).await;
    // More than may be in progress.
    let streams: Vec<u32> = (0..40).map(|number| 101 + 2 * number).collect();
    for stream in &streams {
        slow.send(&[Frame::request(*stream, PREDICT)]).await.unwrap();
    }
    crowd.goes_on(400).await;
    for stream in &streams {
        slow.send(&[body(*stream, MODEL)]).await.unwrap();
    }
    let (mut waiting, mut answered) = (BTreeSet::from_iter(streams), BTreeSet::new());
    while !waiting.is_empty() {
        let frame = timeout(PATIENCE, slow.next()).await.expect("answers in time").unwrap();
        if frame.is_data() {
            answered.insert(frame.stream());
        }
        if frame.is_end() {
            waiting.remove(&frame.stream());
        }
    }
    assert_eq!(answered.len(), 40, "answers with a body");
}

#[tokio::test]
async fn a_request_for_another_model_than_before_is_answered_beside_a_crowd() {
    let stack = Stack::start().await;
    stack.publish(OTHER, &linear(0.0)).await;
    let mut client = stack.predictions();
    client.predict(request_for(OTHER, &[(1.0, 1.0)])).await.expect("it is up");
    let mut caller = known(&stack).await;
    work(&stack, Duration::from_millis(5));
    let mut crowd = Crowd::of(&stack, 40);
    crowd.goes_on(200).await;
    for (stream, model) in [(101, OTHER), (103, MODEL), (105, OTHER)] {
        caller.send(&[Frame::request(stream, PREDICT), body(stream, model)]).await.unwrap();
        assert_predicted(&timeout(PATIENCE, caller.answer(stream)).await.unwrap().unwrap());
    }
    crowd.goes_on(10).await;
}

/// Requests of a connection without a habit have a place and wait for their turn at the version,
/// while those of a known connection have had their turn and wait for a place.
#[tokio::test]
async fn requests_with_a_place_and_requests_with_a_turn_do_not_wait_for_each_other() {
    let stack = Stack::with(&[("server.max_in_flight", "2")]).await;
    // So few that the version's usual duration is not known, and its requests line up.
    let mut caller = known(&stack).await;
    let (gate, mut arrivals) = hold(&stack);
    let mut sent = JoinSet::new();
    for _ in 0..4 {
        let mut client = stack.predictions();
        sent.spawn(async move { client.predict(request(&[(1.0, 1.0)])).await });
    }
    for _ in 0..2 {
        arrivals.recv().await.expect("two have the places");
    }
    stack.until_waiting("place", 2).await;
    // More than the version admits at a time.
    let streams: Vec<u32> = (0..20).map(|number| 101 + 2 * number).collect();
    for stream in &streams {
        caller.send(&[Frame::request(*stream, PREDICT), body(*stream, MODEL)]).await.unwrap();
    }
    let all_wait = timeout(PATIENCE, stack.until_waiting("place", 22)).await;
    all_wait.expect("their turns have passed on");
    gate.open();
    for answer in timeout(PATIENCE, sent.join_all()).await.expect("answers in time") {
        answer.expect("an answer");
    }
    let mut waiting = BTreeSet::from_iter(streams);
    while !waiting.is_empty() {
        let frame = timeout(PATIENCE, caller.next()).await.expect("answers in time").unwrap();
        if frame.is_end() {
            waiting.remove(&frame.stream());
        }
    }
}

#[tokio::test]
async fn a_waiting_request_whose_body_was_never_sent_is_refused_at_its_deadline() {
    let stack = Stack::with(&[("server.max_in_flight", "1")]).await;
    let mut caller = known(&stack).await;
    let (gate, mut arrivals) = hold(&stack);
    caller.send(&[Frame::request(101, PREDICT), body(101, MODEL)]).await.unwrap();
    arrivals.recv().await.expect("it has the place");
    caller.send(&[Frame::request_within(103, PREDICT, "100m")]).await.unwrap();
    let answer = timeout(PATIENCE, caller.answer(103)).await.unwrap().unwrap();
    assert_eq!(answer, b"", "a status alone");
    gate.open();
    assert_predicted(&caller.answer(101).await.unwrap());
}

#[tokio::test]
async fn waiting_requests_are_answered_while_the_server_stops() {
    let stack = Stack::with(&[("server.max_in_flight", "1")]).await;
    let client = stack.predictions();
    client.clone().predict(request(&[(1.0, 1.0)])).await.expect("it is up");
    let (gate, mut arrivals) = hold(&stack);
    let mut sent = JoinSet::new();
    for _ in 0..10 {
        let mut client = client.clone();
        sent.spawn(async move { client.predict(request(&[(1.0, 1.0)])).await });
    }
    arrivals.recv().await.expect("one has the place");
    stack.until_waiting("place", 9).await;
    stack.tell_to_stop();
    gate.open();
    for answer in sent.join_all().await {
        answer.expect("an answer while it stops");
    }
    stack.stopped().await.expect("it stops");
}
