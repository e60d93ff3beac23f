//! TLS of the listeners: the server's certificate, client certificates, and the handshake.

mod certificate;
mod vouched;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub(crate) use self::vouched::Vouched;
use crate::{
    caller::Identity,
    config::{self, Transport},
    live::{self, Contents, FileError, Live, Source},
    metrics,
};

/// The time limit of a handshake, which takes two round trips and a signature.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// The protocols offered in ALPN, which gRPC clients require.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of the listeners' TLS.
pub(crate) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The certificate authorities of callers.
    authorities: Option<PathBuf>,
}

/// The TLS configurations made from the files, one for each kind of client authentication.
pub(crate) struct Terms {
    server: Arc<ServerConfig>,
    /// Present only if authorities are configured.
    callers: Option<Callers>,
    /// The expiry of the certificate, in seconds since 1970.
    expires: i64,
}

struct Callers {
    /// A hash of the authorities.
    authorities: [u8; 32],
    verifier: Arc<dyn ClientCertVerifier>,
    optional: Arc<ServerConfig>,
    mutual: Arc<ServerConfig>,
}

/// Performs the handshakes of one listener.
#[derive(Clone)]
pub(crate) struct Acceptor {
    files: Arc<Live<Files>>,
    transport: Transport,
}

impl Files {
    /// The files that are configured, if any.
    pub(crate) fn of(config: &config::Tls) -> Option<Self> {
        let (certificate, key) = config.certificate.clone().zip(config.key.clone())?;
        Some(Self { certificate, key, authorities: config.client_ca.clone() })
    }
}

impl Source for Files {
    type Value = Terms;
    const SECRET: metrics::Secret = metrics::Secret::Tls;

    fn read(&self) -> Result<Contents, FileError> {
        let files = [&self.certificate, &self.key].into_iter().chain(&self.authorities);
        files.map(|path| live::read(path)).collect()
    }

    fn make(&self, contents: &Contents) -> Result<Terms, FileError> {
        let pem = |path: &PathBuf| {
            let found = contents.iter().find(|(of, _)| of == path);
            found.map_or(&[][..], |(_, pem)| pem)
        };
        let chain = certificates(&self.certificate, pem(&self.certificate))?;
        let key = key(&self.key, pem(&self.key))?;
        let expires = certificate::expiry(&chain[0])
            .map_err(|problem| FileError::new(&self.certificate, problem))?;
        let roots = self.authorities.as_ref().map(|path| {
            let pem = pem(path);
            Ok((authorities(path, pem)?, Sha256::digest(pem).into()))
        });
        let terms = |verifier: Option<Arc<dyn ClientCertVerifier>>| {
            config(verifier, chain.clone(), key.clone_key())
                .map_err(|error| FileError::new(&self.key, error))
        };
        let callers = |(roots, authorities): (RootCertStore, [u8; 32])| {
            let unusable =
                |error| FileError::new(self.authorities.as_ref().unwrap_or(&self.key), error);
            let verifier =
                || WebPkiClientVerifier::builder_with_provider(roots.clone().into(), provider());
            let optional = verifier().allow_unauthenticated().build().map_err(unusable)?;
            let mutual = verifier().build().map_err(unusable)?;
            let (verifier, mutual) = (mutual.clone(), terms(Some(mutual))?);
            Ok(Callers { authorities, verifier, optional: terms(Some(optional))?, mutual })
        };
        let callers = roots.transpose()?.map(callers).transpose()?;
        Ok(Terms { server: terms(None)?, callers, expires })
    }

    fn adopted(&self, terms: &Terms) {
        metrics::certificate_expires(terms.expires);
    }
}

impl Terms {
    fn of(&self, transport: Transport) -> Option<&Arc<ServerConfig>> {
        match transport {
            Transport::Plain => None,
            Transport::Server => Some(&self.server),
            Transport::Optional => self.callers.as_ref().map(|callers| &callers.optional),
            Transport::Mutual => self.callers.as_ref().map(|callers| &callers.mutual),
        }
    }
}

impl Acceptor {
    /// An acceptor for `transport`; `None` for plain connections.
    pub(crate) fn new(files: &Arc<Live<Files>>, transport: Transport) -> Option<Self> {
        let tls = transport != Transport::Plain;
        tls.then(|| Self { files: Arc::clone(files), transport })
    }

    /// Performs the handshake with the configuration in force now. If the caller presented a
    /// certificate, its identity is returned, and the value that ends with the certificate's
    /// validity.
    ///
    /// # Errors
    /// The peer does not speak TLS, a certificate of either side is not trusted, or the handshake
    /// takes too long.
    pub(crate) async fn shake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<(TlsStream<S>, Option<Identity>, Option<Vouched>)> {
        let terms = self.files.load_full();
        // Validation ensures that a transport with client certificates has authorities.
        let config = terms.of(self.transport).cloned();
        let config = config.ok_or_else(|| io::Error::other("there are no authorities"))?;
        let stream = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await??;
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let identity = shown.first().and_then(certificate::identity);
        let by = terms.callers.as_ref().filter(|_| !shown.is_empty());
        let vouched = by.map(|callers| Vouched::new(&self.files, shown, callers.authorities));
        Ok((stream, identity, vouched))
    }
}

fn config(
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let asks = verifier.is_some();
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    if asks {
        // A resumed session would not present its certificate again, even if it has expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Parses the certificates of a PEM file, of which there must be at least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| FileError::new(path, description(&error)))?;
    if all.is_empty() {
        return Err(FileError::new(path, "holds no certificate"));
    }
    Ok(all)
}

fn key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| FileError::new(path, description(&error)))
}

/// Describes an error in a PEM file without any of the file's content.
fn description(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::NoItemsFound => "holds nothing of its kind in PEM",
        pem::Error::MissingSectionEnd { .. } => "breaks off",
        _ => "is not valid PEM",
    }
}

fn authorities(path: &Path, pem: &[u8]) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        roots.add(certificate).map_err(|error| FileError::new(path, error))?;
    }
    Ok(roots)
}
