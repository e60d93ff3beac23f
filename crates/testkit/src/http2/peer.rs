//! A peer that sends given frames, and reads frame by frame.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

use super::{Frame, HELLO, PREFACE};

/// One side of a connection.
#[derive(Debug)]
pub struct Peer<S>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Begins a connection as its client.
    ///
    /// # Errors
    /// The stream fails.
    pub async fn client(mut stream: S) -> io::Result<Self> {
        stream.write_all(HELLO).await?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Begins a connection as its server.
    ///
    /// # Errors
    /// The stream fails.
    pub async fn server(mut stream: S) -> io::Result<Self> {
        let (_, settings) = HELLO.split_at(PREFACE);
        stream.read_exact(&mut [0; PREFACE]).await?;
        stream.write_all(settings).await?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends `frames` in one piece.
    ///
    /// # Errors
    /// The stream fails.
    pub async fn send(&mut self, frames: &[Frame]) -> io::Result<()> {
        let bytes = frames.iter().flat_map(Frame::bytes).collect::<Vec<_>>();
        self.0.write_all(&bytes).await
    }

    /// Reads the next frame, answering pings.
    ///
    /// # Errors
    /// The stream fails, or the peer sends GOAWAY; the error then holds its debug data.
    pub async fn next(&mut self) -> io::Result<Frame> {
        loop {
            let frame = Frame::read(&mut self.0).await?;
            if frame.is_farewell() {
                return Err(io::Error::other(String::from_utf8_lossy(frame.payload())));
            }
            match frame.pong() {
                Some(pong) => self.send(&[pong]).await?,
                None => return Ok(frame),
            }
        }
    }

    /// Reads up to the next ping, and answers it. Other frames are discarded.
    ///
    /// # Errors
    /// The stream fails.
    pub async fn ping(&mut self) -> io::Result<()> {
        loop {
            if let Some(pong) = Frame::read(&mut self.0).await?.pong() {
                return self.send(&[pong]).await;
            }
        }
    }

    /// Reads the body of the answer on `stream`. Frames of other streams are discarded.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn answer(&mut self, stream: u32) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let frame = self.next().await?;
            if frame.stream() == stream && frame.is_data() {
                body.extend_from_slice(frame.payload());
            }
            if frame.stream() == stream && frame.is_end() {
                return Ok(body);
            }
        }
    }
}
