//! HTTPS with a certificate generated for the test.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

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
    let (authority, chain, key) = certificate();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .expect("a fresh certificate can be used");
    (TlsListener { tcp, tls: TlsAcceptor::from(Arc::new(config)) }, authority)
}

fn certificate() -> (String, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = || KeyPair::generate().expect("keys can be made");
    let params = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        CertificateParams::new(names).expect("valid names")
    };
    let mut authority = params(&[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = key();
    let root = authority.self_signed(&authority_key).expect("it signs itself");
    let issuer = Issuer::new(authority, authority_key);
    let leaf_key = key();
    let leaf = params(&["127.0.0.1", "localhost"]).signed_by(&leaf_key, &issuer);
    let leaf = leaf.expect("the authority signs it");
    (root.pem(), vec![leaf.der().clone()], leaf_key.into())
}
