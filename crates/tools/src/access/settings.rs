//! Access for those who make their connections themselves.

use std::sync::Arc;

use reqwest::header::HeaderValue;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

use super::{Access, read, unusable};
use crate::Error;

/// On which terms a server is reached.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Where, without a scheme.
    pub address: String,
    /// How handshakes are made, and whom the server's certificate must name; `None`:
    /// without TLS.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The header `authorization`, marked as sensitive.
    pub authorization: Option<HeaderValue>,
}

impl Access {
    /// The terms for a listener at `address`: `host:port`, with `http://` or
    /// `https://` before it, or `unix:/path`. Without a scheme, it is TLS if something
    /// of it is given.
    ///
    /// # Errors
    /// A file cannot be used, or options do not go together.
    pub fn terms(&self, address: &str) -> Result<Terms, Error> {
        let (tls, address) = self.scheme(address)?;
        let tls = if tls { Some((self.client()?.into(), self.name(address)?)) } else { None };
        let mut authorization: Option<HeaderValue> = self.bearer()?;
        authorization.iter_mut().for_each(|token| token.set_sensitive(true));
        Ok(Terms { address: address.to_owned(), tls, authorization })
    }

    fn client(&self) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder().with_root_certificates(self.roots()?);
        let (Some(path), Some([chain, key])) = (&self.certificate, self.pair()?) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let pair = chain.ok().zip(PrivateKeyDer::from_pem_slice(&key).ok());
        let config = pair.and_then(|(chain, key)| builder.with_client_auth_cert(chain, key).ok());
        config.ok_or_else(|| unusable(path, "pair"))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.ca else {
            // What some of the files may hold amiss, the others make up for.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(roots);
        };
        let pem = read(path)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        for certificate in certificates.map_err(|_| unusable(path, "certificate"))? {
            roots.add(certificate).map_err(|_| unusable(path, "certificate"))?;
        }
        if roots.is_empty() { Err(unusable(path, "certificate")) } else { Ok(roots) }
    }

    /// Whom the certificate of the server at `address` must name.
    fn name(&self, address: &str) -> Result<ServerName<'static>, Error> {
        let host = match (&self.server_name, address.starts_with("unix:")) {
            (Some(name), _) => name,
            (None, true) => "localhost",
            (None, false) => address.rsplit_once(':').map_or(address, |(host, _port)| host),
        };
        ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|_| Error::Usage(format!("{host:?} is no name that a certificate can have")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn named(name: &str) -> Access {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Access { server_name: Some(name.to_owned()), ..Access::default() }
    }

    #[test]
    fn tls_is_told_by_the_scheme_or_by_what_is_given() {
        let plain = Access::default();
        for address in ["http://host:1", "host:1", "unix:/run/engine.sock"] {
            let terms = plain.terms(address).unwrap();
            assert!(terms.tls.is_none() && terms.authorization.is_none());
            assert_eq!(terms.address, address.trim_start_matches("http://"));
        }
        let named = named("other.example");
        for address in ["https://host:1", "host:1"] {
            let (_, name) = named.terms(address).unwrap().tls.unwrap();
            assert_eq!(name.to_str(), "other.example");
        }
        assert!(matches!(named.terms("http://host:1"), Err(Error::Usage(_))));
    }

    #[test]
    fn without_a_name_the_certificate_must_have_the_hosts() {
        for (address, name) in [
            ("host.example:9000", "host.example"),
            ("127.0.0.1:9000", "127.0.0.1"),
            ("[::1]:9000", "::1"),
            ("unix:/run/grpc.sock", "localhost"),
        ] {
            assert_eq!(Access::default().name(address).unwrap().to_str(), name);
        }
        assert!(matches!(Access::default().name("under score:1"), Err(Error::Usage(_))));
    }

    #[test]
    fn a_token_is_shown_and_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "\n a-token-of-somebody \n").unwrap();
        let access = |path: PathBuf| Access { token_file: Some(path), ..Access::default() };
        let terms = access(path.clone()).terms("host:1").unwrap();
        assert_eq!(terms.authorization.as_ref().unwrap(), "Bearer a-token-of-somebody");
        assert!(!format!("{terms:?}").contains("a-token"));
        std::fs::write(&path, "of\u{7f}control").unwrap();
        let told = access(path).terms("host:1").unwrap_err().to_string();
        assert!(told.contains("header") && !told.contains("control"), "{told}");
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crt");
        std::fs::write(&path, "no certificate").unwrap();
        let access = Access { ca: Some(path), ..Access::default() };
        let told = access.terms("host:1").unwrap_err().to_string();
        assert!(told.contains("ca.crt holds no certificate"), "{told}");
    }
}
