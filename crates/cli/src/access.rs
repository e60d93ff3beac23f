//! Options for access to a server, shared by all commands.

use std::{env, net::IpAddr, path::PathBuf};

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};
use outrigger_server::OperatorFile;
use outrigger_tools::Access;

use crate::exit::Exit;

/// The environment variable of the setting `auth.token_file` of `outrigger serve`.
const SERVER_TOKEN: &str = "OUTRIGGER_AUTH_TOKEN_FILE";

/// TLS and credentials.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "TLS and credentials")]
pub(crate) struct Options {
    /// PEM file of the certificate authorities that the server's certificate must come
    /// from [default: the system's]
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_CA_FILE")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    credentials: Credentials,
}

/// The credentials, and the name of the server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "TLS and credentials")]
pub(crate) struct Credentials {
    /// PEM file of a client certificate
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_CERT_FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM file of the client certificate's key
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_KEY_FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name in the server's certificate, if it differs from the address, for example with
    /// a forwarded port
    #[arg(long, value_name = "NAME", env = "OUTRIGGER_SERVER_NAME")]
    server_name: Option<String>,
    /// File with a bearer token [default for changes on this machine: the one that
    /// `outrigger serve` has written]
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

impl From<Options> for Access {
    fn from(options: Options) -> Self {
        options.credentials.with_authorities(options.ca)
    }
}

impl Credentials {
    /// The access to a server whose certificate must come from the authorities in `ca`.
    pub(crate) fn with_authorities(self, ca: Option<PathBuf>) -> Access {
        let Self { cert, key, server_name, token_file } = self;
        Access { ca, certificate: cert, key, server_name, token_file }
    }
}

impl Options {
    /// The access for a change on the server at `address`. Without credentials it presents the
    /// operator's token that a server on this machine has written. Other machines never receive it.
    ///
    /// # Errors
    /// Others could have placed the file of that token.
    pub(crate) fn for_change(self, address: &str) -> Result<Access, Exit> {
        let mut access = Access::from(self);
        if access.token_file.is_none() && access.certificate.is_none() && is_local(address) {
            let file = operator_file();
            access.token_file = file.exists().map_err(Exit::usage)?.then_some(file.path);
        }
        Ok(access)
    }
}

/// The file of the operator's token of a server on this machine: that of the server's own
/// environment variable, which a command in the same container has too, or the default.
pub(crate) fn operator_file() -> OperatorFile {
    let set = env::var_os(SERVER_TOKEN).filter(|path| !path.is_empty());
    set.map_or_else(OperatorFile::default, |path| OperatorFile {
        path: path.into(),
        private: false,
    })
}

/// True if this machine has the address, `host:port` with or without a scheme.
fn is_local(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

/// The same options for a command that can also call a server for which the environment's
/// settings are not meant; that server must not receive the environment's token.
#[derive(Debug)]
pub(crate) struct Scoped {
    /// Values from the command line and the environment.
    pub(crate) all: Options,
    /// Values from the command line only.
    pub(crate) explicit: Options,
}

impl FromArgMatches for Scoped {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let all = Options::from_arg_matches(matches)?;
        let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let Options { ca, credentials } = all.clone();
        let Credentials { cert, key, server_name, token_file } = credentials;
        let credentials = Credentials {
            cert: cert.filter(|_| given("cert")),
            key: key.filter(|_| given("key")),
            server_name: server_name.filter(|_| given("server_name")),
            token_file: token_file.filter(|_| given("token_file")),
        };
        let explicit = Options { ca: ca.filter(|_| given("ca")), credentials };
        Ok(Self { all, explicit })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Scoped {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_token_stays_on_this_machine() {
        for local in ["127.0.0.1:9901", "localhost:1", "http://[::1]:9901", "https://127.0.0.2:1"] {
            assert!(is_local(local), "{local}");
        }
        for other in ["10.0.0.1:9901", "outrigger:9901", "http://localhost.example:1", "::2:1"] {
            assert!(!is_local(other), "{other}");
        }
    }
}
