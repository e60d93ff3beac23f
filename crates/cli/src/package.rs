//! `outrigger push`, `pull`, `inspect`: model packages as images.

use std::{collections::BTreeMap, path::PathBuf};

use outrigger_tools::{
    fetch::Source,
    inspect, package,
    registry::{self, Client, InvalidReference, Progress, Reference},
};

use crate::{
    exit::{self, Exit, Output},
    frameworks,
    progress::{self, bar},
};

/// Packs a model's directory as an image and pushes it.
///
/// DIR mirrors /data of the image: metadata.json, optionally golden.jsonl, and the model,
/// for TensorFlow in tensorflow_serving_model/model/, for XGBoost in xgboost/. The same files give
/// the same digest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger push churn/ registry.example/team/churn:latest")]
pub(crate) struct Push {
    /// The directory.
    directory: PathBuf,
    /// Destination: HOST/REPOSITORY:TAG or oci:DIR:TAG.
    #[arg(value_parser = destination)]
    reference: Reference,
    /// A label of the image; may be given several times.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    registry: Registry,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Pulls an image and writes its package to a directory.
///
/// The directory can be pushed again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger pull registry.example/team/churn:latest churn/")]
pub(crate) struct Pull {
    /// HOST/REPOSITORY[:TAG][@DIGEST] or oci:DIR[:TAG][@DIGEST].
    reference: Reference,
    /// The directory to create.
    directory: PathBuf,
    #[command(flatten)]
    registry: Registry,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Prints an image's contents: digest, size, layers, labels, features, signature.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger inspect registry.example/team/churn:latest\n  \
                        outrigger inspect --key cosign.pub registry.example/team/churn:latest")]
pub(crate) struct Inspect {
    /// HOST/REPOSITORY[:TAG][@DIGEST], oci:DIR[:TAG][@DIGEST], or a directory.
    #[arg(value_name = "REF|DIR", value_parser = Source::parse)]
    source: Source,
    /// PEM file of a public key with which the image must be signed (cosign); with
    /// several keys one signature is enough.
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    #[command(flatten)]
    registry: Registry,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Access to registries. Credentials come from Docker's configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Registry {
    /// A host to call over plain HTTP, as written in references; may be given several
    /// times.
    #[arg(long, value_name = "HOST", env = "OUTRIGGER_PLAIN_HTTP", value_delimiter = ',')]
    plain_http: Vec<String>,
    /// PEM file of additional certificate authorities.
    #[arg(long, value_name = "FILE", env = "OUTRIGGER_CA")]
    ca: Option<PathBuf>,
}

impl Registry {
    /// Creates the client.
    pub(crate) fn client(self) -> Result<Client, Exit> {
        Ok(registry::client(self.plain_http, self.ca)?)
    }
}

/// Runs `push`.
pub(crate) fn push(arguments: Push) -> Result<(), Exit> {
    let Push { directory, reference, labels, registry, output } = arguments;
    let client = registry.client()?;
    let labels: BTreeMap<_, _> = labels.into_iter().collect();
    let push = package::push(&client, &directory, &reference, labels, &frameworks::KNOWN);
    let digest = exit::block_on(with_progress_bar(&Progress::default(), push))??;
    print_digest(output, &reference, &digest.to_string())
}

/// Runs `pull`.
pub(crate) fn pull(arguments: Pull) -> Result<(), Exit> {
    let Pull { reference, directory, registry, output } = arguments;
    let client = registry.client()?;
    let progress = Progress::default();
    let pull = package::pull(&client, &reference, &directory, &frameworks::KNOWN, &progress);
    let digest = exit::block_on(with_progress_bar(&progress, pull))??;
    print_digest(output, &reference, &digest.to_string())
}

/// Runs `inspect`.
pub(crate) fn inspect(arguments: Inspect) -> Result<(), Exit> {
    let Inspect { source, keys, registry, output } = arguments;
    let keys = inspect::read_keys(&keys)?;
    let client = registry.client()?;
    let progress = Progress::default();
    let inspect = inspect::inspect(&client, &source, &keys, &frameworks::KNOWN, &progress);
    let report = exit::block_on(with_progress_bar(&progress, inspect))??;
    match output {
        Output::Text => exit::print(report.text()),
        Output::Json => exit::print_json(&serde_json::json!(report)),
    }
}

fn print_digest(output: Output, reference: &Reference, digest: &str) -> Result<(), Exit> {
    match output {
        Output::Text => exit::print(format_args!("{digest}\n")),
        Output::Json => {
            exit::print_json(&serde_json::json!({"reference": reference, "digest": digest}))
        }
    }
}

/// A reference with a tag or a digest: with both, the tag would not be moved.
fn destination(text: &str) -> Result<Reference, String> {
    let tagged = text.rsplit_once('@').and_then(|(name, _)| name.parse::<Reference>().ok());
    if tagged.is_some_and(|name| name.tag().is_some()) {
        return Err("push to a tag or to a digest, not to both".to_owned());
    }
    text.parse().map_err(|error: InvalidReference| error.to_string())
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a label is written NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Waits for `work`; on a terminal it shows a spinner and the bytes received.
pub(crate) async fn with_progress_bar<T>(progress: &Progress, work: impl Future<Output = T>) -> T {
    let bar = bar("{spinner} {elapsed} {bytes} {binary_bytes_per_sec}");
    progress::follow(&bar, |bar| bar.set_position(progress.bytes()), work).await
}
