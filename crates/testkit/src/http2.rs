//! HTTP/2 on the wire, for tests of what client libraries hide: the settings that a peer announces,
//! and single frames ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113)).

mod frame;
mod peer;

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

pub use self::{frame::Frame, peer::Peer};

/// The first bytes of a client: the connection preface, and an empty SETTINGS frame.
pub const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PREFACE: usize = 24;

/// The initial flow control window of a connection.
const WINDOW: u32 = 65_535;

const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

/// The settings that a peer announces when a connection begins; `None` is the RFC's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// The initial flow control window of a stream, bytes.
    pub stream_window: Option<u32>,
    /// The flow control window of the connection, bytes.
    pub connection_window: u32,
    /// The largest frame, bytes.
    pub frame: Option<u32>,
    /// The most bytes of a header list, as the RFC counts them.
    pub headers: Option<u32>,
    /// The most concurrent streams.
    pub streams: Option<u32>,
}

/// Reads a client's announced settings, up to its update of the connection's window.
///
/// # Errors
/// The client sends something else, or closes the connection.
pub async fn of_client(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Announced> {
    let mut preface = [0; PREFACE];
    stream.read_exact(&mut preface).await?;
    if preface != HELLO[..PREFACE] {
        return Err(io::ErrorKind::InvalidData.into());
    }
    of_server(stream).await
}

/// Reads a server's announced settings, after the client has sent [`HELLO`].
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
