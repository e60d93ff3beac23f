//! TLS of the listeners: trust of both sides, rotation, and peers that misbehave.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use outrigger_proto::outrigger::v1::{
    ListModelsRequest, model_service_client::ModelServiceClient,
    prediction_service_client::PredictionServiceClient,
};
use outrigger_server::{Addresses, Kinds};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tonic::transport::Channel;

use crate::{
    certificates::{Authority, Mount, Pair, channel, files, http, shake, shown, until_shown},
    stack::{MODEL, Stack, request},
};

/// A server whose listeners all have the setting `transport`.
async fn stack(mount: &Mount, client_ca: Option<&Mount>, transport: &str) -> Stack {
    let (certificate, key) = (mount.setting("tls.crt"), mount.setting("tls.key"));
    let mut settings = vec![("tls.certificate", certificate.as_str()), ("tls.key", key.as_str())];
    // The speed of a busy machine is not under test, so the deadline is long.
    settings.push(("server.default_deadline", "10m"));
    let client_ca = client_ca.map(|mount| mount.setting("ca.crt"));
    settings.extend(client_ca.as_deref().map(|path| ("tls.client_ca", path)));
    for key in ["tls.grpc", "tls.http", "tls.health", "tls.admin"] {
        settings.push((key, transport));
    }
    Stack::with(&settings).await
}

/// True for each listener that answers: gRPC, HTTP, health, admin.
async fn answers(stack: &Stack, authorities: &str, caller: Option<&Pair>) -> [bool; 4] {
    let at = stack.addresses;
    let grpc = |address| {
        let mut client = ModelServiceClient::new(channel(address, authorities, caller));
        async move { client.list_models(ListModelsRequest {}).await.is_ok() }
    };
    let get = |address, path| {
        let asked = http(authorities, caller).get(format!("https://{address}{path}")).send();
        async move { asked.await.is_ok_and(|answer| answer.status().is_success()) }
    };
    let http = get(at.http, "/v1/models").await;
    let health = get(at.health, "/healthz").await;
    [grpc(at.grpc).await, http, health, grpc(at.admin).await]
}

