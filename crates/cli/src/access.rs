//! Options for access to a server, shared by all commands.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};
use outrigger_tools::Access;

/// TLS and credentials.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "TLS and credentials")]
pub(crate) struct Options {
    /// PEM file of the certificate authorities that the server's certificate must come
    /// from [default: the system's]
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_CA_FILE")]
    ca: Option<PathBuf>,
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
        let Options { ca, cert, key, server_name, token_file } = all.clone();
        let explicit = Options {
            ca: ca.filter(|_| given("ca")),
            cert: cert.filter(|_| given("cert")),
            key: key.filter(|_| given("key")),
            server_name: server_name.filter(|_| given("server_name")),
            token_file: token_file.filter(|_| given("token_file")),
        };
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
