//! Tests of reads into two buffers.

use std::{future::poll_fn, io, pin::Pin};

use bytes::BytesMut;
use outrigger_net::{Corked, Scatter, Space};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

/// Reads once; returns the count, and the contents of both buffers.
async fn read(
    socket: &mut (impl Scatter + Unpin),
    most: [usize; 2],
) -> io::Result<(usize, Vec<u8>, Vec<u8>)> {
    let (mut first, mut rest) = (BytesMut::with_capacity(16), BytesMut::with_capacity(16));
    first.extend_from_slice(b"-");
    let count = poll_fn(|context| {
        let (first, rest) = (Space::new(&mut first, most[0]), Space::new(&mut rest, most[1]));
        Pin::new(&mut *socket).poll_scatter(context, first, rest)
    });
    Ok((count.await?, first.to_vec(), rest.to_vec()))
}

#[tokio::test]
async fn bytes_go_to_the_first_buffer_and_then_to_the_other() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut socket = Corked::new(ours);
    theirs.write_all(b"abcdefghi").await.unwrap();
    assert_eq!(read(&mut socket, [3, 4]).await.unwrap(), (7, b"-abc".into(), b"defg".into()));
    assert_eq!(read(&mut socket, [0, 9]).await.unwrap(), (2, b"-".into(), b"hi".into()));
    drop(theirs);
    assert_eq!(read(&mut socket, [3, 4]).await.unwrap(), (0, b"-".into(), b"".into()));
}

#[tokio::test]
async fn bytes_that_were_read_ahead_come_first() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut socket = Corked::new(ours);
    theirs.write_all(b"abcdefghi").await.unwrap();
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 1);
    assert_eq!(read(&mut socket, [3, 16]).await.unwrap(), (8, b"-bcd".into(), b"efghi".into()));
    theirs.write_all(b"j").await.unwrap();
    assert_eq!(read(&mut socket, [3, 4]).await.unwrap(), (1, b"-j".into(), b"".into()));
}

#[tokio::test]
async fn no_more_is_read_than_the_buffers_hold() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut socket = Corked::new(ours);
    theirs.write_all(&[b'x'; 64]).await.unwrap();
    let (count, first, rest) = read(&mut socket, [100, 100]).await.unwrap();
    // The first buffer holds a byte already.
    assert_eq!((count, first.len(), rest.len()), (31, 16, 16));
}

#[tokio::test]
async fn other_streams_fill_one_buffer_in_each_read() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut socket = BufReader::with_capacity(1, ours);
    theirs.write_all(b"abcde").await.unwrap();
    assert_eq!(read(&mut socket, [3, 4]).await.unwrap(), (3, b"-abc".into(), b"".into()));
    assert_eq!(read(&mut socket, [0, 4]).await.unwrap(), (2, b"-".into(), b"de".into()));
}
