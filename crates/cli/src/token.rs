//! `outrigger token`: the token that a server on this machine has written.

use std::{fs, path::PathBuf};

use crate::{
    access,
    exit::{self, Exit},
};

/// Prints the operator's token: the credential for changes that `outrigger serve` writes
/// where `auth` has none.
///
/// Run it on the server's machine (or in its container) as the server's user.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  kubectl exec deployment/outrigger -- outrigger token > token
  outrigger models load churn --token-file token")]
pub(crate) struct Arguments {
    /// The token's file, the server's auth.token_file [default: as `outrigger serve` chooses it]
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    let found = || {
        let file = access::operator_file();
        file.exists().map_err(Exit::usage).map(|_| file.path)
    };
    let path = arguments.token_file.map_or_else(found, Ok)?;
    let token = fs::read_to_string(&path).map_err(|error| {
        Exit::Failed(format!(
            "{}: {error}; `outrigger serve` writes it when it starts, if `auth` names no callers: \
             run this as its user, with its auth.token_file",
            path.display()
        ))
    })?;
    exit::print(format_args!("{}\n", token.trim()))
}
