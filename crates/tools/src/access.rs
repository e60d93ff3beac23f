//! Access to a server: TLS, trusted authorities and credentials.

mod settings;

use std::{fs, path::PathBuf, str::FromStr, time::Duration};

use reqwest::redirect;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

pub use self::settings::ClientSettings;
use crate::Error;

/// Time limit for establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Files with trusted authorities and credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Certificate authorities for the server's certificate, PEM; `None` uses the
    /// system's.
    pub ca: Option<PathBuf>,
    /// The client certificate, PEM.
    pub certificate: Option<PathBuf>,
    /// The client certificate's key, PEM.
    pub key: Option<PathBuf>,
    /// The name in the server's certificate, if it differs from the address.
    pub server_name: Option<String>,
    /// A bearer token: the file's first line that is not empty.
    pub token_file: Option<PathBuf>,
}

/// A gRPC connection that sends the token.
pub(crate) type Connection = InterceptedService<Channel, Token>;

/// Adds the bearer token to every call.
#[derive(Debug, Clone)]
pub(crate) struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl Access {
    /// Connects to the gRPC listener at `address`: `host:port`, optionally with `http://`
    /// or `https://` before it. Without a scheme, TLS is used if any TLS option is set.
    pub(crate) async fn connect(&self, address: &str) -> Result<Connection, Error> {
        let (tls, host) = self.scheme(address)?;
        let scheme = if tls { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
            .map_err(|_| Error::Usage(format!("{address:?} is not an address, host:port")))?
            .connect_timeout(CONNECT);
        let unreachable = |source: tonic::transport::Error| Error::Unreachable {
            address: address.to_owned(),
            source: source.into(),
        };
        if tls {
            endpoint = endpoint.tls_config(self.tls()?).map_err(unreachable)?;
        }
        let mut token: Option<MetadataValue<Ascii>> = self.bearer()?;
        token.iter_mut().for_each(|token| token.set_sensitive(true));
        let channel = endpoint.connect().await.map_err(unreachable)?;
        Ok(InterceptedService::new(channel, Token(token)))
    }

    fn tls(&self) -> Result<ClientTlsConfig, Error> {
        let mut tls = match &self.ca {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
            None => ClientTlsConfig::new().with_enabled_roots(),
        };
        if let Some([certificate, key]) = self.pair()? {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        Ok(tls)
    }

    /// Creates the HTTP client for the listener at `url`; returns it with the URL to call
    /// and the token to send.
    pub(crate) async fn http(
        &self,
        url: &str,
    ) -> Result<(reqwest::ClientBuilder, String, Option<String>), Error> {
        let mut builder = reqwest::Client::builder();
        if !url.starts_with("https://") {
            self.reject_tls_options()?;
            builder = without_tls(builder);
        }
        if let Some(path) = &self.ca {
            let roots = reqwest::Certificate::from_pem_bundle(&read(path)?);
            builder = builder.tls_certs_only(roots.map_err(|_| unusable(path, "certificate"))?);
        }
        if let (Some(path), Some(pair)) = (&self.certificate, self.pair()?) {
            let identity = reqwest::Identity::from_pem(&pair.concat());
            builder = builder.identity(identity.map_err(|_| unusable(path, "pair"))?);
        }
        let (builder, url) = match &self.server_name {
            Some(name) => with_server_name(builder, url, name).await?,
            None => (builder, url.to_owned()),
        };
        Ok((builder, url, self.token()?))
    }

    /// Splits `address` into its scheme, as true for TLS, and the rest.
    fn scheme<'a>(&self, address: &'a str) -> Result<(bool, &'a str), Error> {
        match (address.strip_prefix("https://"), address.strip_prefix("http://")) {
            (Some(host), _) => Ok((true, host)),
            (_, Some(host)) => {
                self.reject_tls_options()?;
                Ok((false, host))
            }
            _ => Ok((self.has_tls_options(), address)),
        }
    }

    fn has_tls_options(&self) -> bool {
        self.ca.is_some() || self.certificate.is_some() || self.server_name.is_some()
    }

    /// Fails if an option is set that is only meaningful with TLS.
    fn reject_tls_options(&self) -> Result<(), Error> {
        if self.has_tls_options() {
            let message = "a CA, a certificate and a server name are for https addresses";
            return Err(Error::Usage(message.to_owned()));
        }
        Ok(())
    }

    fn pair(&self) -> Result<Option<[Vec<u8>; 2]>, Error> {
        match (&self.certificate, &self.key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some([read(certificate)?, read(key)?])),
            _ => Err(Error::Usage(
                "a certificate needs its key, and a key its certificate".to_owned(),
            )),
        }
    }

    fn token(&self) -> Result<Option<String>, Error> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = String::from_utf8(read(path)?).map_err(|_| unusable(path, "token"))?;
        let token = text.lines().map(str::trim).find(|line| !line.is_empty());
        token.map(|token| Some(token.to_owned())).ok_or_else(|| unusable(path, "token"))
    }

    /// The token as the value of the `authorization` header.
    fn bearer<V: FromStr>(&self) -> Result<Option<V>, Error> {
        let invalid = |_| Error::Usage("the token is not valid as a header value".to_owned());
        let token = self.token()?.map(|token| format!("Bearer {token}").parse());
        token.transpose().map_err(invalid)
    }
}

/// A client without TLS: it loads no certificate authorities, so it works on a system
/// without any, and it refuses redirects to https.
fn without_tls(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    let redirects = redirect::Policy::custom(|attempt| match attempt.url().scheme() {
        "https" => attempt.error("the server redirects to https"),
        _ => redirect::Policy::default().redirect(attempt),
    });
    builder.tls_certs_only([]).redirect(redirects)
}

/// Replaces the host of the URL by the certificate's name, which the client resolves to
/// the addresses of the original host.
async fn with_server_name(
    builder: reqwest::ClientBuilder,
    url: &str,
    name: &str,
) -> Result<(reqwest::ClientBuilder, String), Error> {
    let invalid = || Error::Usage(format!("{name:?} is not valid as the host of the URL"));
    let mut url = reqwest::Url::parse(url).map_err(|_| invalid())?;
    let host = url.host_str().ok_or_else(invalid)?.trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().ok_or_else(invalid)?;
    let addresses = tokio::net::lookup_host((host.as_str(), port)).await;
    let addresses: Vec<_> = addresses
        .map_err(|error| Error::Unreachable { address: host.clone(), source: error.into() })?
        .collect();
    url.set_host(Some(name)).map_err(|_| invalid())?;
    Ok((builder.resolve_to_addrs(name, &addresses), url.to_string()))
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
}

fn unusable(path: &std::path::Path, what: &str) -> Error {
    Error::Usage(format!("{} has no usable {what}", path.display()))
}
