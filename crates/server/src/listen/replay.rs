//! Replays the bytes of a client, and records the reaction of a server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use h2::{RecvStream, SendStream, server};
use http::Response;
use outrigger_proto::raw::unary;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex},
    time::sleep,
};

/// The bytes that fit between client and server.
const PIPE: usize = 64 << 10;
/// The longest message.
pub(crate) const LIMIT: usize = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;

/// The requests that reached the application: paths, and messages or errors.
pub(crate) type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// The reaction of a server to a replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) requests: Vec<(String, String)>,
    pub(crate) answers: BTreeMap<u32, Answer>,
    /// The frames that were acknowledged, by kind.
    pub(crate) acknowledged: BTreeMap<u8, usize>,
    /// The code with which the connection ended.
    pub(crate) ended: Option<u32>,
}

/// The frames that a server sent on a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) headers: usize,
    pub(crate) data: Vec<u8>,
    pub(crate) is_ended: bool,
    /// The code with which it was reset.
    pub(crate) reset: Option<u32>,
}

impl Outcome {
    fn of(mut requests: Vec<(String, String)>, mut sent: &[u8]) -> Self {
        requests.sort();
        let mut outcome = Self { requests, ..Self::default() };
        while let Some((&[a, b, c, kind, flags, ref stream @ ..], rest)) =
            sent.split_first_chunk::<9>()
        {
            let (payload, rest) = rest.split_at(u32::from_be_bytes([0, a, b, c]) as usize);
            outcome.add(kind, flags, u32::from_be_bytes(*stream), payload);
            sent = rest;
        }
        outcome
    }

    fn add(&mut self, kind: u8, flags: u8, stream: u32, mut payload: &[u8]) {
        match kind {
            DATA | HEADERS => {
                let answer = self.answers.entry(stream).or_default();
                answer.is_ended |= flags & END_STREAM != 0;
                match kind {
                    DATA => answer.data.extend_from_slice(payload),
                    _ => answer.headers += 1,
                }
            }
            RST_STREAM => self.answers.entry(stream).or_default().reset = Some(payload.get_u32()),
            GOAWAY => self.ended = Some((&payload[4..]).get_u32()),
            SETTINGS | PING if flags & ACK != 0 => {
                *self.acknowledged.entry(kind).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// Gives a server what a client sent, in pieces, each when it has done all it can with the one before.
/// The clock must be paused: time passes when nothing else can happen.
pub(crate) async fn replay<F>(
    pieces: &[&[u8]],
    serve: impl FnOnce(DuplexStream, Requests) -> F,
) -> Outcome
where
    F: Future<Output = ()> + Send + 'static,
{
    let (client, server) = duplex(PIPE);
    let requests = Requests::default();
    let serving = tokio::spawn(serve(server, Arc::clone(&requests)));
    let (mut reader, mut writer) = tokio::io::split(client);
    let reading = tokio::spawn(async move {
        let mut sent = Vec::new();
        reader.read_to_end(&mut sent).await.map(|_| sent)
    });
    for piece in pieces {
        // The server may have ended the connection.
        let _ = writer.write_all(piece).await;
        sleep(Duration::from_millis(1)).await;
    }
    let _ = writer.shutdown().await;
    serving.await.expect("the server does not panic");
    let sent = reading.await.expect("the reader does not panic").expect("a pipe");
    let requests = std::mem::take(&mut *requests.lock().expect("no panic"));
    Outcome::of(requests, &sent)
}

/// The smallest server on h2: it reads the message of each request, and answers with its length and a
/// sum.
pub(crate) async fn alone<S>(stream: S, builder: server::Builder, requests: Requests)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let requests = Arc::clone(&requests);
        tokio::spawn(async move {
            let (head, body) = request.into_parts();
            let answer = answered(read(body).await, head.uri.path(), &requests);
            if let Ok(stream) = respond.send_response(Response::new(()), false) {
                // The peer may have reset the stream.
                let _ = send(stream, answer);
            }
        });
    }
}

fn send(mut stream: SendStream<Bytes>, answer: String) -> Result<(), h2::Error> {
    stream.send_data(answer.into(), true)
}

/// Records a request; returns the answer to it.
pub(crate) fn answered(message: Result<Bytes, String>, path: &str, requests: &Requests) -> String {
    let answer = message.map_or_else(|error| error, |message| summary(&message));
    requests.lock().expect("no panic").push((path.to_owned(), answer.clone()));
    answer
}

async fn read(mut body: RecvStream) -> Result<Bytes, String> {
    let mut message = unary::Message::default();
    while let Some(data) = body.data().await {
        let data =
            data.map_err(|error| unary::Unreadable::Broken(error.to_string()).to_string())?;
        // Its window suffices.
        message.push(data, LIMIT).map_err(|error| error.to_string())?;
    }
    message.finish().map_err(|error| error.to_string())
}

/// The length of a message, and a sum over the places of its bytes.
pub(crate) fn summary(message: &[u8]) -> String {
    let sum = message.iter().enumerate().fold(0_u64, |sum, (at, byte)| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte) + at as u64)
    });
    format!("{} bytes, {sum:x}", message.len())
}
