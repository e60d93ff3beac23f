use axum::{
    extract::DefaultBodyLimit,
    http::{Request, Response, StatusCode},
};
use h2::{Ping, Reason, SendStream, client};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use outrigger_testkit::http2::{self, Announced};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Handle,
    task::{JoinHandle, JoinSet},
    time::{Instant, timeout},
};

use super::{unread::LEAST_SHARE, *};

const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// A running listener that answers with `app`.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

impl Served {
    pub(super) fn by(app: impl App) -> Self {
        Self::with(app, Places::new(1024))
    }

    fn with(app: impl App, places: Places) -> Self {
        Self::sharing(app, places, Unread::of(1 << 30))
    }

    pub(super) fn sharing(app: impl App, places: Places, unread: Unread) -> Self {
        let listener =
            Listener::bind("http", ([127, 0, 0, 1], 0).into(), None, SEND_TIMEOUT).unwrap();
        let (address, stop) = (listener.address().unwrap(), CancellationToken::new());
        let seats = Seats::on([Handle::current()]);
        let serving = tokio::spawn(listener.serve(app, seats, places, unread, stop.clone()));
        Self { address, stop, serving }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_says_nothing_is_let_go() {
    let served = Served::by(Router::new());
    let mut silent = served.connect().await;
    let read = timeout(HEADERS_TIMEOUT * 2, silent.read(&mut [0])).await;
    assert_eq!(read.expect("the server hangs up").unwrap(), 0);
    let _silent = served.connect().await;
    served.stop.cancel();
    served.serving.await.unwrap().expect("it does not wait for those who say nothing");
}

#[tokio::test]
async fn the_server_announces_its_flow_control_windows() {
    let served = Served::by(Router::new());
    let mut caller = served.connect().await;
    caller.write_all(http2::HELLO).await.unwrap();
    let expected = Announced {
        stream_window: Some(STREAM_WINDOW),
        connection_window: CONNECTION_WINDOW,
        frame: Some(FRAME),
        headers: Some(HEADERS),
        streams: Some(STREAMS),
    };
    assert_eq!(http2::of_server(&mut caller).await.unwrap(), expected);
}

#[tokio::test]
async fn requests_as_large_as_the_windows_are_sent_without_waiting() {
    let length = async |body: Bytes| body.len().to_string();
    let served = Served::by(Router::new().fallback(length).layer(DefaultBodyLimit::disable()));
    let mut builder = client::Builder::new();
    builder.max_send_buffer_size(STREAM_WINDOW as usize);
    let (mut sender, mut connection) =
        builder.handshake::<_, Bytes>(served.connect().await).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let connection = tokio::spawn(connection);
    // The ping returns after the server's settings have arrived.
    pings.ping(Ping::opaque()).await.unwrap();
    let mut begun = Vec::new();
    for _ in 0..CONNECTION_WINDOW / STREAM_WINDOW {
        let request = Request::post(format!("http://{}/", served.address)).body(()).unwrap();
        let (answer, mut body) = sender.send_request(request, false).unwrap();
        body.reserve_capacity(STREAM_WINDOW as usize);
        let room = std::future::poll_fn(|context| body.poll_capacity(context)).await;
        assert_eq!(room.unwrap().unwrap(), STREAM_WINDOW as usize, "before anything is sent");
        begun.push((answer, body));
    }
    for (answer, mut body) in begun {
        body.send_data(vec![0; STREAM_WINDOW as usize].into(), true).unwrap();
        let mut answer = answer.await.unwrap().into_body();
        assert_eq!(answer.data().await.unwrap().unwrap(), STREAM_WINDOW.to_string());
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}

/// Sends a request that is answered before its body; returns the open body. The connection lives as
/// long as the returned set.
async fn answered(served: &Served) -> (SendStream<Bytes>, JoinSet<()>) {
    let (mut sender, connection) = client::handshake(served.connect().await).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(async { connection.await.unwrap() });
    let request = Request::post(format!("http://{}/", served.address)).body(()).unwrap();
    let (answer, body) = sender.send_request(request, false).unwrap();
    assert_eq!(answer.await.unwrap().status(), StatusCode::NOT_FOUND);
    (body, driver)
}

async fn reset(body: &mut SendStream<Bytes>) -> Reason {
    std::future::poll_fn(|context| body.poll_reset(context)).await.unwrap()
}

#[tokio::test]
async fn a_body_after_its_answer_is_taken_in_until_it_is_too_long() {
    let served = Served::by(Router::new());
    let (mut body, _driver) = answered(&served).await;
    let mut sent = 0;
    body.reserve_capacity(FRAME as usize);
    while let Some(room) = std::future::poll_fn(|context| body.poll_capacity(context)).await {
        let piece = vec![0; room.unwrap()];
        sent += piece.len();
        body.send_data(piece.into(), false).unwrap();
        body.reserve_capacity(FRAME as usize);
    }
    assert_eq!(reset(&mut body).await, Reason::NO_ERROR);
    assert!(sent >= arriving::MOST, "after {sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_body_after_its_answer_is_not_waited_for_for_ever() {
    let served = Served::by(Router::new());
    let (mut body, _driver) = answered(&served).await;
    let answered = Instant::now();
    let reset = timeout(arriving::LONGEST * 2, reset(&mut body)).await;
    assert_eq!(reset.expect("it is over"), Reason::NO_ERROR);
    assert!(answered.elapsed() >= arriving::LONGEST, "after {:?}", answered.elapsed());
}

/// A client whose connection task returns when the server has ended the connection.
async fn polite(
    served: &Served,
) -> (client::SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let (sender, connection) = client::handshake(served.connect().await).await.unwrap();
    (sender, tokio::spawn(connection))
}

#[tokio::test]
async fn idle_connections_give_way_to_new_ones_with_a_goaway() {
    let served = Served::with(Router::new(), Places::new(8));
    let (_idle, told) = polite(&served).await;
    let ask = async |sender: client::SendRequest<Bytes>| {
        let request = Request::get(format!("http://{}/", served.address)).body(()).unwrap();
        let (answer, _) = sender.ready().await.unwrap().send_request(request, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), StatusCode::NOT_FOUND);
    };
    // A request of its own is not needed to be the longest idle one.
    let mut others = Vec::new();
    while others.len() < 100 {
        let (sender, connection) = polite(&served).await;
        ask(sender.clone()).await;
        others.push((sender, connection));
    }
    let told = told.await.unwrap();
    told.expect("an orderly end: GOAWAY without an error");
    let open = others.iter().filter(|(_, connection)| !connection.is_finished()).count();
    assert!((1..=10).contains(&open), "{open}");
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let served = Served::with(Router::new(), Places::new(8));
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(served.connect().await);
        let (sender, _connection) = polite(&served).await;
        sender.ready().await.expect("a connection that is served");
    }
}

/// Reads the body of a request for `/read`, and leaves that of any other unread.
async fn reads_some(request: Request<Incoming>) -> Result<Response<String>, hyper::Error> {
    if request.uri().path() == "/read" {
        request.into_body().collect().await?;
        return Ok(Response::new(String::new()));
    }
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_body_over_http1_stays_with_its_sender_until_it_is_read() {
    const LENGTH: usize = 4 << 20;
    const PIPE: usize = 1 << 20;
    for (share, most) in [(LEAST_SHARE, HEADERS as usize), (4 << 20, HTTP1_BUFFER)] {
        let (mut caller, server) = tokio::io::duplex(PIPE);
        let serving = async move {
            let builder = with_windows(protocol(), share);
            builder.serve_connection(TokioIo::new(server), service_fn(reads_some)).await.ok();
        };
        tokio::spawn(serving);
        let head =
            |path| format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n");
        // Bytes that come fast make hyper read more at once.
        caller.write_all(head("/read").as_bytes()).await.unwrap();
        caller.write_all(&vec![0; LENGTH]).await.unwrap();
        let mut answer = [0; 15];
        caller.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        caller.write_all(head("/wait").as_bytes()).await.unwrap();
        let (mut sent, body) = (0, vec![0; LENGTH]);
        // The time passes when nothing else can happen.
        while let Ok(written) = timeout(Duration::from_secs(1), caller.write(&body[sent..])).await {
            sent += written.unwrap();
        }
        assert!(sent <= most + PIPE, "{sent} > {most}");
    }
}

/// hyper panics when it writes a date beyond the year 9999.
#[tokio::test]
async fn answers_have_no_date() {
    let served = Served::by(Router::new());
    let mut caller = served.connect().await;
    caller.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    caller.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404") && !answer.contains("date:"), "{answer}");
    let (mut sender, connection) = client::handshake(served.connect().await).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(async { connection.await.unwrap() });
    let request = Request::get(format!("http://{}/", served.address)).body(()).unwrap();
    let (answer, _) = sender.send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().headers().get("date"), None);
}
