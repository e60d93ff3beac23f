use axum::extract::DefaultBodyLimit;
use h2::{Ping, client};
use outrigger_testkit::http2::{self, Announced};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Handle,
    task::JoinHandle,
};

use super::*;

/// A listener that answers with `app`.
struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

impl Served {
    fn by(app: Router) -> Self {
        let listener = Listener::bind("http", ([127, 0, 0, 1], 0).into(), None).unwrap();
        let (address, stop) = (listener.address().unwrap(), CancellationToken::new());
        let seats = Seats::on([Handle::current()]);
        let serving = tokio::spawn(listener.serve(app, seats, stop.clone()));
        Self { address, stop, serving }
    }

    async fn connect(&self) -> TcpStream {
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
async fn callers_are_told_how_much_they_may_send_at_once() {
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
    // What the server announces comes before.
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
