//! HTTPS with a certificate generated for the test.

use std::{io, net::SocketAddr};

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::tls::acceptor;

/// Accepts connections one by one, TLS handshake included.
pub(super) struct TlsListener {
    tcp: TcpListener,
    tls: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            // A failed handshake, such as of a client that does not trust the authority, is
            // skipped.
            if let Ok((stream, address)) = self.tcp.accept().await
                && let Ok(stream) = self.tls.accept(stream).await
            {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// Wraps `tcp` in TLS; returns the certificate of the authority too, PEM.
pub(super) fn over(tcp: TcpListener) -> (TlsListener, String) {
    let (tls, authority) = acceptor(&[]);
    (TlsListener { tcp, tls }, authority)
}
