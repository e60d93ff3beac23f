//! Messages over real sockets, in frames of every kind.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use axum::body::Body as AnyBody;
use h2::{Reason, client};
use outrigger_budget::Budget;
use outrigger_core::Failure;
use outrigger_proto::raw::unary::{Bounds, PREFIX, framed};
use outrigger_testkit::http2;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use super::{tests::Served, *};
use crate::held::Held;

/// The longest message of the application.
const LIMIT: usize = 12 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// An application that reads messages under `/message`, and leaves other paths to a router.
#[derive(Clone)]
pub(super) struct Messages {
    router: Router,
    budget: Budget,
    /// A permit for each message that may be read.
    gate: Arc<Semaphore>,
    /// The bytes that the last message was charged for.
    charged: Arc<AtomicU64>,
}

impl Messages {
    pub(super) fn beside(router: Router) -> Self {
        let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { router, budget: Budget::new(1 << 30), gate, charged: Arc::default() }
    }

    /// The same, which reads a message for each permit of `gate`.
    pub(super) fn behind(gate: &Arc<Semaphore>, router: Router) -> Self {
        Self { gate: Arc::clone(gate), ..Self::beside(router) }
    }

    async fn read(&self, request: Request<Arriving>) -> Result<Bytes, Failure> {
        if request.uri().path() != "/message/now" {
            self.gate.acquire().await.unwrap().forget();
        }
        let held = Held::on(&self.budget);
        let message = request.into_body().message(&held, Bounds::plain(LIMIT)).await?;
        self.charged.store(self.budget.requests.used(), SeqCst);
        Ok(message.bytes)
    }
}

impl App for Messages {
    type Body = AnyBody;

    const IS_DIRECT: bool = true;

    async fn answer(self, peer: Peer, request: Request<Arriving>) -> Response<AnyBody> {
        match request.uri().path() {
            "/message/refused" => Response::new(AnyBody::from("refused")),
            "/message" | "/message/now" => {
                Response::new(AnyBody::from(match self.read(request).await {
                    Ok(message) => summary(&message),
                    Err(failure) => failure.message,
                }))
            }
            _ => self.router.answer(peer, request).await,
        }
    }
}

/// The length of a message, and a sum over the places of its bytes.
pub(super) fn summary(message: &[u8]) -> String {
    let sum = message.iter().enumerate().fold(0_u64, |sum, (at, byte)| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte) + at as u64)
    });
    format!("{} bytes, {sum:x}", message.len())
}

pub(super) fn message(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

fn served() -> Served {
    let echo = async |body: Bytes| body;
    Served::by(Messages::beside(Router::new().fallback(echo)))
}

pub(super) struct Client {
    sender: client::SendRequest<Bytes>,
    address: SocketAddr,
    _driver: JoinSet<()>,
}

impl Client {
    pub(super) async fn of(served: &Served) -> Self {
        let mut builder = client::Builder::new();
        builder.max_send_buffer_size(64 << 20);
        let (sender, connection) = builder.handshake(served.connect().await).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async { drop(connection.await) });
        Self { sender, address: served.address, _driver: driver }
    }

    /// Sends a body in pieces; returns the answer.
    pub(super) async fn ask(
        &self,
        path: &str,
        body: &[u8],
        piece: usize,
    ) -> Result<String, h2::Error> {
        self.ask_with(path, &[], body, piece).await
    }

    pub(super) async fn ask_with(
        &self,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
        piece: usize,
    ) -> Result<String, h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let mut request = Request::post(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let (answer, mut stream) = sender.send_request(request.body(()).unwrap(), false)?;
        for piece in body.chunks(piece) {
            stream.send_data(Bytes::copy_from_slice(piece), false)?;
        }
        stream.send_data(Bytes::new(), true)?;
        let mut answer = timeout(PATIENCE, answer).await.expect("an answer in time")?.into_body();
        let mut all = Vec::new();
        while let Some(data) = answer.data().await {
            let data = data?;
            answer.flow_control().release_capacity(data.len())?;
            all.extend_from_slice(&data);
        }
        Ok(String::from_utf8(all).unwrap())
    }
}

