//! The preparation of a job: matches the input with the model and measures a first answer, before
//! anything is written.

mod agreement;
mod describe;
mod samples;
pub(crate) mod suspect;
#[cfg(test)]
mod tests;
mod trial;

use arrow_schema::Schema;
use outrigger_core::Digest;
use outrigger_dispatch::HostId;
use outrigger_oip::metadata::ModelMetadata;
use outrigger_oip_client::Request;
use outrigger_tables::{Format, LineWriter, TextColumn};

use self::{
    agreement::Agreement, describe::describe, samples::Samples, suspect::Suspect, trial::Trial,
};
use crate::{
    Description, Error,
    columns::{
        InputTensor, OutputColumn, check_columns_apart, expected_outputs, present_inputs, remarks,
        resolve_inputs, resolve_keys,
    },
    encode::encode,
    hosts::Hosts,
    input::{Described, Input, InputFile, Reading},
    job::{Job, Protocol},
    language,
    memory::Memory,
    plan::{Plan, Scoring},
    readers,
    store::Patience,
};

/// The bytes of a chunk in memory, if the job does not set its rows, and its most rows then.
const CHUNK_BYTES: u64 = 64 << 20;
const CHUNK_ROWS: u64 = 100_000;

/// The knowledge from the first answers of a job.
#[derive(Debug, Clone)]
struct Learned {
    columns: Vec<OutputColumn>,
    /// The version that answered, if the hosts name one.
    version: Option<String>,
    /// The bytes of an answer, and of the inputs, for one row.
    answer_bytes: u64,
    row_bytes: u64,
    /// The file and the number of a row that was scored.
    scored: InputFile,
    /// The rows that may have ended hosts.
    suspects: Vec<Suspect>,
}

/// The plan of a new job, with the rows that may have ended a host while it was made. `memory` is for
/// rows, requests and answers.
///
/// # Errors
/// The input or the model does not match the job's settings, no host scores a row, or a row is larger
/// than the memory.
pub(crate) async fn prepare(
    job: &Job,
    mut input: Input,
    (hosts, numbers): (&Hosts, &[HostId]),
    memory: Memory,
) -> Result<Plan, Error> {
    let has_lines = job.protocol.is_language();
    let Description { mut metadata, optional } = describe(job, hosts, numbers).await?;
    if job.model.row_by_row {
        metadata.add_rows();
    }
    let expected = expected_outputs(&job.outputs, &metadata.outputs)?;
    let inputs = resolve_inputs((&metadata.inputs, &optional), &job.inputs)?;
    let (format, scored) = (input.format, std::mem::take(&mut input.scored));
    let input = if has_lines { input.with_types(language::columns()) } else { input };
    let Described { files, schema, columns } = described(input, &inputs, job).await?;
    let remarks = remarks(&inputs, &job.inputs, &schema);
    let inputs = present_inputs(inputs, &job.inputs, &schema)?;
    let keys = resolve_keys(job.keys.as_deref(), &inputs, &schema)?;
    let output_format = job.output_format.unwrap_or(Format::Parquet);
    check_form(&keys, &schema, output_format)?;
    let mut scoring = Scoring {
        files,
        format,
        types: Vec::new(),
        protocol: job.protocol,
        model: job.model.name.clone(),
        version: job.model.version.clone(),
        tag: None,
        is_pinned: job.model.version.is_some(),
        row_by_row: job.model.row_by_row,
        inputs,
        keys,
        outputs: Vec::new(),
        chunk_rows: job.chunk_rows.unwrap_or(chunk_rows(job.protocol)),
        output_format,
    };
    scoring.types = needed(columns, &scoring.columns(), job)?;
    if scoring.rows() == 0 {
        scoring.outputs = expected.without_answer().ok_or_else(|| {
            Error::usage("input: the files have no rows, and the hosts do not describe the outputs")
        })?;
        check_columns_apart(&scoring.outputs, &scoring.keys)?;
        return Ok(Plan { remarks, ..Plan::new(scoring, 0)? });
    }
    let mut request = readers::request(&scoring);
    request.outputs = expected.tensors().map(Into::into).collect();
    request.outputs.sort_unstable();
    request.outputs.dedup();
    let samples = Samples::new((scoring.clone(), memory.clone()), job.batch_size, scored);
    let agreement = Agreement::new(expected);
    let trial =
        Trial::new((samples, agreement), (request, job.timeout.0), (hosts, numbers), memory);
    let Learned { columns, version, answer_bytes, row_bytes, scored, suspects } =
        trial.run().await?;
    check_columns_apart(&columns, &scoring.keys)?;
    scoring.outputs = columns;
    if has_lines {
        language::mark_json(&mut scoring.outputs);
    }
    pin(&mut scoring, version, &metadata)?;
    let chunk =
        (CHUNK_BYTES / (row_bytes + answer_bytes).max(1)).clamp(1, chunk_rows(job.protocol));
    scoring.chunk_rows = job.chunk_rows.unwrap_or(chunk);
    let plan = Plan::new(scoring, answer_bytes)?;
    let reference = Some(scored);
    let row_bytes = readers::COPIES * row_bytes;
    Ok(Plan { reference, row_bytes, memory: job.memory.0, suspects, remarks, ..plan })
}

