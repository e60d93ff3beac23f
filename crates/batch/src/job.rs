//! The settings of a job, as its file in YAML has them.

mod column;
mod protocol;
mod value;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use outrigger_tables::Format;
use serde::Deserialize;

use crate::{Error, part::Part};

pub use self::{
    column::ColumnType,
    protocol::{Protocol, Quota},
    value::{Compaction, Host, MaxErrors, Model, OneOrMore, Output, Package, Period, Size, Source},
};
pub(crate) use self::{column::leaf, protocol::CUSTOM_ID, value::datatype};

/// The settings of a job. Those marked *live* may change while it runs, and between two runs of the
/// same job. `ca`, `timeout`, `memory`, `max_errors` and `compact` may change between two runs.
/// `listen` and `token_file` are those of a process, and `output` is the job's place. The plan has
/// the others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The files with the rows: paths, or addresses such as `s3://bucket/key`. Their last part may
    /// have `*` and `?`. A directory, or an address with a slash at its end, stands for the files of
    /// rows below it.
    #[serde(default)]
    pub input: OneOrMore<String>,
    /// The format of the input; the one that the names of the files state if it is absent.
    #[serde(default)]
    pub format: Option<Format>,
    /// The output of a finished job, whose dead letters are the rows in place of `input`.
    #[serde(default)]
    pub retry: Option<PathBuf>,
    /// The directory of the output, or an address such as `s3://bucket/prefix`. It must be empty, or
    /// hold this job.
    pub output: PathBuf,
    /// The format of the files of the output, Parquet or JSON Lines; Parquet if it is absent.
    #[serde(default)]
    pub output_format: Option<Format>,
    /// The protocol of the hosts.
    #[serde(default)]
    pub protocol: Protocol,
    /// The model, by its name on the hosts or as a package. A job with `retry` has that of the first
    /// one without it.
    #[serde(default)]
    pub model: Model,
    /// The hosts, which all have the model; none if it is a package. Live.
    #[serde(default)]
    pub hosts: OneOrMore<Host>,
    /// A file in PEM with the certificate authorities of the hosts; the system's if it is absent.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// The columns of each input tensor. An input that is not named here is read from the column of
    /// its name.
    #[serde(default)]
    pub inputs: BTreeMap<String, Source>,
    /// The types of columns of CSV and JSON Lines, in place of those that the model takes or the
    /// values have.
    #[serde(default)]
    pub columns: BTreeMap<String, ColumnType>,
    /// The input's columns that the output has too; all that the model does not take if it is
    /// absent.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// The output's further columns, each with its output tensor; all tensors under their own names if
    /// it is empty. A type or a shape that is stated here counts in place of that of the hosts.
    #[serde(default)]
    pub outputs: BTreeMap<String, Output>,
    /// The most rows in a request. Live.
    #[serde(default = "defaults::batch_size")]
    pub batch_size: u32,
    /// The most requests in flight at one host. Live.
    #[serde(default = "defaults::concurrency")]
    pub concurrency: u32,
    /// The most rows a second to one host; no limit if it is absent. Live.
    #[serde(default)]
    pub rows_per_second: Option<u32>,
    /// The most requests a minute to one host, for language models. Live.
    #[serde(default)]
    pub requests_per_minute: Option<u32>,
    /// The most tokens a minute at one host, for language models. Live.
    #[serde(default)]
    pub tokens_per_minute: Option<u32>,
    /// The tokens in flight from which on a host gets no further request, for language models. Live.
    #[serde(default)]
    pub tokens_in_flight: Option<u32>,
    /// The time limit of one request.
    #[serde(default = "defaults::timeout")]
    pub timeout: Period,
    /// The most memory for rows, requests and answers.
    #[serde(default = "defaults::memory")]
    pub memory: Size,
    /// The rows of a chunk, which is the unit of a commit. Chosen from the size of rows if absent.
    #[serde(default)]
    pub chunk_rows: Option<u64>,
    /// The dead rows after which the job stops; no limit if absent.
    #[serde(default)]
    pub max_errors: Option<MaxErrors>,
    /// The address of the status page and the metrics; none if it is absent.
    #[serde(default)]
    pub listen: Option<SocketAddr>,
    /// The file with the token that changes on the status page need; none are made if it is absent.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// The worker that this process is; no key of the file.
    #[serde(skip)]
    pub worker: Part,
    /// The compaction of the output after its end.
    #[serde(default)]
    pub compact: Option<Compaction>,
}

