//! TLS with a certificate generated for the test.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio_rustls::TlsAcceptor;

/// Accepts TLS for 127.0.0.1 and localhost, with these protocols in ALPN; returns the certificate of
/// the authority too, PEM.
pub(crate) fn acceptor(protocols: &[&[u8]]) -> (TlsAcceptor, String) {
    let (authority, chain, key) = certificate();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .expect("a fresh certificate can be used");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), authority)
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
