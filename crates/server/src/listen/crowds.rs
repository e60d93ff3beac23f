//! Crowds of callers over real sockets, whose bodies wait unread.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use outrigger_proto::raw::unary::framed;
use outrigger_testkit::http2;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Semaphore,
    task::{JoinSet, yield_now},
    time::timeout,
};

use super::{
    frames::HEADER,
    messages::{Client, Messages, POST, frame, message, summary},
    tests::Served,
    windows::LEAST_STREAM,
    *,
};

const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;

/// A listener whose messages are read as `gate` permits, with a pool of so many bytes.
fn crowded(gate: &Arc<Semaphore>, pool: u64) -> (Served, Unread) {
    let unread = Unread::of(pool);
    let echo = Router::new().fallback(async |body: Bytes| body).layer(DefaultBodyLimit::disable());
    let app = Messages::behind(gate, echo);
    (Served::sharing(app, Places::new(1024), unread.clone()), unread)
}

pub(super) async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it becomes so");
}

/// Asks with messages of `length` bytes, on so many streams of each connection.
async fn ask_all(served: &Served, (connections, streams): (usize, usize), length: usize) -> Asked {
    let mut asked = JoinSet::new();
    let body: Arc<[u8]> = framed(&message(length)).to_vec().into();
    for _ in 0..connections {
        let client = Arc::new(Client::of(served).await);
        for _ in 0..streams {
            let (client, body) = (Arc::clone(&client), Arc::clone(&body));
            asked.spawn(async move { client.ask("/message", &body, 16 << 10).await });
        }
    }
    asked
}

type Asked = JoinSet<Result<String, h2::Error>>;

/// Reads the messages, a few at a time, until all are answered.
async fn answer_all(asked: &mut Asked, gate: &Semaphore, expected: &str) {
    gate.add_permits(4);
    while let Some(answer) = asked.join_next().await {
        assert_eq!(answer.unwrap().unwrap(), expected);
        gate.add_permits(1);
    }
}

#[tokio::test]
async fn a_crowd_is_held_at_its_senders_and_every_request_is_answered() {
    for (connections, streams) in [(2, 64), (8, 16), (32, 4)] {
        let (gate, pool) = (Arc::new(Semaphore::new(0)), 2 << 20);
        let (served, unread) = crowded(&gate, pool);
        let length = 150_000;
        let mut asked = ask_all(&served, (connections, streams), length).await;
        until(|| unread.used() >= pool / 2).await;
        answer_all(&mut asked, &gate, &summary(&message(length))).await;
        // The shares that connections had when they began, and the least that they may have although
        // the pool is full.
        let share = |number: usize| (pool as usize / number).max(unread::LEAST_SHARE);
        let began: usize = (1..=connections).map(share).sum();
        let own = connections * share(connections).max(streams * LEAST_STREAM);
        let (peak, most) = (unread.peak() as usize, began + own);
        assert!(peak <= most, "{peak} of {most} on {connections} connections");
        assert_eq!(unread.used(), 0);
    }
}

#[tokio::test]
async fn messages_that_are_read_late_use_up_no_window_for_ever() {
    let gate = Arc::new(Semaphore::new(0));
    let (served, _) = crowded(&gate, 1 << 30);
    let client = Client::of(&served).await;
    let one = message(6 << 20);
    // More than the window of the connection, and each more than the window of a stream.
    let asked = (0..12).map(|_| client.ask("/message", one_framed(&one), 16 << 10));
    let all = futures::future::join_all(asked);
    let opened = async {
        // The windows are full when nothing more is sent for a time; nothing depends on that.
        tokio::task::yield_now().await;
        gate.add_permits(12);
    };
    for answer in futures::join!(all, opened).0 {
        assert_eq!(answer.unwrap(), summary(&one));
    }
}

/// The message with its prefix; it lives as long as the test.
fn one_framed(message: &[u8]) -> &'static [u8] {
    Vec::leak(framed(message).to_vec())
}

#[tokio::test]
async fn a_message_that_is_read_gets_on_while_others_fill_the_windows() {
    let (gate, pool) = (Arc::new(Semaphore::new(0)), 512 << 10);
    let (served, unread) = crowded(&gate, pool);
    let client = Client::of(&served).await;
    let others = framed(&message(300_000));
    let waiting = (0..20).map(|_| client.ask("/message", &others, 16 << 10));
    let waiting = futures::future::join_all(waiting);
    let reading = async {
        until(|| unread.used() >= pool / 2).await;
        let now = message(1_000_000);
        for _ in 0..3 {
            let answer = client.ask("/message/now", &framed(&now), 16 << 10).await.unwrap();
            assert_eq!(answer, summary(&now));
            let body = "x".repeat(300_000);
            assert_eq!(client.ask("/other", body.as_bytes(), 16 << 10).await.unwrap(), body);
        }
        assert_eq!(
            client.ask("/message/refused", &framed(&now), 16 << 10).await.unwrap(),
            "refused"
        );
        gate.add_permits(20);
    };
    let (answers, ()) = timeout(PATIENCE, async { tokio::join!(waiting, reading) }).await.unwrap();
    for answer in answers {
        assert_eq!(answer.unwrap(), summary(&message(300_000)));
    }
    assert_eq!(unread.used(), 0);
}

