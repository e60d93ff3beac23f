//! `outrigger batch verify`.

use std::path::{Path, PathBuf};

use outrigger_batch::{
    EXPECTED, Host, HostVerification, Period, ROW, Sample, Size, Store, TREATMENT, Tolerance,
    Verified, Verifiers, VersionMatch, verify_on_hosts, write_features,
};
use outrigger_core::Selector;
use outrigger_tools::{Access, ModelArgument, validate};
use outrigger_validation::{Files, Format, Options, Progress, Reserved, Root};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::{diff::column_text, exit_of};
use crate::{
    access,
    exit::{self, Exit, Output},
    validate::rows::tolerance,
};

/// The most differences that are listed.
const LISTED: usize = 10;
/// The text in place of a version that is not named.
const NO_VERSION: &str = "no version";

/// Scores a sample of a finished job again, and compares.
///
/// With --server, a running Outrigger predicts from the features in the input's columns, as for
/// online callers: the same version by its digest, and the same transformation. With --host, the
/// hosts of the job, or others of the Open Inference Protocol, score the rows in the way of the
/// job, and the version that they name stands for the digest. They get the token of --token-file, and
/// --ca is for their certificates; settings of the environment are for --server alone. The report says if the versions
/// cannot be compared. The input must not have changed. The exit code is 0 if the scores agree, and
/// 1 if one does not or the version is another.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  outrigger batch verify scored --server localhost:9000
  outrigger batch verify scored --host localhost:8001 --rows 5000")]
pub(crate) struct Arguments {
    /// The output of the finished job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// Address of a gRPC listener of Outrigger.
    #[arg(long, value_name = "ADDRESS", required_unless_present = "host", conflicts_with = "host")]
    server: Option<String>,
    /// The model on the server: name, name:tag or name@sha256:digest [default: that of the job, by
    /// its digest if it is known].
    #[arg(long, value_name = "MODEL", requires = "server")]
    model: Option<ModelArgument>,
    /// The score column that the server's score is compared with [default: the only one].
    #[arg(long, value_name = "COLUMN", requires = "server")]
    score: Option<String>,
    /// host:port or URL of a server of the Open Inference Protocol with the model; may be given
    /// several times.
    #[arg(long, value_name = "ENDPOINT")]
    host: Vec<String>,
    /// The most rows of the sample.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rows: usize,
    /// The number that decides which rows are in the sample.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Absolute tolerance of the comparison, which is added to the relative one.
    #[arg(
        long,
        default_value_t = outrigger_validation::Tolerance::default().atol,
        value_parser = tolerance
    )]
    atol: f64,
    /// Tolerance of the comparison, relative to the score of the job.
    #[arg(
        long,
        default_value_t = outrigger_validation::Tolerance::default().rtol,
        value_parser = tolerance
    )]
    rtol: f64,
    /// Time limit of a request.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    timeout: Period,
    /// The most memory for an answer of a host, while it is received and decoded [default: the
    /// memory of the job].
    #[arg(long, value_name = "SIZE", requires = "host")]
    memory: Option<Size>,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    access: access::Scoped,
}

/// Runs the command.
pub(super) fn run(arguments: Arguments) -> Result<(), Exit> {
    let (passed, report) = match &arguments.server {
        Some(server) => on_server(&arguments, server)?,
        None => on_hosts(&arguments)?,
    };
    match report {
        Report::Text(text) => exit::print(text),
        Report::Json(json) => exit::print_json(&json),
    }?;
    match passed {
        true => Ok(()),
        false => Err(Exit::Failed("the sample is not scored as the job was".to_owned())),
    }
}

/// A report that is ready to be printed.
enum Report {
    Text(String),
    Json(Value),
}

/// The hosts, and the authorities of their certificates. Settings of the environment are for servers
/// of Outrigger, whose token no other host must receive.
fn hosts(arguments: &Arguments) -> Result<(Vec<Host>, Option<PathBuf>), Exit> {
    let Access { ca, certificate, key, server_name, token_file } =
        arguments.access.explicit.clone().into();
    if certificate.is_some() || key.is_some() || server_name.is_some() {
        return Err(Exit::usage("--cert, --key and --server-name need --server"));
    }
    let host = |endpoint: &String| {
        let mut host = Host::new(endpoint);
        host.0.token_file.clone_from(&token_file);
        host
    };
    Ok((arguments.host.iter().map(host).collect(), ca))
}

