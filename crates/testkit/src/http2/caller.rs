//! A client that sends what it is told, and reads answers frame by frame.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use super::{Frame, HELLO};

/// The client's side of a connection.
#[derive(Debug)]
pub struct Caller<S>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Caller<S> {
    /// Begins a connection.
    ///
    /// # Errors
    /// The stream's.
    pub async fn on(mut stream: S) -> io::Result<Self> {
        stream.write_all(HELLO).await?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends `frames` in one piece.
    ///
    /// # Errors
    /// The stream's.
    pub async fn send(&mut self, frames: &[Frame]) -> io::Result<()> {
        let bytes = frames.iter().flat_map(Frame::bytes).collect::<Vec<_>>();
        self.0.write_all(&bytes).await
    }

    /// The body of the answer on `stream`. What comes for other streams before its end
    /// is thrown away.
    ///
    /// # Errors
    /// The stream's; and when the server takes no more requests, what it says then.
    pub async fn answer(&mut self, stream: u32) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let frame = Frame::read(&mut self.0).await?;
            if frame.is_farewell() {
                return Err(io::Error::other(String::from_utf8_lossy(&frame.payload)));
            }
            if let Some(pong) = frame.pong() {
                self.send(&[pong]).await?;
            }
            if frame.stream != stream {
                continue;
            }
            if frame.is_data() {
                body.extend_from_slice(&frame.payload);
            }
            if frame.is_end() {
                return Ok(body);
            }
        }
    }
}
