//! The registry client that all commands share.

use std::path::PathBuf;

pub use outrigger_oci::{Client, InvalidReference, Progress, Reference};
use outrigger_oci::{Config, registry_host};

use crate::Error;

/// A client with Docker's credentials. It calls the hosts of `plain_http` without TLS,
/// and trusts the authorities in `ca` in addition to the built-in ones. Empty hosts, as of an empty
/// variable, are left out.
///
/// # Errors
/// One of `plain_http` is no host, or the authorities cannot be read.
pub fn client(mut plain_http: Vec<String>, ca: Option<PathBuf>) -> Result<Client, Error> {
    plain_http.retain(|host| !host.is_empty());
    for host in &plain_http {
        registry_host(host).map_err(|error| Error::Usage(format!("--plain-http: {error}")))?;
    }
    let config = Config { plain_http, ca, ..Config::default() };
    Ok(Client::new(config).map_err(|error| error.failure())?)
}
