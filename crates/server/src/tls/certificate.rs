//! Certificate fields: the expiry and the subject's identity.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::caller::{Identity, Kind};

/// The expiry of a certificate, in seconds since 1970.
///
/// # Errors
/// It is not an X.509 certificate.
pub(super) fn expiry(certificate: &CertificateDer<'_>) -> Result<i64, &'static str> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| "holds no X.509 certificate")?;
    Ok(certificate.validity().not_after.timestamp())
}

/// The identity that a certificate proves: the first URI among its alternative names, else the
/// first DNS name, else the subject's common name.
pub(super) fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map_or(&[][..], |extension| &extension.value.general_names);
    let uri = names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => Some((Kind::Uri, *uri)),
        _ => None,
    });
    let dns = names.iter().find_map(|name| match name {
        GeneralName::DNSName(dns) => Some((Kind::Dns, *dns)),
        _ => None,
    });
    let common = || {
        let name = certificate.subject().iter_common_name().next()?;
        Some((Kind::CommonName, name.as_str().ok()?))
    };
    let (kind, name) = uri.or(dns).or_else(common)?;
    Identity::new(kind, name)
}