#[tokio::test]
async fn a_connection_whose_caller_has_no_part_in_the_crowd_is_served() {
    let (gate, pool) = (Arc::new(Semaphore::new(0)), 256 << 10);
    let (served, unread) = crowded(&gate, pool);
    let mut asked = ask_all(&served, (4, 16), 300_000).await;
    until(|| unread.used() >= pool).await;
    let client = Client::of(&served).await;
    let now = message(1_000_000);
    let body = framed(&now);
    for _ in 0..3 {
        let answer = client.ask("/message/now", &body, 16 << 10);
        assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap(), summary(&now));
    }
    answer_all(&mut asked, &gate, &summary(&message(300_000))).await;
}

#[tokio::test]
async fn requests_that_are_given_up_free_the_pool() {
    let (gate, pool) = (Arc::new(Semaphore::new(0)), 1_u64 << 30);
    let (served, unread) = crowded(&gate, pool);
    let asked = ask_all(&served, (4, 16), 300_000).await;
    until(|| unread.used() >= 1 << 20).await;
    drop(asked);
    until(|| unread.used() == 0).await;
}

/// A client that sends raw frames.
struct Raw(TcpStream);

impl Raw {
    async fn of(served: &Served) -> Self {
        let mut raw = Self(served.connect().await);
        raw.0.write_all(http2::HELLO).await.unwrap();
        raw.until(SETTINGS, ACK).await;
        raw.send(&[frame(SETTINGS, ACK, 0, &[])]).await;
        raw.ping().await;
        raw
    }

    /// Waits until the server has taken in what was sent.
    async fn ping(&mut self) {
        self.send(&[frame(PING, 0, 0, &[7; 8])]).await;
        assert_eq!(self.until(PING, ACK).await.payload, [7; 8]);
    }

    async fn send(&mut self, frames: &[Vec<u8>]) {
        self.0.write_all(&frames.concat()).await.unwrap();
    }

    /// The next frame; `None` if the server has ended the connection.
    async fn next(&mut self) -> Option<Received> {
        let reading = async {
            let mut header = [0; HEADER];
            self.0.read_exact(&mut header).await.ok()?;
            let [a, b, c, kind, flags, stream @ ..] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            Some(Received { kind, flags, stream: u32::from_be_bytes(stream), payload })
        };
        timeout(PATIENCE, reading).await.expect("a frame in time")
    }

    /// Reads up to a frame of this kind.
    async fn until(&mut self, kind: u8, flags: u8) -> Received {
        loop {
            let received = self.next().await.expect("the connection is open");
            if (received.kind, received.flags) == (kind, flags) {
                return received;
            }
        }
    }
}

/// A frame of the server.
struct Received {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

#[tokio::test]
async fn in_calm_no_update_of_a_window_is_needed() {
    let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let (served, _) = crowded(&gate, 1 << 30);
    let mut raw = Raw::of(&served).await;
    let message = framed(&message(1_000_000));
    let mut frames = vec![frame(1, 4, 1, POST)];
    frames.extend(message.chunks(16 << 10).map(|piece| frame(0, 0, 1, piece)));
    frames.push(frame(0, 1, 1, &[]));
    raw.send(&frames).await;
    let received = raw.next().await.unwrap();
    assert_eq!((received.kind, received.stream), (1, 1), "the answer comes first");
}

#[tokio::test]
async fn lower_windows_hold_after_their_acknowledgement() {
    let gate = Arc::new(Semaphore::new(0));
    let (served, unread) = crowded(&gate, 256 << 10);
    // With another connection, the share is half of the pool, which does not become full.
    let _other = Raw::of(&served).await;
    let mut raw = Raw::of(&served).await;
    let data = |bytes: usize| frame(0, 0, 1, &vec![0; bytes]);
    raw.send(&[frame(1, 4, 1, POST), frame(0, 0, 1, &framed(&[0; 99_000])[..90_000])]).await;
    let lower = raw.until(SETTINGS, 0).await;
    assert_eq!(lower.payload[..2], [0, 4], "SETTINGS_INITIAL_WINDOW_SIZE");
    // The connection's window has 128 KiB.
    let more = (128 << 10) - 90_000;
    raw.send(&[data(more)]).await;
    raw.ping().await;
    assert_eq!(unread.used(), 128 << 10);
    raw.send(&[frame(SETTINGS, ACK, 0, &[]), data(1)]).await;
    while raw.next().await.is_some() {}
    until(|| unread.used() == 0).await;
}

#[tokio::test]
async fn windows_open_when_the_message_is_read() {
    let gate = Arc::new(Semaphore::new(0));
    let (served, _) = crowded(&gate, 256 << 10);
    let _other = Raw::of(&served).await;
    let mut raw = Raw::of(&served).await;
    let whole = framed(&message(130_000));
    raw.send(&[frame(1, 4, 1, POST), frame(0, 0, 1, &whole[..70_000])]).await;
    raw.until(SETTINGS, 0).await;
    raw.send(&[frame(SETTINGS, ACK, 0, &[])]).await;
    raw.ping().await;
    gate.add_permits(1);
    let mut updates = std::collections::HashMap::new();
    while updates.len() < 2 {
        let received = raw.next().await.unwrap();
        if received.kind == WINDOW_UPDATE {
            let bytes = u32::from_be_bytes(received.payload.try_into().unwrap());
            updates.insert(received.stream, bytes);
        }
    }
    assert_eq!(updates, [(0, 70_000), (1, 70_000)].into(), "what was read");
    raw.send(&[frame(0, 1, 1, &whole[70_000..])]).await;
    raw.until(1, 4).await;
}