#[tokio::test]
async fn a_message_takes_exactly_its_length_whatever_its_frames() {
    let app = Messages::beside(Router::new());
    let charged = Arc::clone(&app.charged);
    let served = Served::by(app);
    let client = Client::of(&served).await;
    for (length, frame) in [
        (95_000, 16 << 10),
        (640_000, 16 << 10),
        (3_000_000, 1000),
        (640_000, 1 << 20),
        (3_000_000, 1 << 20),
        (LIMIT, 16 << 10),
        // Single bytes count as a flood, so there can be few.
        (3_000, 1),
    ] {
        let message = message(length);
        let answer = client.ask("/message", &framed(&message), frame).await.unwrap();
        assert_eq!(answer, summary(&message), "in frames of {frame}");
        // Frames that were kept, or a buffer that grew beyond the message, would be more.
        let expected = (PREFIX + length) as u64;
        assert_eq!(charged.load(SeqCst), expected, "{length} bytes in frames of {frame}");
    }
}

#[tokio::test]
async fn messages_of_many_streams_at_once_stay_apart() {
    let served = served();
    let client = Client::of(&served).await;
    let asked = (0..60).map(|number| {
        let client = &client;
        async move {
            let message = message(number * 40_000);
            let frame = [1000, 16 << 10, 1 << 20][number % 3];
            let answer = client.ask("/message", &framed(&message), frame).await.unwrap();
            assert_eq!(answer, summary(&message), "{number}");
        }
    });
    futures::future::join_all(asked).await;
}

#[tokio::test]
async fn bodies_that_are_no_messages_pass_as_they_are() {
    let served = served();
    let client = Client::of(&served).await;
    for length in [0, 1, 5, 100_000] {
        let body = "x".repeat(length);
        for piece in [7_000, 1 << 20] {
            assert_eq!(client.ask("/other", body.as_bytes(), piece).await.unwrap(), body);
        }
        let whole = framed(body.as_bytes());
        let length = [("content-length", whole.len().to_string())];
        let answer = client.ask_with("/message", &length, &whole, 7_000).await.unwrap();
        assert_eq!(answer, summary(body.as_bytes()), "a body with its length in the headers");
    }
}

#[tokio::test]
async fn unreadable_messages_are_refused() {
    let served = served();
    let client = Client::of(&served).await;
    let size = u32::try_from(LIMIT + 1).unwrap().to_be_bytes();
    let large = [&[0][..], &size, &[0; 1000]].concat();
    let with_more = [&framed(b"ab")[..], b"c"].concat();
    for (body, expected) in [
        (&b""[..], "the body ended before the message did"),
        (b"\0\0\0", "the body ended before the message did"),
        (b"\0\0\0\0\x04abc", "the body ended before the message did"),
        (b"\x01\0\0\0\x02ab", "the message is compressed"),
        (&with_more, "more than one message"),
        (&large, "at most 12582912 are allowed"),
    ] {
        for piece in [1, 1 << 20] {
            let answer = client.ask("/message", body, piece).await.unwrap();
            assert!(answer.contains(expected), "{answer} for {body:?}");
        }
    }
    assert_eq!(client.ask("/message", &framed(b"ab"), 2).await.unwrap(), summary(b"ab"));
}

#[tokio::test]
async fn a_message_without_room_in_the_budget_is_refused_as_it_arrives() {
    let budget = Budget::new(48 << 20);
    let app = Messages { budget: budget.clone(), ..Messages::beside(Router::new()) };
    let served = Served::by(app);
    let client = Client::of(&served).await;
    let answer = client.ask("/message", &framed(&message(10 << 20)), 16 << 10).await.unwrap();
    assert!(answer.contains("of memory are more than one may take"), "{answer}");
    let small = message(1 << 20);
    assert_eq!(client.ask("/message", &framed(&small), 1000).await.unwrap(), summary(&small));
    assert_eq!(budget.requests.used(), 0);
}

