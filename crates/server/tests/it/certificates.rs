//! Certificates made for a test, and file changes as Kubernetes makes them.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{self, Channel, ClientTlsConfig, Endpoint};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, PEM.
    pub(crate) pem: String,
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("it signs itself").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A server's pair, for 127.0.0.1.
    pub(crate) fn server(&self) -> Pair {
        self.sign(CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name"))
    }

    /// A caller's pair with these alternative names and this common name.
    pub(crate) fn caller(&self, common: &str, names: Vec<SanType>) -> Pair {
        self.sign(caller(common, names))
    }

    /// A caller's pair that expired in 2001.
    pub(crate) fn expired(&self, common: &str) -> Pair {
        let mut params = caller(common, Vec::new());
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(params)
    }

    /// A caller's pair that expires after `seconds`.
    pub(crate) fn expiring(&self, common: &str, seconds: u64) -> Pair {
        let mut params = caller(common, Vec::new());
        params.not_after = (SystemTime::now() + Duration::from_secs(seconds)).into();
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn caller(common: &str, names: Vec<SanType>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, common);
    params.subject_alt_names = names;
    params
}

/// A URI as an alternative name.
pub(crate) fn uri(uri: &str) -> SanType {
    SanType::URI(uri.try_into().expect("ASCII"))
}

/// A directory as Kubernetes mounts a Secret: every file is a symlink through one symlink to a
/// directory, and an update swaps that one.
pub(crate) struct Mount {
    directory: TempDir,
    generation: usize,
}

impl Mount {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut mount = Self { directory, generation: 0 };
        mount.swap(files);
        for (name, _) in files {
            symlink(Path::new("..data").join(name), mount.path(name)).expect("a link");
        }
        mount
    }

    /// A mount with a server's certificate and key.
    pub(crate) fn pair(pair: &Pair) -> Self {
        Self::new(&files(pair))
    }

    /// Replaces all files at once.
    pub(crate) fn swap(&mut self, files: &[(&str, &str)]) {
        let old = self.path(&format!("..{}", self.generation));
        self.generation += 1;
        let name = format!("..{}", self.generation);
        fs::create_dir(self.path(&name)).expect("a directory");
        for (file, text) in files {
            fs::write(self.path(&name).join(file), text).expect("written");
        }
        symlink(&name, self.path("..new")).expect("a link");
        fs::rename(self.path("..new"), self.path("..data")).expect("swapped");
        if old.exists() {
            fs::remove_dir_all(old).expect("removed");
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file's path as the value of a setting.
    pub(crate) fn setting(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// The files of a pair, with cert-manager's names.
pub(crate) fn files(pair: &Pair) -> [(&str, &str); 2] {
    [("tls.crt", &pair.certificate), ("tls.key", &pair.key)]
}

/// Performs a TLS handshake that trusts `authorities`. The stream holds the server's certificate.
pub(crate) async fn shake(
    address: SocketAddr,
    authorities: &str,
    caller: Option<&Pair>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(certificate.expect("PEM")).expect("a certificate");
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match caller {
        None => builder.with_no_client_auth(),
        Some(Pair { certificate, key }) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let chain: Result<Vec<_>, _> = chain.collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(chain.expect("PEM"), key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// The certificate that a server shows, DER.
pub(crate) async fn shown(address: SocketAddr, authorities: &str) -> Vec<u8> {
    let stream = shake(address, authorities, None).await.expect("a handshake");
    let shown = stream.get_ref().1.peer_certificates().expect("one is shown");
    shown[0].to_vec()
}

/// Waits until the server shows this pair's certificate.
pub(crate) async fn until_shown(address: SocketAddr, authorities: &str, pair: &Pair) {
    let expected = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM");
    while shown(address, authorities).await != expected.as_ref() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A gRPC channel over TLS that connects when it is used.
pub(crate) fn channel(address: SocketAddr, authorities: &str, caller: Option<&Pair>) -> Channel {
    let mut tls =
        ClientTlsConfig::new().ca_certificate(transport::Certificate::from_pem(authorities));
    if let Some(Pair { certificate, key }) = caller {
        tls = tls.identity(transport::Identity::from_pem(certificate, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
    endpoint.tls_config(tls).expect("usable").connect_lazy()
}

/// An HTTP client over TLS.
pub(crate) fn http(authorities: &str, caller: Option<&Pair>) -> reqwest::Client {
    let roots = reqwest::Certificate::from_pem_bundle(authorities.as_bytes()).expect("PEM");
    let mut builder = reqwest::Client::builder().tls_certs_only(roots);
    if let Some(Pair { certificate, key }) = caller {
        let pem = format!("{certificate}{key}");
        builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).expect("a pair"));
    }
    builder.build().expect("a client")
}
