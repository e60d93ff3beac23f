//! Tests of when written bytes are sent.

use std::{
    io::ErrorKind,
    pin::pin,
    task::{Context, Waker},
};

use outrigger_net::{Corked, ReadAhead};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

/// Reads the bytes that are available now, without waiting.
fn arrived(stream: &UnixStream) -> Result<Vec<u8>, ErrorKind> {
    let mut bytes = [0; 64];
    let read = stream.try_read(&mut bytes).map_err(|error| error.kind());
    read.map(|count| bytes[..count].to_vec())
}

#[tokio::test]
async fn small_writes_are_sent_together_when_their_writer_waits() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut socket = Corked::new(ours);
    let cork = socket.cork();
    let mut connection = pin!(async {
        for piece in ["one ", "two ", "three"] {
            socket.write_all(piece.as_bytes()).await.unwrap();
            socket.flush().await.unwrap();
        }
        assert_eq!(arrived(&theirs), Err(ErrorKind::WouldBlock), "kept");
        std::future::pending::<()>().await;
    });
    let mut pulled = pin!(cork.pulled_after(connection.as_mut()));
    assert!(pulled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    theirs.readable().await.unwrap();
    assert_eq!(arrived(&theirs), Ok(b"one two three".to_vec()));
}

#[tokio::test]
async fn bytes_kept_back_are_sent_before_the_end() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut socket = Corked::new(ours);
    socket.write_all(b"last words").await.unwrap();
    socket.shutdown().await.unwrap();
    let mut all = Vec::new();
    theirs.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"last words");
}

#[tokio::test]
async fn a_closed_peer_is_an_error_at_shutdown() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut socket = Corked::new(ours);
    drop(theirs);
    socket.write_all(b"nobody").await.expect("kept");
    assert_eq!(socket.shutdown().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn bytes_read_ahead_are_returned_after_the_peer_has_closed() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"abcdef").await.unwrap();
    drop(theirs);
    let mut socket = ReadAhead::new(ours);
    let mut bytes = [0; 2];
    for expected in [b"ab", b"cd", b"ef"] {
        assert_eq!(socket.read(&mut bytes).await.unwrap(), 2);
        assert_eq!(&bytes, expected);
    }
    assert_eq!(socket.read(&mut bytes).await.unwrap(), 0);
    assert_eq!(socket.read(&mut []).await.unwrap(), 0);
}
