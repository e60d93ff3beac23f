//! Checks 38, 39 and 46: hosts that fail, refuse or answer late.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use outrigger_oip_client::{
    Backoff, Class, Client, Config, EjectionSettings, ModelRef, Place, Request,
};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use tokio::time::{Instant, timeout};

use crate::harness::{client, config, connect, fault, grpc, request, soon, values};

const MODEL: ModelRef<'static> = ModelRef { name: "m", version: None };

#[tokio::test]
async fn check_38_a_host_that_is_ready_and_fails_every_call_is_ejected() {
    let good = Server::start(Protocol::Http1, identity::json).await;
    let bad = Server::start(Protocol::Http1, |seen| match seen.call.ends_with("/ready") {
        true => Answer::of(200, None, ""),
        false => Answer::json(500, r#"{"error":"Stub process is not healthy"}"#),
    })
    .await;
    let hour = Duration::from_secs(3600);
    let pause = Backoff { first: hour, most: hour };
    let ejection = EjectionSettings { pause, ..EjectionSettings::default() };
    let client = connect(Config { ejection, ..config(&[&good, &bad]) });
    for _ in 0..60 {
        client.infer(&request(&[1.0])).await.ok();
    }
    let places = client.places(MODEL);
    assert!(matches!(places[..], [Place::In, Place::Out(_)]), "{places:?}");
    assert!(client.is_ready(1, MODEL, soon()).await.expect("a status"), "it still says so");
    let before = bad.count("/infer");
    client.infer(&request(&[1.0])).await.expect("an answer of the other host");
    assert_eq!(bad.count("/infer"), before);
}

#[tokio::test]
async fn check_39_an_overload_lowers_the_limit_and_ejects_nothing() {
    let busy = || Answer::Status(8, "too many requests".to_owned());
    let (server, _) = grpc(move |_| busy()).await;
    let client = connect(Config { max_in_flight: 10, attempts: 1, ..config(&[&server]) });
    for _ in 0..6 {
        assert_eq!(fault(&client).await.class, Class::Overloaded);
    }
    assert!(client.limits()[0] < 5, "{:?}", client.limits());
    assert_eq!(client.places(MODEL), [Place::In]);
    server.script(identity::grpc);
    client.infer(&request(&[1.0])).await.expect("an answer");
}

#[tokio::test]
async fn check_46_an_answer_after_the_deadline_is_dropped() {
    let calls = AtomicUsize::new(0);
    let (server, client) = grpc(move |seen| match calls.fetch_add(1, Relaxed) {
        1 => Answer::Never,
        _ => identity::grpc(seen),
    })
    .await;
    client.infer(&request(&[0.0])).await.expect("an answer");
    let mut late = request(&[1.0]);
    late.deadline = Instant::now() + Duration::from_millis(500);
    let failure = client.infer(&late).await.expect_err("no answer");
    assert_eq!(failure.class, Class::Timeout);
    let reply = client.infer(&request(&[2.0])).await.expect("an answer");
    assert_eq!((values(&reply), server.seen().len()), (vec![2.0], 3));
}

#[tokio::test]
async fn a_host_that_never_answers_is_left_out_though_callers_leave_as_their_time_ends() {
    let ([_good, bad], client) = two(Answer::Never).await;
    let time = Duration::from_secs(1);
    let mut late = 0;
    for _ in 0..20 {
        let request = Request { deadline: Instant::now() + time, ..request(&[1.0]) };
        // They give up a little earlier than the client does.
        late += usize::from(timeout(time * 95 / 100, client.infer(&request)).await.is_err());
    }
    assert!(late <= 1 && bad.count("ModelInfer") <= 7, "{late}, {}", bad.count("ModelInfer"));
}

/// A server is out for no other model, whichever protocol it speaks.
#[tokio::test]
async fn calls_that_are_given_up_count_until_the_server_has_ended_them() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let answer = move |seen: &Seen| match protocol {
            Protocol::Http1 => identity::json(seen),
            Protocol::Http2 => identity::grpc(seen),
        };
        let server = Server::start(protocol, answer).await;
        let client = connect(Config { max_in_flight: 2, attempts: 1, ..config(&[&server]) });
        let other = || Request { model: "other".into(), ..request(&[1.0]) };
        client.infer(&other()).await.expect("the form is known");
        let slow = Duration::from_secs(2);
        server.script(move |seen: &Seen| {
            let is_other =
                seen.call.contains("/other/") || seen.body.windows(5).any(|part| part == b"other");
            match is_other {
                true => answer(seen),
                false => Answer::After(slow, Box::new(answer(seen))),
            }
        });
        let began = Instant::now();
        let deadline = began + Duration::from_millis(200);
        let given_up = client.infer(&Request { deadline, ..request(&[1.0]) }).await;
        assert_eq!(given_up.expect_err("it is slow").class, Class::Timeout);
        let refused = client.infer(&request(&[1.0])).await.expect_err("no place");
        assert_eq!(refused.class, Class::Overloaded);
        assert!(refused.to_string().contains("given up"), "{refused}");
        client.infer(&other()).await.expect("another model has places of its own");
        assert!(began.elapsed() < slow, "the machine is too slow for this test");
        while client.infer(&request(&[1.0])).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert!(began.elapsed() >= slow);
    }
}

