//! How commands reach a server: the same options for all of them.

use std::path::PathBuf;

use outrigger_tools::Access;

/// TLS and credentials.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS and credentials")]
pub(crate) struct Options {
    /// PEM file of the authorities that vouch for the server [default: the system's]
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_CA_FILE")]
    ca: Option<PathBuf>,
    /// PEM file of a certificate to show
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_CERT_FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM file of its key
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_KEY_FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The name in the server's certificate, where it is reached by another, as
    /// through a forwarded port
    #[arg(long, value_name = "NAME", env = "OUTRIGGER_SERVER_NAME")]
    server_name: Option<String>,
    /// File with a bearer token
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

impl From<Options> for Access {
    fn from(options: Options) -> Self {
        let Options { ca, cert, key, server_name, token_file } = options;
        Self { ca, certificate: cert, key, server_name, token_file }
    }
}