#[tokio::test]
async fn a_refused_request_does_not_hold_up_others() {
    let served = served();
    let client = Client::of(&served).await;
    let large = framed(&message(3 << 20));
    for _ in 0..40 {
        let refused = client.ask("/message/refused", &large, 16 << 10).await.unwrap();
        assert_eq!(refused, "refused");
    }
    let small = message(100_000);
    assert_eq!(client.ask("/message", &framed(&small), 16 << 10).await.unwrap(), summary(&small));
}

/// A frame of this kind.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a POST to `/message`, in HPACK.
pub(super) const POST: &[u8] = b"\x83\x86\x04\x08/message\x01\x01a";

/// Sends raw frames after the begin of a connection; returns what the server sends until it ends
/// the connection, or until `enough`.
pub(super) async fn converse(served: &Served, sent: &[u8], enough: &[u8]) -> Option<Vec<u8>> {
    let mut stream = served.connect().await;
    let (mut reader, mut writer) = stream.split();
    let sent = [http2::HELLO, sent].concat();
    let mut received = Vec::new();
    let reading = async {
        while reader.read_buf(&mut received).await.is_ok_and(|read| read > 0) {
            if !enough.is_empty() && received.windows(enough.len()).any(|part| part == enough) {
                break;
            }
        }
    };
    // The server may end the connection before it has read everything.
    let both = async { tokio::join!(reading, writer.write_all(&sent)) };
    timeout(PATIENCE, both).await.ok().map(|_| received)
}

#[tokio::test]
async fn padding_is_no_part_of_a_message() {
    let served = served();
    let message = message(3000);
    let mut sent = frame(1, 4, 1, POST);
    for (number, piece) in framed(&message).chunks(500).enumerate() {
        let padding = number * 20;
        let padded = [&[padding as u8][..], piece, &vec![0; padding]].concat();
        sent.extend(frame(0, 8, 1, &padded));
    }
    sent.extend(frame(0, 1, 1, &[]));
    let answer = summary(&message);
    let received = converse(&served, &sent, answer.as_bytes()).await.unwrap();
    assert!(String::from_utf8_lossy(&received).contains(&answer));
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_the_connection() {
    let served = served();
    let begun = frame(1, 4, 1, POST);
    let endless = [0, 0x7f, 0xff, 0xff, 0xff];
    let cases: [(&str, Vec<u8>); 5] = [
        ("more padding than bytes", frame(0, 8, 1, &[9, 0])),
        ("padding without its length", frame(0, 8, 1, &[])),
        ("data of a stream that never began", frame(0, 0, 7, &[0; 40])),
        ("more than the window", frame(0, 0, 1, &[0; 1 << 16])),
        ("data amid headers", [frame(1, 0, 3, POST), frame(0, 0, 1, &endless)].concat()),
    ];
    for (name, frames) in cases {
        let sent = [&begun[..], &frames].concat();
        // The connection ends by itself.
        assert!(converse(&served, &sent, &[]).await.is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_leaves_others_alone() {
    let served = served();
    let whole = framed(b"scores");
    let cancel = frame(3, 0, 1, &u32::from(Reason::CANCEL).to_be_bytes());
    let sent = [
        frame(1, 4, 1, POST),
        frame(0, 0, 1, &whole[..8]),
        frame(1, 4, 3, POST),
        frame(0, 0, 3, &whole[..PREFIX]),
        cancel,
        frame(0, 1, 3, &whole[PREFIX..]),
    ];
    let answer = summary(b"scores");
    let received = converse(&served, &sent.concat(), answer.as_bytes()).await.unwrap();
    assert!(String::from_utf8_lossy(&received).contains(&answer));
}

#[tokio::test]
async fn http1_is_served_beside_messages() {
    let served = served();
    let mut stream = served.connect().await;
    let request =
        "POST /other HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    for part in [&request[..1], &request[1..]] {
        stream.write_all(part.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
}
