//! Checks 22, 23 and 30 to 33: failures and retries.

use std::time::Duration;

use outrigger_oip_client::{BudgetSettings, Class, Config, HostConfig, Status};
use outrigger_testkit::oip::{Answer, Protocol, Server, identity};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::sleep,
};

use crate::harness::{client, config, connect, fault, request, rest, soon, values};

#[tokio::test]
async fn check_22_every_body_of_an_error_gives_a_message() {
    let detail = r#"{"detail":[{"loc":["body","inputs"],"msg":"field required"}]}"#;
    let cases = [
        (r#"{"error":"unexpected shape"}"#, "unexpected shape"),
        (detail, "field required"),
        ("Internal Server Error", "Internal Server Error"),
        ("<html><body><h1>Bad Gateway</h1></body></html>", "Bad Gateway"),
    ];
    for (body, message) in cases {
        let (_server, client) = rest(move |_| Answer::of(400, None, body)).await;
        let failure = fault(&client).await;
        assert!(failure.message.contains(message) && !failure.message.contains('<'), "{failure}");
    }
    let (_server, client) = rest(|_| Answer::of(400, None, "")).await;
    assert!(!fault(&client).await.message.is_empty());
}

#[tokio::test]
async fn check_23_an_error_with_a_status_of_success_is_a_failure() {
    let (_server, client) = rest(|_| Answer::json(200, r#"{"error":"out of memory"}"#)).await;
    let failure = fault(&client).await;
    assert_eq!((failure.class, failure.status), (Class::Ambiguous, Status::Invalid));
    assert!(failure.message.contains("out of memory"), "{failure}");
}

#[tokio::test]
async fn check_30_the_class_decides_about_another_host() {
    let cases = [
        (400, r#"{"error":"unexpected shape"}"#, Err(Class::Refused)),
        // The other one may have the model.
        (404, r#"{"error":"unknown model"}"#, Ok(())),
        (422, r#"{"detail":"x"}"#, Err(Class::Refused)),
        (500, "Internal Server Error", Ok(())),
        (503, "", Ok(())),
        (429, "", Ok(())),
        (408, "", Ok(())),
    ];
    for (status, body, expected) in cases {
        let bad = Server::start(Protocol::Http1, identity::json).await;
        let good = Server::start(Protocol::Http1, identity::json).await;
        let client = client(&[&bad, &good]);
        // Both hosts are known to take JSON.
        while bad.count("/infer") == 0 || good.count("/infer") == 0 {
            client.infer(&request(&[1.0])).await.expect("an answer");
        }
        bad.script(move |_| Answer::of(status, None, body));
        let mut results = Vec::new();
        let before = bad.count("/infer");
        while bad.count("/infer") == before {
            results.push(client.infer(&request(&[1.0])).await.map(drop).map_err(|it| it.class));
        }
        assert_eq!(results.last(), Some(&expected), "{status} {body}");
    }
}

#[tokio::test]
async fn check_30_a_batch_is_cut_to_the_rows_that_a_model_takes() {
    let (server, client) = rest(|seen| {
        let shape = r#""shape":["#;
        let text = String::from_utf8_lossy(&seen.body);
        let rows = text.split(shape).nth(1).and_then(|rest| rest.split(',').next());
        match rows.and_then(|rows| rows.trim().parse().ok()) {
            Some(5_u32..) => {
                let message = "inference request batch-size must be <= 4 for 'm'";
                Answer::json(400, format!(r#"{{"error":"{message}"}}"#))
            }
            _ => identity::binary(seen),
        }
    })
    .await;
    let numbers: Vec<f32> = (0..10_u8).map(f32::from).collect();
    let reply = client.infer(&request(&numbers)).await.expect("an answer");
    assert_eq!(values(&reply), numbers);
    assert!(server.seen().len() >= 4, "one that is refused, and three parts");
}

#[tokio::test]
async fn check_30_a_host_that_is_not_there_is_replaced() {
    let gone = Server::start(Protocol::Http1, identity::json).await;
    let good = Server::start(Protocol::Http1, identity::json).await;
    let client = client(&[&gone, &good]);
    drop(gone);
    for _ in 0..4 {
        client.infer(&request(&[1.0])).await.expect("an answer of the other host");
    }
}

#[tokio::test]
async fn check_32_retries_are_few_when_every_host_fails() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(Protocol::Http2, |_| Answer::Status(14, String::new())).await);
    }
    let servers: Vec<_> = servers.iter().collect();
    let budget = BudgetSettings { floor: 0.0, ..BudgetSettings::default() };
    let client = connect(Config { budget, ..config(&servers) });
    for _ in 0..100 {
        fault(&client).await;
    }
    let sent: usize = servers.iter().map(|server| server.seen().len()).sum();
    assert!(sent <= 110, "{sent} messages for 100 requests");
}

#[tokio::test]
async fn check_33_a_message_that_failed_on_two_hosts_goes_to_no_third() {
    for answer in [Answer::Status(13, "Internal".to_owned()), Answer::Close] {
        let mut servers = Vec::new();
        for _ in 0..3 {
            let answer = answer.clone();
            servers.push(Server::start(Protocol::Http2, move |_| answer.clone()).await);
        }
        let client = client(&servers.iter().collect::<Vec<_>>());
        fault(&client).await;
        let mut sent: Vec<_> = servers.iter().map(|server| server.seen().len()).collect();
        sent.sort_unstable();
        assert_eq!(sent, [0, 1, 1], "{answer:?}");
    }
}

#[tokio::test]
async fn a_connection_that_was_idle_too_long_is_not_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let endpoint = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.expect("a request");
                assert!(read > 0, "a request");
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).await.expect("an answer");
                // A second request meets a server that is closing the connection.
                let _ = stream.read(&mut request).await;
            });
        }
    });
    let host = HostConfig { prefix: "models".to_owned(), ..HostConfig::new(endpoint) };
    let idle = Duration::from_millis(10);
    let client = connect(Config { idle, ..Config::new(vec![host]) });
    assert!(client.is_live(0, soon()).await.expect("an answer"));
    sleep(10 * idle).await;
    assert!(client.is_live(0, soon()).await.expect("an answer over another connection"));
}