/// Scores the sample on hosts. Returns true if it agrees.
fn on_hosts(arguments: &Arguments) -> Result<(bool, Report), Exit> {
    let Arguments { rows, seed, atol, rtol, timeout, memory, .. } = *arguments;
    let (hosts, ca) = hosts(arguments)?;
    let store = Store::at(&arguments.job).map_err(exit_of)?;
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Exit::failed)?;
    let found = runtime.block_on(verify_on_hosts(
        &store,
        Sample { rows, seed },
        Verifiers { hosts, ca, timeout, memory },
        (LISTED, Tolerance { atol, rtol }),
    ));
    let found = found.map_err(exit_of)?;
    let report = match arguments.output {
        Output::Json => Report::Json(json!(found)),
        Output::Text => {
            let HostVerification { job, answered, unversioned, version_match, columns } = &found;
            let without = unversioned.then_some(NO_VERSION);
            let answered = answered.iter().map(String::as_str).chain(without);
            let mut text = head(job, answered, *version_match);
            columns.iter().for_each(|column| text.push_str(&column_text(column)));
            Report::Text(text)
        }
    };
    Ok((found.passed(), report))
}

/// Scores the sample on a running Outrigger. Returns true if it agrees.
fn on_server(arguments: &Arguments, server: &str) -> Result<(bool, Report), Exit> {
    let Arguments { rows, seed, atol, rtol, timeout, .. } = *arguments;
    let directory = tempfile::tempdir().map_err(Exit::failed)?;
    let path = directory.path().join("sample.parquet");
    let store = Store::at(&arguments.job).map_err(exit_of)?;
    let sample = Sample { rows, seed };
    let job = write_features(&store, sample, arguments.score.as_deref(), &path);
    let job = job.map_err(exit_of)?;
    let model = model(arguments.model.clone(), &job)?;
    let tolerance = outrigger_validation::Tolerance { atol, rtol };
    let (files, options, progress) = (files(&path), options(tolerance), Progress::default());
    let rows = validate::Rows { files: &files, options: &options, progress: &progress };
    let access = arguments.access.all.clone().into();
    let scored =
        validate::validate_on_server((server, &access), model, rows, Vec::new(), timeout.0);
    let report = exit::block_on(scored)??;
    let digests = report.rows.iter().flat_map(|rows| rows.digests.keys()).map(String::as_str);
    // A digest is no version of a foreign host.
    let digests: Vec<_> = digests.collect();
    let version_match = match job.digest() {
        Some(_) => job.compare(digests.iter().copied()),
        None => VersionMatch::Unknown,
    };
    let passed = report.passed() && version_match != VersionMatch::Different;
    let report = match arguments.output {
        Output::Json => {
            let mut json = json!(job);
            json["answered"] = json!(digests);
            json["version_match"] = json!(version_match);
            json["scores"] = json!(report.rows);
            Report::Json(json)
        }
        Output::Text => {
            let head = head(&job, digests.iter().copied(), version_match);
            Report::Text(format!("{head}{}", report.text()))
        }
    };
    Ok((passed, report))
}

/// The model on the server: that of the argument, or of the job. Its version is the digest of the
/// job, if that is known and the argument names none.
fn model(argument: Option<ModelArgument>, job: &Verified) -> Result<ModelArgument, Exit> {
    let model = match argument {
        Some(model) => model,
        None => job.model.parse::<ModelArgument>().map_err(|error| {
            Exit::usage(format!("the job's model is none of Outrigger, name it: {error}"))
        })?,
    };
    let version = model.version.or_else(|| job.digest().map(Selector::Digest));
    Ok(ModelArgument { version, ..model })
}

fn files(path: &Path) -> Files {
    Files {
        root: Root::Any,
        input: path.to_owned(),
        format: Format::Parquet,
        scores: None,
        overwrite: false,
    }
}

fn options(tolerance: outrigger_validation::Tolerance) -> Options {
    let [user, treatment, expected] = [ROW, TREATMENT, EXPECTED].map(str::to_owned);
    Options { reserved: Reserved { user, treatment, expected }, tolerance, ..Options::default() }
}

/// The beginning of a report: the job, and the comparison of the versions.
fn head<'a>(
    job: &Verified,
    answered: impl Iterator<Item = &'a str>,
    version_match: VersionMatch,
) -> String {
    let Verified { output, model, version, rows } = job;
    let answered: Vec<_> = answered.collect();
    let found = match &answered[..] {
        [] => NO_VERSION.to_owned(),
        versions => versions.join(", "),
    };
    let planned = version.as_deref().unwrap_or(NO_VERSION);
    let versions = match version_match {
        VersionMatch::Same => format!("the same: {found}"),
        VersionMatch::Different => format!("another: {found}, and the job has {planned}"),
        VersionMatch::Unknown => format!(
            "cannot be compared: the job has {planned}, and {found} answered; only the scores say \
             that the models are the same"
        ),
    };
    format!("job      {}, model {model}: {rows} rows\nversion  {versions}\n", output.display())
}
