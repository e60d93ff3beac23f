//! Connections of callers, over HTTP/1.1. Their number is bounded.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::routes::Caller;

/// The most connections.
const MOST: usize = 128;
/// The time in which a caller must send the head of a request, the time between two included.
const HEAD: Duration = Duration::from_secs(10);
/// The time in milliseconds after which a connection ends whose caller takes no bytes.
const SEND: u32 = 10_000;
/// The pause after a connection could not be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The open connections by their numbers, each with its caller, and the token that cuts it off.
type Open = BTreeMap<u64, (IpAddr, CancellationToken)>;

/// Serves connections. They end with `end`.
pub(crate) async fn serve(listener: TcpListener, routes: Router, end: CancellationToken) {
    let open = Arc::new(Mutex::new(Open::new()));
    for number in 0.. {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let place = (from.ip().to_canonical(), end.child_token());
        let cut = place.1.clone();
        enter(&mut locked(&open), number, place);
        let routes = routes.clone();
        let open = Arc::clone(&open);
        tokio::spawn(async move {
            cut.run_until_cancelled(converse(stream, from, routes, SEND)).await;
            locked(&open).remove(&number);
        });
    }
}

/// Adds a connection. If there are too many, another one is cut off: of the caller with the most, the
/// oldest one. So idle connections keep nobody out, and a caller on this machine has one at least.
fn enter(open: &mut Open, number: u64, place: (IpAddr, CancellationToken)) {
    if open.len() >= MOST {
        let mut held = HashMap::<IpAddr, usize>::new();
        open.values().for_each(|(from, _)| *held.entry(*from).or_default() += 1);
        let order = |(number, (from, _)): &(&u64, &(IpAddr, CancellationToken))| {
            (held.get(from).copied(), !from.is_loopback(), Reverse(**number))
        };
        let last = open.iter().max_by_key(order).map(|(number, _)| *number);
        if let Some((_, cut)) = last.and_then(|number| open.remove(&number)) {
            cut.cancel();
        }
    }
    open.insert(number, place);
}

/// The value of a mutex, also after a panic of another thread.
fn locked(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one connection. It ends when the caller takes no bytes for `send` milliseconds. An error
/// means that the caller has gone, or speaks another protocol.
async fn converse(stream: TcpStream, from: SocketAddr, routes: Router, send: u32) {
    let _ = set_tcp_user_timeout(&stream, send);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Caller(from));
        routes.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    // hyper panics at a date beyond the year 9999.
    builder.auto_date_header(false).timer(TokioTimer::new()).header_read_timeout(HEAD);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{io::AsyncWriteExt as _, time::timeout};

    use super::*;

    #[tokio::test]
    async fn a_caller_that_reads_nothing_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let mut caller = TcpStream::connect(address).await.expect("connected");
        let (stream, from) = listener.accept().await.expect("accepted");
        let routes = Router::new().route("/", get(|| async { vec![0_u8; 64 << 20] }));
        let conversation = tokio::spawn(converse(stream, from, routes, 300));
        caller.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
        let ended = timeout(Duration::from_secs(30), conversation).await;
        assert!(ended.is_ok(), "its answer waits");
    }

    #[test]
    fn the_oldest_connection_of_the_caller_with_the_most_gives_way() {
        let [here, one, other] =
            ["127.0.0.1", "10.0.0.1", "10.0.0.2"].map(|it| it.parse::<IpAddr>().expect(it));
        let mut open = Open::new();
        let mut enter = |number, from| {
            let cut = CancellationToken::new();
            super::enter(&mut open, number, (from, cut.clone()));
            (open.len(), cut)
        };
        let first = [(0, here), (1, other), (2, other)].map(|(number, from)| enter(number, from).1);
        let many: Vec<_> = (3..MOST as u64).map(|number| enter(number, one).1).collect();
        let is_cut =
            |cuts: &[CancellationToken]| cuts.iter().filter(|it| it.is_cancelled()).count();
        assert_eq!((is_cut(&first), is_cut(&many)), (0, 0));
        for number in 0..500 {
            assert_eq!(enter(1000 + number, one).0, MOST);
        }
        assert_eq!((is_cut(&first), is_cut(&many)), (0, many.len()));
        // Callers in any number leave a place to this machine.
        for number in 0..1000_u32 {
            enter(2000 + u64::from(number), IpAddr::from(number.to_be_bytes()));
        }
        assert!(!first[0].is_cancelled() && first[2].is_cancelled());
    }
}