/// The sum of a metric's series in `/metrics`.
async fn metric(stack: &Stack, authorities: &str, series: &str) -> f64 {
    let url = format!("https://{}/metrics", stack.addresses.health);
    let answer = http(authorities, None).get(url).send().await.expect("an answer");
    let text = answer.text().await.expect("a text");
    let lines = text.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn every_listener_answers_over_tls_to_callers_that_trust_its_authority() {
    let (authority, other) = (Authority::new(), Authority::new());
    let stack = stack(&Mount::pair(&authority.server()), None, "server").await;
    assert_eq!(answers(&stack, &authority.pem, None).await, [true; 4]);
    assert_eq!(answers(&stack, &other.pem, None).await, [false; 4]);
    let plain = reqwest::get(stack.http("/v1/models")).await;
    assert!(plain.is_err(), "not without TLS");
    let mut client =
        PredictionServiceClient::new(channel(stack.addresses.grpc, &authority.pem, None));
    client.predict(request(&[(1.0, 1.0)])).await.expect("predictions too");
}

#[tokio::test]
async fn with_mutual_tls_callers_need_a_certificate_that_is_vouched_for() {
    let (authority, other) = (Authority::new(), Authority::new());
    let client_ca = Mount::new(&[("ca.crt", &authority.pem)]);
    let stack = stack(&Mount::pair(&authority.server()), Some(&client_ca), "mutual").await;
    for (caller, expected) in [
        (Some(authority.caller("shop", Vec::new())), true),
        (None, false),
        (Some(other.caller("shop", Vec::new())), false),
        (Some(authority.expired("shop")), false),
    ] {
        assert_eq!(answers(&stack, &authority.pem, caller.as_ref()).await, [expected; 4]);
    }
}

#[tokio::test]
async fn callers_are_held_to_the_authorities_of_now() {
    let (authority, next) = (Authority::new(), Authority::new());
    let server = Mount::pair(&authority.server());
    let mut client_ca = Mount::new(&[("ca.crt", &authority.pem)]);
    let stack = stack(&server, Some(&client_ca), "mutual").await;
    let (old, new) = (authority.caller("shop", Vec::new()), next.caller("shop", Vec::new()));
    let trusted = authority.pem.as_str();
    assert_eq!(answers(&stack, trusted, Some(&new)).await, [false; 4]);
    client_ca.swap(&[("ca.crt", &next.pem)]);
    while answers(&stack, trusted, Some(&new)).await != [true; 4] {}
    assert_eq!(answers(&stack, trusted, Some(&old)).await, [false; 4]);
}

#[tokio::test]
async fn an_optional_certificate_may_be_left_out_but_not_be_wrong() {
    let (authority, other) = (Authority::new(), Authority::new());
    let client_ca = Mount::new(&[("ca.crt", &authority.pem)]);
    let stack = stack(&Mount::pair(&authority.server()), Some(&client_ca), "optional").await;
    let right = authority.caller("shop", Vec::new());
    let wrong = other.caller("shop", Vec::new());
    assert_eq!(answers(&stack, &authority.pem, Some(&right)).await, [true; 4]);
    assert_eq!(answers(&stack, &authority.pem, None).await, [true; 4]);
    assert_eq!(answers(&stack, &authority.pem, Some(&wrong)).await, [false; 4]);
}

#[tokio::test]
async fn each_listener_uses_its_configured_transport() {
    let authority = Authority::new();
    let (mount, client_ca) =
        (Mount::pair(&authority.server()), Mount::new(&[("ca.crt", &authority.pem)]));
    let stack = Stack::with(&[
        ("tls.certificate", &mount.setting("tls.crt")),
        ("tls.key", &mount.setting("tls.key")),
        ("tls.client_ca", &client_ca.setting("ca.crt")),
        ("tls.grpc", "mutual"),
        ("tls.health", "plain"),
    ])
    .await;
    let caller = authority.caller("shop", Vec::new());
    let (status, _) = stack.health("/healthz").await;
    assert_eq!(status, 200, "probes come without TLS");
    assert_eq!(answers(&stack, &authority.pem, None).await, [false, true, false, true]);
    assert_eq!(answers(&stack, &authority.pem, Some(&caller)).await, [true, true, false, true]);
}

#[tokio::test]
async fn both_protocols_are_offered() {
    let authority = Authority::new();
    let stack = stack(&Mount::pair(&authority.server()), None, "server").await;
    let stream = shake(stack.addresses.http, &authority.pem, None).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let one = http(&authority.pem, None);
    let url = format!("https://{}/v1/models", stack.addresses.http);
    assert_eq!(one.get(&url).send().await.unwrap().version(), reqwest::Version::HTTP_2);
    let roots = reqwest::Certificate::from_pem_bundle(authority.pem.as_bytes()).unwrap();
    let old = reqwest::Client::builder().tls_certs_only(roots).http1_only().build().unwrap();
    assert_eq!(old.get(&url).send().await.unwrap().version(), reqwest::Version::HTTP_11);
}

/// The listeners; each one gets a request of its own kind.
const LISTENERS: [&str; 4] = ["grpc", "http", "health", "admin"];

/// Callers that send requests one after the other until they are stopped.
#[derive(Clone)]
struct Load {
    addresses: [SocketAddr; 4],
    authorities: Arc<str>,
    stop: Arc<AtomicBool>,
    /// Counts of answers by listener: over new connections, and over kept ones.
    answers: Arc<[[AtomicUsize; 2]; 4]>,
    failed: Arc<AtomicUsize>,
}

/// A caller of one listener.
enum Caller {
    Predict(PredictionServiceClient<Channel>),
    Post(reqwest::Client, String),
    Get(reqwest::Client, String),
    List(ModelServiceClient<Channel>),
}

impl Load {
    fn new(at: Addresses, authorities: &Arc<str>) -> Self {
        Self {
            addresses: [at.grpc, at.http, at.health, at.admin],
            authorities: Arc::clone(authorities),
            stop: Arc::default(),
            answers: Arc::default(),
            failed: Arc::default(),
        }
    }

    /// Waits until each listener has given `answers` answers on both kinds of connection.
    async fn until_answered(&self, answers: usize) {
        while self.answers.iter().flatten().any(|count| count.load(SeqCst) < answers) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The sums of answers over new connections, and over kept ones.
    fn answered(&self) -> [usize; 2] {
        [0, 1].map(|keep| self.answers.iter().map(|of| of[keep].load(SeqCst)).sum())
    }

    /// A caller that has no connection yet.
    fn caller(&self, listener: usize) -> Caller {
        let address = self.addresses[listener];
        let channel = || channel(address, &self.authorities, None);
        let client = || http(&self.authorities, None);
        match LISTENERS[listener] {
            "grpc" => Caller::Predict(PredictionServiceClient::new(channel())),
            "http" => Caller::Post(client(), format!("https://{address}/v1/predict")),
            "health" => Caller::Get(client(), format!("https://{address}/healthz")),
            _ => Caller::List(ModelServiceClient::new(channel())),
        }
    }

    async fn ask(self, listener: usize, keep: bool) {
        let mut caller = self.caller(listener);
        while !self.stop.load(SeqCst) {
            if !keep {
                caller = self.caller(listener);
            }
            if let Err(failed) = caller.ask().await {
                self.failed.fetch_add(1, SeqCst);
                eprintln!("{} failed: {failed}", LISTENERS[listener]);
            }
            self.answers[listener][usize::from(keep)].fetch_add(1, SeqCst);
        }
    }
}

impl Caller {
    async fn ask(&mut self) -> Result<(), String> {
        let answer = match self {
            Self::Predict(client) => {
                let answer = client.predict(request(&[(1.0, 1.0)])).await;
                return answer.map(drop).map_err(|status| format!("{status:?}"));
            }
            Self::List(client) => {
                let answer = client.list_models(ListModelsRequest {}).await;
                return answer.map(drop).map_err(|status| format!("{status:?}"));
            }
            Self::Post(client, url) => {
                let body = json!({
                    "model": {"name": MODEL},
                    "user": {"u0": 0.5},
                    "treatments": [{"id": "a", "features": {"t0": 1, "t1": 2.5}}],
                });
                client.post(&*url).json(&body).send().await
            }
            Self::Get(client, url) => client.get(&*url).send().await,
        };
        match answer {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(answer.status().to_string()),
            Err(error) => Err(format!("{error:?}")),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_rotate_under_load_and_no_request_fails() {
    const ROTATIONS: usize = 5;
    let authorities = [Authority::new(), Authority::new()];
    let trusted: Arc<str> = format!("{}{}", authorities[0].pem, authorities[1].pem).into();
    let mut mount = Mount::pair(&authorities[0].server());
    let stack = stack(&mount, None, "server").await;
    let load = Load::new(stack.addresses, &trusted);
    let mut callers = JoinSet::new();
    for listener in 0..LISTENERS.len() {
        for keep in [true, false].repeat(2) {
            callers.spawn(load.clone().ask(listener, keep));
        }
    }
    for rotation in 1..=ROTATIONS {
        let pair = authorities[rotation % 2].server();
        mount.swap(&files(&pair));
        for (name, address) in LISTENERS.iter().zip(load.addresses) {
            let shown = until_shown(address, &trusted, &pair);
            let shown = tokio::time::timeout(Duration::from_secs(180), shown).await;
            shown.unwrap_or_else(|_| panic!("{name} shows the old certificate"));
        }
        load.until_answered(25 * rotation).await;
    }
    load.stop.store(true, SeqCst);
    callers.join_all().await;
    let ([new, kept], failed) = (load.answered(), load.failed.load(SeqCst));
    println!(
        "bench tls-rotation {failed} failed requests of {kept} on kept connections and {new} on new ones, {ROTATIONS} rotations"
    );
    assert_eq!(failed, 0);
}

/// Sends predictions over one connection until one fails.
async fn until_refused(mut client: PredictionServiceClient<Channel>) {
    let refused = async {
        while client.predict(request(&[(1.0, 1.0)])).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), refused).await.expect("it is refused at last");
}

#[tokio::test]
async fn open_connections_end_when_their_certificate_is_no_longer_trusted() {
    let (old, new) = (Authority::new(), Authority::new());
    let both = format!("{}{}", old.pem, new.pem);
    let (own, mut client_ca) = (Mount::pair(&old.server()), Mount::new(&[("ca.crt", &both)]));
    let stack = stack(&own, Some(&client_ca), "mutual").await;
    let client = |pair: &Pair| {
        PredictionServiceClient::new(channel(stack.addresses.grpc, &old.pem, Some(pair)))
    };
    let (mut staying, mut leaving) =
        (client(&new.caller("staying", Vec::new())), client(&old.caller("leaving", Vec::new())));
    for client in [&mut staying, &mut leaving] {
        client.predict(request(&[(1.0, 1.0)])).await.expect("both are vouched for");
    }
    let stop = AtomicBool::new(false);
    let served = async {
        while !stop.load(SeqCst) {
            staying.predict(request(&[(1.0, 1.0)])).await.expect("none of its requests fails");
        }
    };
    let withdrawn = async {
        client_ca.swap(&[("ca.crt", &new.pem)]);
        until_refused(leaving).await;
        stop.store(true, SeqCst);
    };
    tokio::join!(served, withdrawn);
}

#[tokio::test]
async fn a_connection_ends_with_the_certificate_that_it_was_made_with() {
    let authority = Authority::new();
    let (own, client_ca) =
        (Mount::pair(&authority.server()), Mount::new(&[("ca.crt", &authority.pem)]));
    let stack = stack(&own, Some(&client_ca), "mutual").await;
    // A busy machine may need longer than the certificate is valid, so the validity grows with each
    // attempt.
    for seconds in [2, 8, 32, 128] {
        let pair = authority.expiring("shop", seconds);
        let channel = channel(stack.addresses.grpc, &authority.pem, Some(&pair));
        let mut client = PredictionServiceClient::new(channel);
        if client.predict(request(&[(1.0, 1.0)])).await.is_ok() {
            return until_refused(client).await;
        }
    }
    panic!("no handshake was made in time");
}

#[tokio::test]
async fn a_pair_that_does_not_match_or_is_half_written_changes_nothing_and_is_counted() {
    const FAILED: &str = r#"outrigger_secret_reloads_total{secret="tls",outcome="failed"}"#;
    let authority = Authority::new();
    let (first, second) = (authority.server(), authority.server());
    let mut mount = Mount::pair(&first);
    let stack = stack(&mount, None, "server").await;
    let before = shown(stack.addresses.grpc, &authority.pem).await;
    let half = &second.certificate[..second.certificate.len() / 2];
    for (certificate, key) in [
        (second.certificate.as_str(), first.key.as_str()),
        (half, second.key.as_str()),
        (second.certificate.as_str(), ""),
    ] {
        let failed = metric(&stack, &authority.pem, FAILED).await;
        mount.swap(&[("tls.crt", certificate), ("tls.key", key)]);
        while metric(&stack, &authority.pem, FAILED).await <= failed {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(shown(stack.addresses.grpc, &authority.pem).await, before);
    }
    mount.swap(&files(&second));
    until_shown(stack.addresses.grpc, &authority.pem, &second).await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_stops_the_start() {
    let authority = Authority::new();
    let (one, other) = (authority.server(), authority.server());
    let mount = Mount::new(&[("tls.crt", &one.certificate), ("tls.key", &other.key)]);
    let settings = [
        ("tls.certificate", mount.setting("tls.crt")),
        ("tls.key", mount.setting("tls.key")),
        ("images.repository", "registry.example/team".to_owned()),
    ];
    let settings: Vec<_> = settings.map(|(key, value)| (key.to_owned(), value)).into();
    let loaded = outrigger_server::config::load(&Kinds::shipped(), None, [], &settings).unwrap();
    let Err(error) = outrigger_server::start(loaded.config, &Kinds::shipped()) else {
        panic!("it started")
    };
    assert!(matches!(error, outrigger_server::Error::File(_)), "{error}");
    assert!(error.to_string().contains("tls.key"), "{error}");
    assert!(!error.to_string().contains("BEGIN"), "{error}");
}

#[tokio::test]
async fn tls_metrics_exist_from_the_start_and_report_the_expiry() {
    const EXPIRES: &str = "outrigger_tls_certificate_expiry_timestamp_seconds";
    let authority = Authority::new();
    let stack = stack(&Mount::pair(&authority.server()), None, "server").await;
    // The certificates of these tests are valid until the year 4096.
    let year = metric(&stack, &authority.pem, EXPIRES).await / (365.2425 * 86_400.0) + 1970.0;
    assert!((4095.0..4097.0).contains(&year), "{year}");
    let url = format!("https://{}/metrics", stack.addresses.health);
    let text = http(&authority.pem, None).get(url).send().await.unwrap().text().await.unwrap();
    for series in [
        r#"outrigger_tls_handshake_failures_total{listener="admin"}"#,
        r#"outrigger_secret_reloads_total{secret="tls",outcome="failed"}"#,
    ] {
        assert!(text.contains(series), "{series}");
    }
}

#[tokio::test]
async fn silent_or_foreign_peers_delay_no_other_caller() {
    let authority = Authority::new();
    let stack = stack(&Mount::pair(&authority.server()), None, "server").await;
    // There are more silent connections than threads, on every listener, and they never send a
    // byte.
    let at = stack.addresses;
    let mut silent = Vec::new();
    for address in [at.grpc, at.http, at.health, at.admin].repeat(16) {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for address in [at.grpc, at.http, at.health, at.admin] {
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        // The server sends a TLS alert and closes the connection.
        let _ = plain.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    assert_eq!(answers(&stack, &authority.pem, None).await, [true; 4]);
    let failures = metric(&stack, &authority.pem, "outrigger_tls_handshake_failures_total").await;
    assert!(failures >= 4.0, "{failures}");
}
