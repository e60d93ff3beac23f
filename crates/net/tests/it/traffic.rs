//! Property tests: all bytes written arrive, whatever the sizes of writes and reads.

use std::{
    cell::Cell,
    fs::File,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use outrigger_net::{Corked, ReadAhead, Stream};
use proptest::{collection::vec, prelude::*};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{TcpListener, TcpStream, UnixStream},
    runtime::{Builder, Runtime},
    time::timeout,
};

/// The time limit that turns a hang into a failure; far longer than the test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of bytes to write, and whether the writer then yields.
type Step = (usize, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size =
        prop_oneof![0..300_usize, 3900..4200_usize, 15_000..17_000_usize, 70_000..400_000_usize];
    vec((size, any::<bool>()), 1..20)
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (seed..seed + count).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8).collect()
}

/// Writes the steps on one socket and reads them on the other, with buffers of these sizes.
async fn exchange<S: Stream + Unpin>(ours: S, theirs: S, steps: Vec<Step>, sizes: Vec<usize>) {
    let sent: Vec<u8> =
        steps.iter().enumerate().flat_map(|(seed, &(count, _))| bytes(count, seed)).collect();
    let writing = tokio::spawn(async move {
        let mut socket = Corked::new(ours);
        let cork = socket.cork();
        let writer = pin!(async move {
            for (seed, (count, waits)) in steps.into_iter().enumerate() {
                socket.write_all(&bytes(count, seed)).await.expect("the peer reads");
                if waits {
                    tokio::task::yield_now().await;
                }
            }
            socket.shutdown().await.expect("the peer is there");
        });
        cork.pulled_after(writer).await;
    });
    let mut socket = ReadAhead::new(theirs);
    let mut received = Vec::new();
    for size in sizes.into_iter().cycle() {
        let mut buffer = vec![0; size];
        match socket.read(&mut buffer).await.expect("the peer writes") {
            0 => break,
            count => received.extend_from_slice(&buffer[..count]),
        }
    }
    writing.await.expect("it does not panic");
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
}

async fn over_tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("a socket");
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
    (ours.expect("a socket"), theirs.expect("a socket").0)
}

fn check(runtime: &Runtime, steps: Vec<Step>, sizes: Vec<usize>) {
    runtime.block_on(async {
        let both = async {
            let (ours, theirs) = over_tcp().await;
            exchange(ours, theirs, steps.clone(), sizes.clone()).await;
            let (ours, theirs) = UnixStream::pair().expect("a socket");
            exchange(ours, theirs, steps, sizes).await;
        };
        timeout(PATIENCE, both).await.expect("nothing hangs");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn on_one_thread(steps in steps(), sizes in vec(200..100_000_usize, 1..4)) {
        check(&Builder::new_current_thread().enable_all().build().unwrap(), steps, sizes);
    }

    #[test]
    fn on_several_threads(steps in steps(), sizes in vec(200..100_000_usize, 1..4)) {
        let runtime = Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
        check(&runtime, steps, sizes);
    }
}

/// A socket that always has bytes to read.
struct Endless(File);

impl AsFd for Endless {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stream for Endless {
    fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn try_io<R>(&self, _: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        io()
    }

    fn try_write_vectored(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

#[tokio::test]
async fn a_peer_that_never_pauses_leaves_turns_to_other_tasks() {
    const ALL: usize = 8 << 20;
    const TURN: usize = 256 << 10;
    const READ: usize = 64 << 10;
    let received = Cell::new(0);
    let reading = async {
        let mut socket = ReadAhead::new(Endless(File::open("/dev/zero").expect("a device")));
        let mut buffer = vec![0; READ];
        while received.get() < ALL {
            let count = socket.read(&mut buffer).await.expect("bytes");
            received.set(received.get() + count);
        }
    };
    let other = async {
        let mut before = 0;
        while received.get() < ALL {
            let now = received.get();
            assert!(now - before <= TURN + 2 * READ, "{before} to {now}");
            before = now;
            tokio::task::yield_now().await;
        }
        before
    };
    let (_, before) = tokio::join!(biased; reading, other);
    assert!(before > 0, "it had turns");
}