/// The request of the row that a host has scored before the job began. Blocks.
///
/// # Errors
/// Its file cannot be read, or has changed.
pub(crate) fn reference(scoring: &Scoring, file: &InputFile) -> Result<Option<Request>, Error> {
    let mut reading = Reading::new(scoring, file, 0..1, &Patience::default())?;
    let Some(rows) = reading.next(1)? else { return Ok(None) };
    let encoded = encode(&rows, &scoring.inputs);
    let (inputs, rows) = (encoded.tensors, encoded.rows.len() as u64);
    let request = Request { inputs, rows: Some(rows), ..readers::request(scoring) };
    Ok(Some(request).filter(|_| rows == 1))
}

/// The most rows of a chunk, if the job does not set them.
fn chunk_rows(protocol: Protocol) -> u64 {
    if protocol.is_language() { language::CHUNK_ROWS } else { CHUNK_ROWS }
}

/// The rows and the columns of the input, which may be read as a whole.
async fn described(input: Input, inputs: &[InputTensor], job: &Job) -> Result<Described, Error> {
    let (inputs, job) = (inputs.to_vec(), job.clone());
    let work = move || input.describe(&inputs, &job);
    tokio::task::spawn_blocking(work).await.map_err(Error::failed)?
}

/// Checks that the output's format has a form for the types of the keys.
fn check_form(keys: &[String], schema: &Schema, format: Format) -> Result<(), Error> {
    if format != Format::Jsonl {
        return Ok(());
    }
    let keys = schema.fields().iter().filter(|field| keys.contains(field.name())).cloned();
    let keys = Schema::new(keys.collect::<Vec<_>>());
    LineWriter::<Vec<u8>>::check(&keys)
        .map_err(|fault| Error::usage(format!("keys: {fault}; leave it out, or write Parquet")))
}

/// The columns of text that are read, in the order of `names`.
fn needed(columns: Vec<TextColumn>, names: &[&str], job: &Job) -> Result<Vec<TextColumn>, Error> {
    if let Some(unused) = job.columns.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(Error::usage(format!(
            "columns: {unused:?} is neither a key nor a column of an input"
        )));
    }
    let find = |name: &&str| columns.iter().find(|column| column.name == **name).cloned();
    Ok(names.iter().filter_map(find).collect())
}

/// Sets the version of the model: the one that has answered. Requests name it if the hosts list it,
/// or if the job names a version. That name may be a tag: Outrigger's front answers with the digest
/// that the tag stands for.
fn pin(
    scoring: &mut Scoring,
    answered: Option<String>,
    metadata: &ModelMetadata,
) -> Result<(), Error> {
    let Some(version) = answered else { return Ok(()) };
    let is_digest = |version: &str| version.parse::<Digest>().is_ok();
    if let Some(wanted) = scoring.version.take_if(|wanted| *wanted != version) {
        if is_digest(&version) && !is_digest(&wanted) {
            (scoring.tag, scoring.version) = (Some(wanted), Some(version));
            return Ok(());
        }
        let model = &scoring.model;
        return Err(Error::failed(format!(
            "the model {model} answers with version {version}, not {wanted}, the one of the job"
        )));
    }
    scoring.is_pinned |= metadata.versions.contains(&version);
    scoring.version = Some(version);
    Ok(())
}
