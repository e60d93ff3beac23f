//! The columns of files of text, and their types. The model decides about those of its inputs, the
//! job about others, and all values of a column of JSON Lines about what is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::resume_unwind,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use arrow_schema::Schema;
use outrigger_oip::DataType;
use outrigger_tables::{Format, Found, Infer, Leaf, Lists, Scan, TextColumn, Wanted};

use super::{
    Described, Input, InputFile, lacking,
    open::{OpenFile, of_table},
};
use crate::{
    Error,
    columns::InputTensor,
    job::{Job, leaf},
    store::Patience,
};

/// The most files that are scanned at a time.
const SCANS: usize = 4;

/// The columns of the files, whose rows are counted unless that was done before. Blocks.
///
/// # Errors
/// A file cannot be read, or the columns do not match the model or each other.
pub(super) fn describe(
    input: Input,
    tensors: &[InputTensor],
    job: &Job,
) -> Result<Described, Error> {
    let Input { mut files, format, known, .. } = input;
    let typed = typed(tensors, job, (format, &known))?;
    let is_typed = |name: &String| typed.iter().any(|column| column.name == *name);
    let is_known = job.keys.as_ref().is_some_and(|keys| keys.iter().all(is_typed));
    let columns = match is_known && files.iter().all(|file| file.index.is_some()) {
        true => typed,
        false => {
            let infer = match &job.keys {
                Some(keys) => Infer::Only(keys.iter().cloned().collect()),
                None => Infer::All,
            };
            let scans = scan_all(&files, format, &Wanted { typed: typed.clone(), infer })?;
            let optional = optional(tensors, job);
            let columns = match format == Format::Jsonl && scans.iter().all(|scan| scan.rows == 0) {
                // No row names its columns.
                true => wanted(typed, job),
                false => joined(&files, &scans, (&typed, &optional), (format, job))?,
            };
            for (file, scan) in files.iter_mut().zip(scans) {
                if file.picked.is_empty() {
                    file.rows = scan.rows;
                }
                file.index = Some(Arc::new(scan.index));
            }
            columns
        }
    };
    let fields: Vec<_> = columns.iter().map(TextColumn::field).collect();
    Ok(Described { files, schema: Schema::new(fields).into(), columns })
}

/// The columns that a job needs, whatever the files have.
fn wanted(mut typed: Vec<TextColumn>, job: &Job) -> Vec<TextColumn> {
    for key in job.keys.iter().flatten() {
        if !typed.iter().any(|column| column.name == *key) {
            typed.push(TextColumn::of(key, Leaf::Text));
        }
    }
    typed
}

/// The columns whose types are known before the files are read.
fn typed(
    tensors: &[InputTensor],
    job: &Job,
    (format, known): (Format, &[TextColumn]),
) -> Result<Vec<TextColumn>, Error> {
    let mut typed: BTreeMap<String, TextColumn> = BTreeMap::new();
    let declared = job.columns.iter().map(|(name, of)| of.column(name));
    for column in declared.chain(known.iter().cloned()) {
        typed.entry(column.name.clone()).or_insert(column);
    }
    let is_key = |name: &String| job.keys.as_ref().is_some_and(|keys| keys.contains(name));
    let mut needed: BTreeMap<&String, (TextColumn, DataType)> = BTreeMap::new();
    for tensor in tensors {
        for name in tensor.columns.iter().filter(|name| !typed.contains_key(*name)) {
            // A column that is a key too keeps the types of its values, where they have some.
            if format == Format::Jsonl && is_key(name) {
                continue;
            }
            let column = column(name, tensor, format);
            let Some((before, datatype)) = needed.get_mut(name) else {
                needed.insert(name, (column, tensor.datatype));
                continue;
            };
            if before.leaf != column.leaf {
                return Err(Error::usage(format!(
                    "the model takes the column {name:?} as {datatype} and as {}: state its type \
                     under columns",
                    tensor.datatype
                )));
            }
            if column.lists != Lists::Flat {
                *before = column;
            }
        }
    }
    let needed = needed.into_values().map(|(column, _)| column);
    Ok(typed.into_values().chain(needed).collect())
}

