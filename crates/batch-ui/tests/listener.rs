//! The listener over real connections: who may read, who may change, and what is there.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    time::Duration,
};

use outrigger_batch::{Control, Progress, Store, Watch};
use outrigger_batch_ui::{Listener, Settings, Worker};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

const TOKEN: &str = "0123456789abcdef";

/// A listener of a job that is planned, with a token.
struct Served {
    directory: TempDir,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Served {
    /// At an address of this machine that others cannot reach.
    async fn with(worker: Option<Worker>) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, worker).await
    }

    async fn at(address: Ipv4Addr, worker: Option<Worker>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let token = directory.path().join("token");
        fs::write(&token, TOKEN).expect("written");
        fs::create_dir(directory.path().join("out")).expect("created");
        let settings = Settings { address: (address, 0).into(), token_file: Some(token) };
        let listener = Listener::bind(settings).await.expect("bound");
        let address = listener.address();
        let store = Store::local(directory.path().join("out"));
        let task = tokio::spawn(listener.serve(store, worker));
        Self { directory, address, task }
    }

    /// The same listener, reached by another address of this machine.
    fn reached_by(mut self, address: IpAddr) -> Self {
        self.address.set_ip(address);
        self
    }

    fn output(&self) -> PathBuf {
        self.directory.path().join("out")
    }

    /// The answer to a request with these lines in its head.
    async fn answer(&self, request: &str, lines: &[&str], body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("connected");
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let lines = format!("{lines}connection: close\r\ncontent-length: {length}\r\n");
        let request = format!("{request} HTTP/1.1\r\n{lines}\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    async fn get(&self, path: &str) -> String {
        let host = format!("host: {}", self.address);
        self.answer(&format!("GET {path}"), &[&host], "").await
    }

    async fn change(&self, token: &str, body: &str) -> String {
        let host = format!("host: {}", self.address);
        let token = format!("authorization: Bearer {token}");
        let lines = [&*host, &*token, "content-type: application/json"];
        self.answer("POST /ui/control", &lines, body).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The address by which this machine reaches others; `None` if it has no network.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    // An address of documentation (RFC 5737). Nothing is sent: the kernel chooses the way alone.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let address = socket.local_addr().expect("an address").ip();
    (!address.is_loopback()).then_some(address)
}

fn is(answer: &str, status: u16) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {status} "))
}

#[tokio::test]
async fn the_page_has_its_files_and_forbids_everything_else() {
    let served = Served::with(None).await;
    let page = served.get("/ui").await;
    assert!(is(&page, 200) && page.contains("ui/batch.js"), "{page}");
    assert!(page.to_lowercase().contains("content-security-policy: default-src 'none'"), "{page}");
    for file in ["/ui/batch.js", "/ui/style.css", "/ui/plot.js"] {
        assert!(is(&served.get(file).await, 200), "{file}");
    }
    assert!(is(&served.get("/ui/none.js").await, 404));
    assert!(is(&served.get("/healthz").await, 200));
    assert!(is(&served.get("/metrics").await, 404), "no worker is in this process");
}

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let served = Served::with(None).await;
    let host = format!("host: {}", served.address);
    for lines in [
        vec!["host: evil.example"],
        vec![&*host, "origin: http://evil.example"],
        vec![&*host, "sec-fetch-site: cross-site", "sec-fetch-mode: cors"],
    ] {
        for path in ["/ui", "/ui/events", "/metrics"] {
            let answer = served.answer(&format!("GET {path}"), &lines, "").await;
            assert!(is(&answer, 403), "{lines:?} {path}: {answer}");
        }
    }
}

#[tokio::test]
async fn callers_elsewhere_get_the_metrics_and_neither_the_page_nor_changes() {
    let Some(elsewhere) = own_address() else {
        eprintln!("skipped: this machine has no address but the loopback's");
        return;
    };
    let worker = Worker { watch: Watch::default(), model: "m".to_owned() };
    let served = Served::at(Ipv4Addr::UNSPECIFIED, Some(worker)).await;
    fs::write(served.output().join("plan.json"), "{}").expect("written");
    let served = served.reached_by(elsewhere);
    for path in ["/", "/ui", "/ui/", "/ui/events", "/ui/batch.js", "/none", "/metrics/"] {
        let answer = served.get(path).await;
        assert!(is(&answer, 403) && answer.contains("forward the port"), "{path}: {answer}");
    }
    let eight = r#"{"set": ["batch_size=8"]}"#;
    assert!(is(&served.change(TOKEN, eight).await, 403), "also with the token");
    assert_eq!(Control::read(&Store::local(served.output())), Ok(Control::default()));
    for path in ["/metrics", "/healthz"] {
        assert!(is(&served.get(path).await, 200), "{path}");
    }
    let served = served.reached_by(Ipv4Addr::LOCALHOST.into());
    assert!(is(&served.get("/ui").await, 200));
    assert!(is(&served.change(TOKEN, eight).await, 200));
}

