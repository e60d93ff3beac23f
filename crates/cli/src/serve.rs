//! `outrigger serve`: the control plane.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use outrigger_server::{
    Config, Error, Kinds, causes,
    config::{self, Invalid, Loaded, Source},
};

use crate::{
    allocator,
    exit::{self, Exit},
};

/// The share of the budget of memory that freed blocks of more than 2 MiB may take: one in this many
/// bytes, out of the quarter that no account has.
const LARGE_BLOCKS: u64 = 16;

/// Serves predictions: pulls models, keeps them loaded in the engine, converts features
/// to tensors and scores to answers.
#[derive(Debug, Args)]
#[command(after_help = "\
Settings come from defaults, then the file, then the environment (OUTRIGGER_SERVER_GRPC for
server.grpc), then flags. docs/configuration.md lists them all.

Example:
  outrigger serve --config outrigger.yaml --set server.max_in_flight=64")]
pub(crate) struct Arguments {
    /// The configuration file, YAML.
    #[arg(long, short, value_name = "FILE", env = "OUTRIGGER_CONFIG")]
    config: Option<PathBuf>,

    /// Sets one key, for example store.max_size=5GiB; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,

    #[command(flatten)]
    common: Common,

    /// Checks the configuration and exits.
    #[arg(long, conflicts_with = "dump_config")]
    check_config: bool,

    /// Prints the effective configuration with the source of each value, and exits.
    #[arg(long)]
    dump_config: bool,

    /// Prints a generated page of the documentation, and exits.
    #[arg(long, value_name = "PAGE", hide = true)]
    print_reference: Option<Page>,
}

/// Short forms of common settings; `--set` takes precedence.
#[derive(Debug, Args)]
struct Common {
    /// server.grpc: listener for gRPC.
    #[arg(long, value_name = "ADDRESS:PORT")]
    grpc: Option<String>,

    /// server.http: listener for HTTP and JSON.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<String>,

    /// server.health: listener for /healthz, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    health: Option<String>,

    /// server.admin: listener for changes.
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<String>,

    /// engine.endpoint: host:port or unix:/path.
    #[arg(long, value_name = "ENDPOINT")]
    engine: Option<String>,

    /// store.path: the model store's directory.
    #[arg(long, value_name = "DIR")]
    store: Option<String>,

    /// images.repository: source of models that are not listed.
    #[arg(long, value_name = "REFERENCE")]
    repository: Option<String>,

    /// log.format: text or json.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

/// Pages of documentation that are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Page {
    Configuration,
    Errors,
    Metrics,
    Openapi,
}

impl Common {
    fn overrides(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = [
            ("server.grpc", &self.grpc),
            ("server.http", &self.http),
            ("server.health", &self.health),
            ("server.admin", &self.admin),
            ("engine.endpoint", &self.engine),
            ("store.path", &self.store),
            ("images.repository", &self.repository),
            ("log.format", &self.log_format),
        ];
        pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)))
    }
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    if let Some(page) = arguments.print_reference {
        return exit::print(reference(page));
    }
    let overrides = arguments.common.overrides().chain(arguments.set).collect();
    let source = open(arguments.config, overrides)?;
    let loaded = source.load().map_err(invalid)?;
    if arguments.dump_config {
        return exit::print(loaded.dump());
    }
    report_ignored(&loaded);
    if arguments.check_config {
        return exit::print("the configuration is valid\n");
    }
    set_up_allocator(&loaded.config)?;
    outrigger_server::run(loaded.config, source).map_err(failed)
}

fn reference(page: Page) -> String {
    match page {
        Page::Configuration => config::reference_markdown(),
        Page::Errors => outrigger_server::errors_markdown(),
        Page::Metrics => outrigger_server::metrics::reference_markdown(),
        Page::Openapi => outrigger_server::openapi_document(),
    }
}

/// The settings of a file, of the environment and of flags; later flags replace earlier ones.
pub(crate) fn open(
    file: Option<PathBuf>,
    overrides: Vec<(String, String)>,
) -> Result<Source, Exit> {
    // Ignores variables that are not UTF-8, since no setting is.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Source::open(Kinds::shipped(), file, environment.collect(), overrides)
        .map_err(|error| Exit::Usage(format!("cannot read {error}")))
}

/// Reports variables with the prefix of settings that name none.
pub(crate) fn report_ignored(loaded: &Loaded) {
    for name in &loaded.ignored {
        exit::report(format_args!("the environment variable {name} does not name a setting"));
    }
}

/// Gives the allocator its share of the budget of memory.
pub(crate) fn set_up_allocator(config: &Config) -> Result<(), Exit> {
    let large = usize::try_from(config.memory() / LARGE_BLOCKS).unwrap_or(usize::MAX);
    allocator::cache_large_blocks(large);
    allocator::purge_aside()
        .map_err(|error| Exit::Failed(format!("no thread for freed memory: {error}")))
}

pub(crate) fn invalid(invalid: Invalid) -> Exit {
    Exit::Usage(format!("the configuration is not valid\n{invalid}"))
}

pub(crate) fn failed(error: Error) -> Exit {
    let text = causes(&error);
    match error {
        Error::Config(_) => Exit::Usage(text),
        _ => Exit::Failed(text),
    }
}

pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}
