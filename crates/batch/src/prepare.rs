//! The preparation of a job: matches the input with the model and measures a first answer, before
//! anything is written.

use std::time::Duration;

use arrow_schema::Schema;
use http::StatusCode;
use outrigger_core::Digest;
use outrigger_dispatch::HostId;
use outrigger_oip::metadata::ModelMetadata;
use outrigger_oip_client::{Failure, ModelRef, Request, Status};
use outrigger_tables::{Format, LineWriter, TextColumn};
use tokio::time::Instant;
use tonic::Code;

use crate::{
    Answer, Description, Error,
    columns::{
        InputTensor, check_outputs, present_inputs, resolve_inputs, resolve_keys, resolve_outputs,
    },
    decode,
    encode::encode,
    hosts::Hosts,
    input::{Described, Input, Reading, Rows},
    job::{Job, Protocol},
    language,
    memory::Allowance,
    plan::{Plan, Scoring},
    readers::{self, batch_rows},
    store::Patience,
};

/// The time limit of a question to a host.
const QUESTION: Duration = Duration::from_secs(30);
/// The most rows of the first request, and those that are tried alone if it fails.
const FIRST_ROWS: u64 = 64;
const ROWS_ALONE: usize = 8;
/// The bytes of a chunk in memory, if the job does not set its rows, and its most rows then.
const CHUNK_BYTES: u64 = 64 << 20;
const CHUNK_ROWS: u64 = 100_000;

/// The plan of a new job.
///
/// # Errors
/// The input or the model does not match the job's settings, or no host answers.
pub(crate) async fn prepare(
    job: &Job,
    input: Input,
    (hosts, numbers): (&Hosts, &[HostId]),
) -> Result<Plan, Error> {
    let has_lines = job.protocol.is_language();
    let Description { metadata, optional } = describe(job, hosts, numbers).await?;
    check_outputs(&job.outputs, &metadata.outputs)?;
    let inputs = resolve_inputs((&metadata.inputs, &optional), &job.inputs)?;
    let format = input.format;
    let input = if has_lines { input.with_types(language::columns()) } else { input };
    let Described { files, schema, columns } = described(input, &inputs, job).await?;
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
        inputs,
        keys,
        outputs: Vec::new(),
        chunk_rows: job.chunk_rows.unwrap_or(chunk_rows(job.protocol)),
        output_format,
    };
    scoring.types = needed(columns, &scoring.columns(), job)?;
    let rows = first_rows(&scoring)?;
    let mut request = readers::request(&scoring);
    request.outputs = job.outputs.values().map(|tensor| tensor.as_str().into()).collect();
    request.outputs.sort_unstable();
    request.outputs.dedup();
    let (answer, row_bytes) =
        first_answer(&rows, &scoring.inputs, (job, request), hosts, numbers).await?;
    scoring.outputs = resolve_outputs(&job.outputs, &scoring.keys, (&answer.outputs, &metadata))?;
    decode::check(&answer.outputs, &scoring.outputs)
        .map_err(|fault| Error::failed(format!("the first answer: {fault}")))?;
    if has_lines {
        language::mark_json(&mut scoring.outputs);
    }
    pin(&mut scoring, answer.version, &metadata)?;
    let count = answer.outputs.first().and_then(|output| output.shape.first()).copied();
    let count = count.and_then(|rows| u64::try_from(rows).ok()).unwrap_or(1).max(1);
    let bytes: usize = answer.outputs.iter().map(|output| output.data.len()).sum();
    let answer_bytes = (bytes as u64).div_ceil(count);
    let chunk =
        (CHUNK_BYTES / (row_bytes + answer_bytes).max(1)).clamp(1, chunk_rows(job.protocol));
    scoring.chunk_rows = job.chunk_rows.unwrap_or(chunk);
    Plan::new(scoring, answer_bytes)
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

/// The description of the model by the first host that answers.
async fn describe(job: &Job, hosts: &Hosts, numbers: &[HostId]) -> Result<Description, Error> {
    let model = ModelRef { name: &job.model.name, version: job.model.version.as_deref() };
    let mut failures = Vec::new();
    for number in numbers {
        let Some(endpoint) = hosts.endpoint(*number) else { continue };
        match endpoint.describe(model, Instant::now() + QUESTION).await {
            Ok(description) => return Ok(description),
            Err(failure) if failure.is_not_served() => {
                let message = format!("the model {:?} is not there: {failure}", model.name);
                return Err(Error::Usage(message));
            }
            Err(failure) if is_unknown(&failure) => return Ok(Description::default()),
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    Err(Error::failed(format!("no host answers: {}", failures.join("; "))))
}

/// True if the host does not describe models.
fn is_unknown(failure: &Failure) -> bool {
    matches!(
        failure.status,
        Status::Grpc(Code::Unimplemented)
            | Status::Http(StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
    )
}

/// The first rows of the input.
fn first_rows(scoring: &Scoring) -> Result<Rows, Error> {
    let file = scoring.files.iter().find(|file| file.rows > 0);
    let file = file.ok_or_else(|| Error::usage("input: the files have no rows"))?;
    let end = file.rows.min(FIRST_ROWS);
    let mut rows = Reading::new(scoring, file, 0..end, &Patience::default())?;
    let rows = rows.next(FIRST_ROWS as usize)?;
    rows.ok_or_else(|| Error::failed(format!("{} ends early", file.path.display())))
}

/// The answer of any host for the first rows, and the bytes of one of them. Rows are tried alone if
/// they fail together: one of them may be at fault.
async fn first_answer(
    rows: &Rows,
    inputs: &[InputTensor],
    (job, request): (&Job, Request),
    hosts: &Hosts,
    numbers: &[HostId],
) -> Result<(Answer, u64), Error> {
    let count = rows.table.num_rows();
    let whole = (0, count.min(batch_rows(job.protocol, job.batch_size) as usize));
    let alone = (0..count.min(ROWS_ALONE)).map(|row| (row, 1));
    let mut reason = "the first rows are not valid".to_owned();
    for (start, count) in std::iter::once(whole).chain(alone) {
        let encoded = encode(&rows.slice(start, count), inputs);
        if encoded.rows.is_empty() {
            if let Some((_, invalid)) = encoded.invalid.into_iter().next() {
                reason = invalid;
            }
            continue;
        }
        let count = encoded.rows.len() as u64;
        let bytes: usize = encoded.tensors.iter().map(|tensor| tensor.data.len()).sum();
        let mut request = Request { inputs: encoded.tensors, rows: Some(count), ..request.clone() };
        for number in numbers {
            let Some(endpoint) = hosts.endpoint(*number) else { continue };
            request.deadline = Instant::now() + job.timeout.0;
            match endpoint.infer(&request, &Allowance::unlimited()).await {
                Ok(answer) => return Ok((answer, (bytes as u64).div_ceil(count))),
                Err(failure) => reason = failure.to_string(),
            }
        }
    }
    Err(Error::failed(format!("the first rows cannot be scored: {reason}")))
}