#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    let served = Served::with(None).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(served.address).await.expect("connected"));
        // Less than the time that an idle connection has.
        let answer = timeout(Duration::from_secs(5), served.get("/healthz")).await;
        assert!(is(&answer.expect("an answer at once"), 200));
    }
}

#[tokio::test]
async fn changes_need_the_token_and_a_job() {
    let served = Served::with(None).await;
    let store = Store::local(served.output());
    let eight = r#"{"set": ["batch_size=8"]}"#;
    assert!(is(&served.change(TOKEN, eight).await, 400), "the job is not planned");
    fs::write(served.output().join("plan.json"), "{}").expect("written");
    for token in ["", "0123456789abcdeg"] {
        assert!(is(&served.change(token, eight).await, 401));
    }
    let host = format!("host: {}", served.address);
    let token = format!("authorization: Bearer {TOKEN}");
    let form = [&*host, &*token, "content-type: text/plain"];
    assert!(is(&served.answer("POST /ui/control", &form, eight).await, 415));
    for wrong in [r#"{"set": ["memory=1"]}"#, r#"{"sets": []}"#, "{", r#"{"set": ["hosts=a b"]}"#] {
        assert!(is(&served.change(TOKEN, wrong).await, 400), "{wrong}");
    }
    assert_eq!(Control::read(&store), Ok(Control::default()), "nothing has changed");
    let answer = served.change(TOKEN, r#"{"set": ["batch_size=8", "paused=true"]}"#).await;
    assert!(is(&answer, 200) && answer.contains(r#""batch_size":8"#), "{answer}");
    let expected = Control { batch_size: Some(8), paused: true, ..Control::default() };
    assert_eq!(Control::read(&store), Ok(expected.clone()));
    assert!(is(&served.change(TOKEN, r#"{"cancel": true}"#).await, 200));
    assert_eq!(Control::read(&store), Ok(Control { cancelled: true, ..expected }));
}

#[tokio::test]
async fn metrics_are_those_of_the_worker() {
    let watch = Watch::default();
    let served = Served::with(Some(Worker { watch: watch.clone(), model: "m".to_owned() })).await;
    let before = served.get("/metrics").await;
    assert!(is(&before, 200) && !before.contains("outrigger_batch"), "{before}");
    let worker = "w".to_owned();
    watch.set(Progress { worker, scored: 7, ..Progress::default() });
    let metrics = served.get("/metrics").await;
    assert!(metrics.contains("\noutrigger_batch_rows_scored_total 7\n"), "{metrics}");
    assert!(metrics.contains("worker=\"w\",model=\"m\",output=\""), "{metrics}");
}

#[tokio::test]
async fn a_viewer_gets_the_state_each_second() {
    let served = Served::with(None).await;
    let stream = TcpStream::connect(served.address).await.expect("connected");
    let mut stream = BufReader::new(stream);
    let request = format!("GET /ui/events HTTP/1.1\r\nhost: {}\r\n\r\n", served.address);
    stream.write_all(request.as_bytes()).await.expect("sent");
    let (mut jobs, mut troubled) = (0, false);
    while jobs < 3 || !troubled {
        let mut line = String::new();
        let read = timeout(Duration::from_secs(30), stream.read_line(&mut line)).await;
        assert!(read.expect("an event").expect("readable") > 0, "the stream goes on");
        jobs += usize::from(line.starts_with("event: job"));
        troubled |= line.starts_with("data: ") && line.contains("is not a job");
    }
}

#[tokio::test]
async fn a_listener_without_a_usable_token_or_address_is_refused() {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let token_file = Some("/no/such/token".into());
    let error = Listener::bind(Settings { address, token_file }).await.expect_err("no token");
    assert!(error.to_string().contains("/no/such/token"), "{error}");
    let first = Listener::bind(Settings { address, token_file: None }).await.expect("bound");
    let again = Settings { address: first.address(), token_file: None };
    let error = Listener::bind(again).await.expect_err("the address is in use");
    assert!(error.to_string().contains("listen: 127.0.0.1:"), "{error}");
}
