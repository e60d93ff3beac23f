//! Settings for code that makes its own connections.

use std::sync::Arc;

use reqwest::header::HeaderValue;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

use super::{Access, read, unusable};
use crate::Error;

/// The settings for a connection to a server.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// The address without a scheme.
    pub address: String,
    /// The TLS configuration and the name that the server's certificate must have; `None`
    /// without TLS.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The header `authorization`, marked as sensitive.
    pub authorization: Option<HeaderValue>,
}

impl Access {
    /// The settings for a listener at `address`: `host:port`, optionally with `http://`
    /// or `https://` before it, or `unix:/path`. Without a scheme, TLS is used if any TLS
    /// option is set.
    ///
    /// # Errors
    /// A file cannot be used, or options contradict each other.
    pub fn client_settings(&self, address: &str) -> Result<ClientSettings, Error> {
        let (tls, address) = self.scheme(address)?;
        let tls = if tls { Some((self.client()?.into(), self.name(address)?)) } else { None };
        let mut authorization: Option<HeaderValue> = self.bearer()?;
        authorization.iter_mut().for_each(|token| token.set_sensitive(true));
        Ok(ClientSettings { address: address.to_owned(), tls, authorization })
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
            // Unreadable files are skipped; the remaining certificates are usually
            // enough.
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

    /// The name that the certificate of the server at `address` must have.
    fn name(&self, address: &str) -> Result<ServerName<'static>, Error> {
        let host = match (&self.server_name, address.starts_with("unix:")) {
            (Some(name), _) => name,
            (None, true) => "localhost",
            (None, false) => address.rsplit_once(':').map_or(address, |(host, _port)| host),
        };
        ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| {
            Error::Usage(format!("{host:?} is not valid as the name in a certificate"))
        })
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
    fn tls_follows_the_scheme_or_the_options() {
        let plain = Access::default();
        for address in ["http://host:1", "host:1", "unix:/run/engine.sock"] {
            let settings = plain.client_settings(address).unwrap();
            assert!(settings.tls.is_none() && settings.authorization.is_none());
            assert_eq!(settings.address, address.trim_start_matches("http://"));
        }
        let named = named("other.example");
        for address in ["https://host:1", "host:1"] {
            let (_, name) = named.client_settings(address).unwrap().tls.unwrap();
            assert_eq!(name.to_str(), "other.example");
        }
        assert!(matches!(named.client_settings("http://host:1"), Err(Error::Usage(_))));
    }

    #[test]
    fn by_default_the_certificate_must_have_the_name_of_the_host() {
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
    fn a_token_is_sent_but_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "\n a-secret-token \n").unwrap();
        let access = |path: PathBuf| Access { token_file: Some(path), ..Access::default() };
        let settings = access(path.clone()).client_settings("host:1").unwrap();
        assert_eq!(settings.authorization.as_ref().unwrap(), "Bearer a-secret-token");
        assert!(!format!("{settings:?}").contains("a-secret"));
        std::fs::write(&path, "of\u{7f}control").unwrap();
        let message = access(path).client_settings("host:1").unwrap_err().to_string();
        assert!(message.contains("header") && !message.contains("control"), "{message}");
    }

    #[test]
    fn unusable_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crt");
        std::fs::write(&path, "no certificate").unwrap();
        let access = Access { ca: Some(path), ..Access::default() };
        let message = access.client_settings("host:1").unwrap_err().to_string();
        assert!(message.contains("ca.crt has no usable certificate"), "{message}");
    }
}
