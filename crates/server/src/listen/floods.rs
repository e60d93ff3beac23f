//! Floods of HTTP/2 frames over real sockets, and traffic that looks similar.

use std::future::pending;

use axum::routing::{any, get};
use h2::client;
use outrigger_testkit::http2;
use tokio::{
    io::{AsyncWriteExt as _, copy, sink},
    net::tcp::OwnedWriteHalf,
    time::timeout,
};

use super::{messages::Messages, tests::Served, *};

/// Far more frames than may be unpaid.
const MANY: usize = 100_000;
const BATCH: usize = 256;

/// Makes the next frames of a flood from the number of those before.
type Frames = Box<dyn Fn(usize) -> Vec<u8>>;

/// A frame of this kind.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a POST to `/hold`, in HPACK.
const POST: &[u8] = b"\x83\x86\x04\x05/hold\x01\x01a";

fn application() -> Router {
    let held = |body: Bytes| async move { pending::<String>().await + &format!("{body:?}") };
    Router::new()
        .route("/hold", any(held))
        .route("/answer", any(|_: Bytes| async { "answer" }))
        .route("/long", get(|| async { vec![0_u8; 64 << 20] }))
}

/// Sends frames until the server ends the connection; returns how many it took in, about.
async fn flood(app: impl App, begin: &[u8], frames: &Frames) -> Option<usize> {
    let served = Served::by(app);
    let (mut reader, mut writer) = served.connect().await.into_split();
    let reading = tokio::spawn(async move { copy(&mut reader, &mut sink()).await });
    writer.write_all(&[http2::HELLO, begin].concat()).await.unwrap();
    let sending = async {
        for at in 0..MANY / BATCH {
            let batch: Vec<u8> = (at * BATCH..(at + 1) * BATCH).flat_map(&frames).collect();
            if send(&mut writer, &batch).await.is_err() {
                return Some(at * BATCH);
            }
        }
        None
    };
    let ended = timeout(Duration::from_secs(60), sending).await.expect("no flood is waited for");
    reading.abort();
    ended
}

async fn send(writer: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    tokio::task::yield_now().await;
    Ok(())
}

#[tokio::test]
async fn a_flood_of_frames_of_any_kind_ends_its_connection() {
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    let open = frame(1, END_HEADERS, 1, POST);
    let half_open = frame(1, 0, 1, POST);
    let reset = |at: usize| {
        let stream = u32::try_from(2 * at + 1).unwrap();
        let cancel = 8_u32.to_be_bytes();
        [frame(1, END_HEADERS | END_STREAM, stream, POST), frame(3, 0, stream, &cancel)].concat()
    };
    let same = |bytes: Vec<u8>| move |_: usize| bytes.clone();
    let floods: Vec<(&str, &[u8], Frames)> = vec![
        ("PING", &[], Box::new(same(frame(6, 0, 0, &[0; 8])))),
        ("PING answers", &[], Box::new(same(frame(6, 1, 0, &[0; 8])))),
        ("SETTINGS", &[], Box::new(same(frame(4, 0, 0, &[])))),
        ("WINDOW_UPDATE", &[], Box::new(same(frame(8, 0, 0, &[0, 0, 0, 1])))),
        ("PRIORITY", &[], Box::new(same(frame(2, 0, 1, &[0, 0, 0, 0, 9])))),
        ("unknown", &[], Box::new(same(frame(99, 0, 0, &[])))),
        ("empty DATA", &open, Box::new(same(frame(0, 0, 1, &[])))),
        ("padding", &open, Box::new(same(frame(0, 8, 1, &[1, 0])))),
        ("CONTINUATION", &half_open, Box::new(same(frame(9, 0, 1, &[])))),
        ("rapid reset", &[], Box::new(reset)),
    ];
    for (name, begin, frames) in floods {
        // The number includes what was in the sockets' buffers when the connection ended.
        let ended = |taken: Option<usize>| taken.is_some_and(|taken| taken < MANY / 2);
        let taken = flood(application(), begin, &frames).await;
        assert!(ended(taken), "{name}: {taken:?}");
        let taken = flood(Messages::beside(application()), begin, &frames).await;
        assert!(ended(taken), "{name}, messages: {taken:?}");
    }
}

/// A client of the crate h2 with its connection, which ends with the returned task.
async fn connect(served: &Served) -> (client::SendRequest<Bytes>, tokio::task::JoinSet<()>) {
    let (sender, connection) = client::handshake(served.connect().await).await.unwrap();
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move { connection.await.unwrap() });
    (sender, driver)
}

fn request(served: &Served, path: &str) -> Request<()> {
    Request::get(format!("http://{}{path}", served.address)).body(()).unwrap()
}

#[tokio::test]
async fn many_requests_with_small_bodies_are_no_flood() {
    let served = Served::by(Messages::beside(application()));
    let (sender, _driver) = connect(&served).await;
    for _ in 0..5000 {
        let mut sender = sender.clone().ready().await.unwrap();
        let (answer, mut body) = sender.send_request(request(&served, "/answer"), false).unwrap();
        for end in [false, false, true] {
            body.send_data(Bytes::from_static(b"a"), end).unwrap();
        }
        answer.await.unwrap();
    }
}

#[tokio::test]
async fn the_updates_of_windows_for_a_long_answer_are_no_flood() {
    let served = Served::by(Messages::beside(application()));
    let (sender, _driver) = connect(&served).await;
    for _ in 0..4 {
        let mut sender = sender.clone().ready().await.unwrap();
        let (answer, _) = sender.send_request(request(&served, "/long"), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        let mut received = 0;
        while let Some(piece) = body.data().await {
            let length = piece.unwrap().len();
            received += length;
            // The smallest updates that there are: one for each frame.
            body.flow_control().release_capacity(length).unwrap();
        }
        assert_eq!(received, 64 << 20);
    }
}
