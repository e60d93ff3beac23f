//! The memory of answers, which is charged to an account. The protocol has no check of it.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use outrigger_budget::{Account, Budget};
use outrigger_oip_client::{Class, Client, Failure, Status};
use outrigger_proto::inference::InferTensorContents;
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};

use crate::harness::{client, request, values};

/// An account of about 100 KiB, of which one client gets half.
fn account() -> Account {
    Budget::new(1 << 20).answers
}

/// The failure of a request whose answer is refused.
async fn refused(
    protocol: Protocol,
    script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> Failure {
    let (server, account) = (Server::start(protocol, script).await, account());
    let client = client(&[&server]).charged_to(account.clone());
    let failure = client.infer(&request(&[1.0])).await.expect_err("refused");
    assert_eq!(account.used(), 0, "nothing stays charged");
    failure
}

fn is_too_large(failure: &Failure) -> bool {
    let is_refusal = failure.message.contains("server.memory");
    is_refusal && (failure.class, failure.status) == (Class::Ambiguous, Status::Invalid)
}

#[tokio::test]
async fn an_answer_beyond_the_account_is_refused_while_it_arrives() {
    let large = |size: usize| Answer::json(200, vec![b' '; size]);
    assert!(is_too_large(&refused(Protocol::Http1, move |_| large(1 << 20)).await));
    let script =
        |seen: &Seen| identity::grpc_with(seen, |response| response.id = "a".repeat(1 << 20));
    assert!(is_too_large(&refused(Protocol::Http2, script).await));
}

#[tokio::test]
async fn an_answer_beyond_the_account_is_refused_while_it_is_decompressed() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&vec![b' '; 1 << 20]).expect("compressed");
    let bomb = encoder.finish().expect("compressed");
    let script = move |_: &Seen| Answer::json(200, bomb.clone()).with("content-encoding", "gzip");
    assert!(is_too_large(&refused(Protocol::Http1, script).await));
}

#[tokio::test]
async fn what_an_answer_is_decoded_into_is_charged_before() {
    // 10,000 bytes that take 240,000 as numbers.
    let script = |seen: &Seen| {
        identity::grpc_with(seen, |response| {
            let int64_contents = vec![1; 10_000];
            let contents = InferTensorContents { int64_contents, ..Default::default() };
            response.outputs[0].contents = Some(contents);
        })
    };
    assert!(is_too_large(&refused(Protocol::Http2, script).await));
    let objects = format!("[{}]", ["{}"; 500].join(","));
    let script = move |_: &Seen| Answer::json(200, objects.clone());
    assert!(is_too_large(&refused(Protocol::Http1, script).await));
}

#[tokio::test]
async fn answers_that_fit_are_charged_until_they_are_decoded() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let script = match protocol {
            Protocol::Http1 => identity::binary,
            Protocol::Http2 => identity::grpc,
        };
        let server = Server::start(protocol, script).await;
        let account = account();
        let client: Client = client(&[&server]).charged_to(account.clone());
        let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
        assert_eq!((values(&reply), account.used()), (vec![1.0, 2.0], 0));
    }
}