/// Two servers over gRPC, of which one answers with `bad` if it is asked for the model `m`.
async fn two(bad: Answer) -> ([Server; 2], Client) {
    let good = Server::start(Protocol::Http2, identity::grpc).await;
    let bad = Server::start(Protocol::Http2, move |seen| {
        let is_other = seen.body.windows(5).any(|part| part == b"other");
        if is_other { identity::grpc(seen) } else { bad.clone() }
    })
    .await;
    let client = client(&[&good, &bad]);
    ([good, bad], client)
}

#[tokio::test]
async fn a_host_without_the_model_is_asked_once_and_another_one_at_once() {
    let unready = "Model m is not ready yet.".to_owned();
    let answers = [
        Answer::Status(5, "Request for unknown model".to_owned()),
        Answer::Status(14, "Request for unknown model: 'm' is not ready".to_owned()),
        Answer::Status(3, unready),
    ];
    for answer in answers {
        let ([_good, bad], client) = two(answer.clone()).await;
        let start = Instant::now();
        for _ in 0..20 {
            client.infer(&request(&[1.0])).await.expect("an answer of the other host");
        }
        assert!(start.elapsed() < Duration::from_secs(1), "{answer:?}: {:?}", start.elapsed());
        assert_eq!(bad.seen().len(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_host_with_another_version_does_not_have_the_model() {
    let version = |version: &'static str| {
        move |seen: &Seen| identity::grpc_with(seen, |reply| reply.model_version = version.into())
    };
    let good = Server::start(Protocol::Http2, version("3")).await;
    let old = Server::start(Protocol::Http2, version("2")).await;
    let client = client(&[&good, &old]);
    for _ in 0..20 {
        let request = Request { version: Some("3".into()), ..request(&[1.0]) };
        assert_eq!(client.infer(&request).await.expect("an answer").version.as_deref(), Some("3"));
    }
    assert_eq!(old.seen().len(), 1);
}

#[tokio::test]
async fn a_model_that_fails_everywhere_takes_no_host_from_others() {
    let failing = |seen: &Seen| match seen.body.windows(5).any(|part| part == b"other") {
        true => identity::grpc(seen),
        false => Answer::Status(13, "Stub process is not healthy".to_owned()),
    };
    let servers = [
        Server::start(Protocol::Http2, failing).await,
        Server::start(Protocol::Http2, failing).await,
    ];
    let client = client(&[&servers[0], &servers[1]]);
    for _ in 0..20 {
        assert_eq!(fault(&client).await.class, Class::Ambiguous, "its own failure");
        let other = Request { model: "other".into(), ..request(&[1.0]) };
        client.infer(&other).await.expect("an answer");
    }
    assert_eq!(client.places(MODEL), [Place::In; 2], "no host answers it, so none is to blame");
}

#[tokio::test]
async fn what_the_sender_is_at_fault_for_withdraws_no_host_and_is_not_repeated() {
    let invalid = "onnx runtime error 2: indices element out of data bounds, idx=9".to_owned();
    for answer in [Answer::Status(3, "unexpected shape".to_owned()), Answer::Status(13, invalid)] {
        let ([good, bad], client) = two(answer.clone()).await;
        good.script(move |_| answer.clone());
        for _ in 0..10 {
            let failure = fault(&client).await;
            assert!(failure.is_of_sender(), "{failure}");
        }
        assert_eq!(good.seen().len() + bad.seen().len(), 10);
        assert_eq!(client.places(MODEL), [Place::In; 2]);
    }
}

#[tokio::test]
async fn a_host_that_hangs_is_withdrawn_after_the_failures_in_a_row_of_its_settings() {
    let ([_good, bad], client) = two(Answer::Never).await;
    let short =
        || Request { deadline: Instant::now() + Duration::from_millis(300), ..request(&[1.0]) };
    let mut failed = 0;
    for _ in 0..40 {
        failed += usize::from(client.infer(&short()).await.is_err());
    }
    // After the first call the others have half of their time for it, and the rest for the other.
    assert_eq!((failed, bad.seen().len()), (1, 5));
    assert_eq!(client.withdrawn(1), ["m".into()]);
}

#[tokio::test]
async fn a_host_out_of_rotation_gets_calls_only_if_there_is_no_other() {
    let servers = [
        Server::start(Protocol::Http2, identity::grpc).await,
        Server::start(Protocol::Http2, identity::grpc).await,
    ];
    let client = client(&[&servers[0], &servers[1]]);
    let counts = || [0, 1].map(|host: usize| servers[host].seen().len());
    let ask = async |times: usize| {
        for _ in 0..times {
            client.infer(&request(&[1.0])).await.expect("an answer");
        }
    };
    client.set_away(0, true);
    ask(4).await;
    assert_eq!(counts(), [0, 4]);
    client.set_absent(1, MODEL, true);
    ask(4).await;
    assert_eq!(counts(), [2, 6], "none is in rotation");
    client.set_away(0, false);
    ask(4).await;
    assert_eq!(counts(), [6, 6]);
    client.set_absent(1, MODEL, false);
    ask(4).await;
    assert_eq!(counts(), [8, 8]);
}

#[tokio::test]
async fn after_a_failure_a_host_is_asked_that_lacked_the_model_when_it_was_looked_at() {
    let failing = Answer::Status(13, "Stub process is not healthy".to_owned());
    let ([good, bad], client) = two(failing).await;
    client.set_absent(0, MODEL, true);
    client.infer(&request(&[1.0])).await.expect("the answer of the host that has it by now");
    assert_eq!((good.seen().len(), bad.seen().len()), (1, 1));
    good.script(|_| Answer::Status(5, "unknown model".to_owned()));
    let failure = fault(&client).await;
    assert_eq!(failure.class, Class::Ambiguous, "{failure}");
}
