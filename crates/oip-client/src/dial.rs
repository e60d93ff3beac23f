//! Connections to hosts, with TLS where their addresses say so.

use std::{io, path::Path, sync::Arc};

use http::{Uri, uri::Scheme};
use outrigger_rpc::{Dial, Endpoint, Plain};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use crate::config::{Address, InvalidConfig, invalid};

/// Connects to one host for gRPC.
#[derive(Clone)]
pub(crate) struct Dialer {
    endpoint: Endpoint,
    /// The endpoint that is connected to: that with the address in place of the name, if it is set.
    target: Endpoint,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Dialer {
    /// The dialer of the host at `address`, whose certificate is checked with `tls`.
    pub(crate) fn new(address: &Address, tls: &Arc<ClientConfig>) -> Self {
        let mut config = ClientConfig::clone(tls);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let tls = address.tls.clone().map(|name| (connector, name));
        let endpoint = address.endpoint.clone();
        let target = address.pinned.as_ref().map(|pinned| Endpoint::from(pinned.address));
        Self { target: target.unwrap_or_else(|| endpoint.clone()), endpoint, tls }
    }
}

impl Dial for Dialer {
    type Stream = Either<Plain, TlsStream<Plain>>;

    fn origin(&self) -> Uri {
        let mut origin = self.endpoint.origin().into_parts();
        if self.tls.is_some() {
            origin.scheme = Some(Scheme::HTTPS);
        }
        Uri::from_parts(origin).expect("an origin with another scheme")
    }

    async fn dial(&self) -> io::Result<Self::Stream> {
        let stream = self.target.connect(None).await?;
        match &self.tls {
            None => Ok(Either::Left(stream)),
            Some((connector, name)) => {
                Ok(Either::Right(connector.connect(name.clone(), stream).await?))
            }
        }
    }
}

/// The TLS configuration that trusts the authorities in the file `ca`, or those of the system.
/// Blocks.
pub(crate) fn tls(ca: Option<&Path>) -> Result<Arc<ClientConfig>, InvalidConfig> {
    let mut roots = RootCertStore::empty();
    match ca {
        // Certificates that cannot be read are skipped; the remaining ones are usually enough.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let refused = || invalid("ca", "the file holds no certificates in PEM");
            for certificate in CertificateDer::pem_file_iter(path).map_err(|_| refused())? {
                roots.add(certificate.map_err(|_| refused())?).map_err(|_| refused())?;
            }
            if roots.is_empty() {
                return Err(refused());
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("ring has the default versions");
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
