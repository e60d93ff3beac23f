//! Property tests: all bytes written arrive, whatever the sizes of writes and reads.

use std::{pin::pin, time::Duration};

use outrigger_net::{Corked, ReadAhead, Stream};
use proptest::{collection::vec, prelude::*};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
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
