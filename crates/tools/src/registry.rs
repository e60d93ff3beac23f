//! The registry client that all commands share.

use std::path::PathBuf;

use outrigger_oci::Config;
pub use outrigger_oci::{Client, Progress, Reference};

use crate::Error;

/// A client with Docker's credentials. It calls the hosts of `plain_http` without TLS,
/// and trusts the authorities in `ca` in addition to the built-in ones.
pub fn client(plain_http: Vec<String>, ca: Option<PathBuf>) -> Result<Client, Error> {
    let config = Config { plain_http, ca, ..Config::default() };
    Ok(Client::new(config).map_err(|error| error.failure())?)
}