/// The values of settings that a job file leaves out.
mod defaults {
    use std::time::Duration;

    use super::{Period, Size};

    pub(super) const fn batch_size() -> u32 {
        256
    }

    pub(super) const fn concurrency() -> u32 {
        64
    }

    pub(super) const fn timeout() -> Period {
        Period(Duration::from_secs(300))
    }

    /// The most bytes of the files that become one.
    pub(super) const fn file_size() -> Size {
        Size(256 << 20)
    }

    pub(super) const fn memory() -> Size {
        Size(512 << 20)
    }
}

/// The memory of a job that states none, in bytes.
pub(crate) const fn default_memory() -> u64 {
    defaults::memory().0
}

/// The least memory of a job: less would not hold one row group of a file.
const LEAST_MEMORY: u64 = 64 << 20;

impl Job {
    /// The job that needs no further settings.
    pub fn new(
        input: Vec<String>,
        output: impl Into<PathBuf>,
        model: &str,
        hosts: Vec<Host>,
    ) -> Self {
        Self {
            input: OneOrMore(input),
            format: None,
            retry: None,
            output: output.into(),
            output_format: None,
            protocol: Protocol::default(),
            model: Model::named(model),
            hosts: OneOrMore(hosts),
            ca: None,
            inputs: BTreeMap::new(),
            columns: BTreeMap::new(),
            keys: None,
            outputs: BTreeMap::new(),
            batch_size: defaults::batch_size(),
            concurrency: defaults::concurrency(),
            rows_per_second: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            tokens_in_flight: None,
            timeout: defaults::timeout(),
            memory: defaults::memory(),
            chunk_rows: None,
            max_errors: None,
            listen: None,
            token_file: None,
            worker: Part::default(),
            compact: None,
        }
    }

    /// Reads a job file.
    ///
    /// # Errors
    /// It is not YAML, or a key is unknown, absent or has a wrong value.
    pub fn read(text: &str) -> Result<Self, Error> {
        serde_saphyr::from_str(text).map_err(Error::usage)
    }

    /// Checks the values that depend on nothing else.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub fn check(&self) -> Result<(), Error> {
        let refused = |key: &str, problem: &str| Err(Error::usage(format!("{key}: {problem}")));
        if self.input.0.is_empty() == self.retry.is_none() {
            return refused("input", "needs a file, or retry a job, and not both");
        }
        match (self.hosts.0.is_empty(), &self.model.package) {
            (true, None) => {
                return refused("hosts", "needs a host, or a package as the model");
            }
            (false, Some(_)) => return refused("hosts", "must be empty: the model is a package"),
            _ => {}
        }
        self.check_protocol()?;
        let names_model = !self.protocol.is_language() && self.retry.is_none();
        if names_model && self.model.name.is_empty() {
            return refused("model", "needs a name");
        }
        if self.output_format == Some(Format::Csv) {
            return refused("output_format", "must be parquet or jsonl");
        }
        if self.batch_size == 0 {
            return refused("batch_size", "must be at least 1");
        }
        if self.concurrency == 0 {
            return refused("concurrency", "must be at least 1");
        }
        if self.rows_per_second == Some(0) {
            return refused("rows_per_second", "must be at least 1");
        }
        if self.timeout.0.is_zero() {
            return refused("timeout", "must be longer than 0");
        }
        if self.chunk_rows == Some(0) {
            return refused("chunk_rows", "must be at least 1");
        }
        if self.compact.as_ref().is_some_and(|compact| compact.to == self.output) {
            return refused("compact", "needs another directory than output");
        }
        if self.memory.0 < LEAST_MEMORY {
            return refused("memory", "must be at least 64MiB");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
