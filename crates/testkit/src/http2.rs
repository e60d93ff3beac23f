//! HTTP/2 as it goes over the wire, for what libraries do not tell or do: what a peer
//! announces, and single frames ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113)).

mod frame;
mod peer;

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

pub use self::{frame::Frame, peer::Peer};

/// What a client says first: its preface, and settings that change nothing.
pub const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PREFACE: usize = 24;

/// What a connection has room for before anything is said of it.
const WINDOW: u32 = 65_535;

const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

/// What a peer announces when a connection begins; `None` is what the RFC has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Bytes that may be sent on a stream unasked.
    pub stream_window: Option<u32>,
    /// The same for all streams together.
    pub connection_window: u32,
    /// The longest frame, in bytes.
    pub frame: Option<u32>,
    /// The most bytes of a request's or an answer's headers, as the RFC counts them.
    pub headers: Option<u32>,
    /// Streams at once.
    pub streams: Option<u32>,
}

/// Reads what a client announces, up to where it widens the connection's window.
///
/// # Errors
/// The client says something else, or nothing more.
pub async fn of_client(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Announced> {
    let mut preface = [0; PREFACE];
    stream.read_exact(&mut preface).await?;
    if preface != HELLO[..PREFACE] {
        return Err(io::ErrorKind::InvalidData.into());
    }
    of_server(stream).await
}

/// Reads what a server announces to a client that has said [`HELLO`].
///
/// # Errors
/// As [`of_client`].
pub async fn of_server(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Announced> {
    let mut announced = Announced {
        stream_window: None,
        connection_window: WINDOW,
        frame: None,
        headers: None,
        streams: None,
    };
    loop {
        let frame = Frame::read(stream).await?;
        match (frame.stream(), frame.kind()) {
            (0, SETTINGS) => announced.read(frame.payload()),
            (0, WINDOW_UPDATE) => {
                let (more, _) = frame.payload().as_chunks::<4>();
                announced.connection_window +=
                    more.iter().copied().map(u32::from_be_bytes).sum::<u32>();
                return Ok(announced);
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Announced {
    fn read(&mut self, settings: &[u8]) {
        let (settings, _) = settings.as_chunks::<6>();
        for [high, low, value @ ..] in settings {
            let place = match u16::from_be_bytes([*high, *low]) {
                3 => &mut self.streams,
                4 => &mut self.stream_window,
                5 => &mut self.frame,
                6 => &mut self.headers,
                _ => continue,
            };
            *place = Some(u32::from_be_bytes(*value));
        }
    }
}
