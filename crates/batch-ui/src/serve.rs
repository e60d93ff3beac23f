//! Connections of callers, over HTTP/1.1. Their number is bounded.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::routes::Caller;

/// The most connections. Further ones wait.
const MOST: usize = 128;
/// The time in which a caller must send the head of a request, the time between two included.
const HEAD: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections. They end with `end`.
pub(crate) async fn serve(listener: TcpListener, routes: Router, end: CancellationToken) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (routes, end) = (routes.clone(), end.clone());
        tokio::spawn(async move {
            end.run_until_cancelled(converse(stream, from, routes)).await;
            drop(place);
        });
    }
}

/// Serves one connection. An error means that the caller has gone, or speaks another protocol.
async fn converse(stream: TcpStream, from: SocketAddr, routes: Router) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Caller(from));
        routes.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