/// A column as a tensor needs it: one of several has one value in a row.
fn column(name: &str, tensor: &InputTensor, format: Format) -> TextColumn {
    let has_one = tensor.row.iter().all(|size| *size == 1);
    let is_single = tensor.columns.len() > 1 || format == Format::Csv && has_one;
    let lists = if is_single { Lists::Depth(0) } else { Lists::Flat };
    TextColumn { name: name.to_owned(), leaf: leaf(tensor.datatype), lists }
}

/// Scans files, several at a time.
fn scan_all(files: &[InputFile], format: Format, wanted: &Wanted) -> Result<Vec<Scan>, Error> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(file) = files.get(at) else { break };
            let scan = scan(file, format, wanted);
            if scan.is_err() {
                next.store(files.len(), Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(at, scan);
        }
    };
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..files.len().min(cores).min(SCANS)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    // Where one has failed, later ones were not begun.
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_values().collect()
}

fn scan(file: &InputFile, format: Format, wanted: &Wanted) -> Result<Scan, Error> {
    let open = OpenFile::new(&file.path, format, &Patience::default())?;
    let OpenFile::Text(text) = &open else {
        return Err(Error::failed(format!("{} is no text", file.path.display())));
    };
    let scan = text.scan(wanted).map_err(of_table)?;
    open.check(file)?;
    Ok(scan)
}

/// The columns of all files together.
fn joined(
    files: &[InputFile],
    scans: &[Scan],
    (typed, optional): (&[TextColumn], &BTreeSet<&str>),
    (format, job): (Format, &Job),
) -> Result<Vec<TextColumn>, Error> {
    let needed: Vec<_> =
        typed.iter().filter(|column| !optional.contains(&*column.name)).cloned().collect();
    for (file, scan) in files.iter().zip(scans) {
        check(file, scan, (typed, &needed), format)?;
    }
    let mut names: Vec<&str> = Vec::new();
    let mut found: BTreeMap<&str, Found> = BTreeMap::new();
    for scan in scans {
        for seen in &scan.columns {
            let all = found.entry(&seen.name).or_insert_with(|| {
                names.push(&seen.name);
                Found::default()
            });
            all.merge(seen.found.clone());
        }
    }
    if format == Format::Csv {
        // A column that not all files have is none of the dataset.
        for (file, scan) in files.iter().zip(scans) {
            let lacks = |name: &&str| !scan.columns.iter().any(|seen| seen.name == **name);
            let is_used = |name: &&&str| {
                let is_key = job.keys.iter().flatten().any(|key| key == **name);
                is_key || typed.iter().any(|column| column.name == ***name)
            };
            if let Some(name) = names.iter().filter(|name| lacks(name)).find(is_used) {
                return Err(lacking(&file.path, name));
            }
            names.retain(|name| !lacks(name));
        }
    }
    let column = |name: &&str| {
        let typed = typed.iter().find(|column| column.name == **name).cloned();
        typed.unwrap_or_else(|| found[name].column(name))
    };
    Ok(names.iter().map(column).collect())
}

/// The columns that inputs of the model may leave out.
fn optional<'a>(tensors: &'a [InputTensor], job: &Job) -> BTreeSet<&'a str> {
    let may_be_absent =
        |tensor: &&InputTensor| tensor.is_optional && !job.inputs.contains_key(&tensor.name);
    let columns = tensors.iter().filter(may_be_absent).flat_map(|tensor| &tensor.columns);
    columns.map(String::as_str).collect()
}

/// Checks that a file has the columns that are needed, and values of the types that are known.
fn check(
    file: &InputFile,
    scan: &Scan,
    (typed, needed): (&[TextColumn], &[TextColumn]),
    format: Format,
) -> Result<(), Error> {
    let path = file.path.display();
    let found = |name: &str| scan.columns.iter().find(|seen| seen.name == name);
    for TextColumn { name, leaf, .. } in typed {
        if found(name).is_some_and(|seen| seen.has_values && !seen.fits) {
            let message = format!("input: {path}: no value of the column {name:?} is {leaf}");
            return Err(Error::usage(message));
        }
    }
    if format == Format::Jsonl
        && scan.rows > 0
        && let Some(absent) = needed.iter().find(|column| found(&column.name).is_none())
    {
        let name = &absent.name;
        return Err(Error::usage(format!("input: {path}: no row has a key {name:?}")));
    }
    Ok(())
}
