//! Compaction: the many small files of a finished job become few large ones, in another output.
//!
//! Consecutive files become one in a tree of steps, each of which has at most 16 files. Every file
//! is an object that is created once, whose name follows from the plan of the compaction alone, so
//! a compaction that was ended at any moment goes on with the files that are missing.

mod merge;
mod tree;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use outrigger_tables::{Format, TextColumn, may_pass};
use serde::{Deserialize, Serialize};

use self::{
    merge::Merger,
    tree::{Node, PARTS, ROOTS, missing, roots},
};
use crate::{
    Error, Manifest, Store,
    commit::{self, DEAD, DataFile, MANIFEST},
    finished::{self, Form},
    plan::Plan,
};

/// The name of the plan of a compaction.
const COMPACTION: &str = "compaction.json";
/// The form of the plan that this version writes and reads.
const FORMAT: u32 = 1;
/// The object with all dead letters.
const DEAD_LETTERS: &str = "dead/all.jsonl";
/// The most threads that make files.
const MOST_THREADS: usize = 4;

/// The settings of a compaction, which are written once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CompactionPlan {
    format: u32,
    /// The job whose output it is.
    source: Source,
    /// The most bytes of the job's files that become one.
    file_size: u64,
    /// The most files that become one in a step.
    fan_in: usize,
}

/// The output that a compaction has the rows of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The name of the job.
    pub job: String,
    /// The fingerprint of its plan.
    pub fingerprint: String,
    /// The BLAKE3 hash of its manifest, which names its files with their hashes.
    pub manifest_blake3: String,
}

/// The manifest of a compaction. It is written last, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// The output whose rows these are.
    pub source: Source,
    /// Its location at that time.
    pub source_output: PathBuf,
    /// The name of the model.
    pub model: String,
    /// The version of the model that scored all rows, if the hosts name one.
    pub version: Option<String>,
    /// The rows of the job's input.
    pub rows: u64,
    /// The rows of the output.
    pub scored: u64,
    /// The dead letters.
    pub dead: u64,
    /// The format of the files.
    #[serde(default = "parquet")]
    pub format: Format,
    /// The columns of JSON Lines; Parquet states its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<TextColumn>,
    /// The columns with the values of output tensors.
    pub scores: Vec<String>,
    /// Bytes of an answer for one row, as the job's first answer had them.
    pub answer_bytes: u64,
    /// The files, in the order of the job's manifest.
    pub files: Vec<CompactedFile>,
    /// The dead letters, in that order; `None` if there are none.
    pub dead_letters: Option<DataFile>,
}

/// A file of a compaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedFile {
    /// The file.
    #[serde(flatten)]
    pub file: DataFile,
    /// Its rows.
    pub rows: u64,
    /// The number of the job's files that it has the rows of.
    pub files: usize,
}

/// The format of a compaction that names none.
fn parquet() -> Format {
    Format::Parquet
}

impl Compacted {
    /// The format of the files, with their columns.
    pub(crate) fn form(&self) -> Form {
        match self.format {
            Format::Parquet => Form::Parquet,
            _ => Form::Lines(self.columns.clone()),
        }
    }

    /// The manifest of the compaction in a store; `None` if there is something else there.
    ///
    /// # Errors
    /// The compaction is not finished, or cannot be read.
    pub fn open(store: &Store) -> Result<Option<Self>, Error> {
        if !is_compaction(store)? {
            return Ok(None);
        }
        let root = store.root().display();
        let manifest = commit::read(store, MANIFEST)?;
        let missing = || Error::usage(format!("the compaction {root} is not finished"));
        manifest.ok_or_else(missing).map(Some)
    }
}

/// True if a store has a compaction, finished or not.
///
/// # Errors
/// The store failed.
pub(crate) fn is_compaction(store: &Store) -> Result<bool, Error> {
    store.exists(COMPACTION).map_err(|error| Error::store(COMPACTION, &error))
}

/// Makes few files of those of the finished job in `source`, in the new output `to`: each has the
/// rows of consecutive files that have at most `file_size` bytes together. Goes on with a
/// compaction that was begun there. Blocks.
///
/// # Errors
/// The job is not finished, a file of it is missing or was changed, or `to` has something else.
pub fn compact(source: &Store, to: &Store, file_size: u64) -> Result<Compacted, Error> {
    let (plan, manifest) = finished::job(source)?;
    let described = finished::describe(source, MANIFEST)?;
    let source_of = Source {
        job: manifest.job.clone(),
        fingerprint: manifest.fingerprint.clone(),
        manifest_blake3: described.blake3,
    };
    begin(to, &source_of, file_size)?;
    let files: Vec<_> = manifest.files().cloned().collect();
    let sizes: Vec<_> = files.iter().map(|file| file.bytes).collect();
    let roots = roots(&sizes, file_size);
    if commit::read::<Compacted>(to, MANIFEST)?.is_none() {
        let form = Form::of(&plan.scoring);
        let (format, answer_bytes) = (form.format(), plan.answer_bytes);
        let merger = Merger { source, to, files: &files, format, answer_bytes };
        let mut is_there = |node: &Node| {
            to.exists(&node.name(format)).map_err(|error| Error::store(ROOTS, &error))
        };
        for level in missing(&roots, &mut is_there)? {
            in_parallel(&level, |node| merger.merge(node))?;
        }
        merger.letters(&manifest, DEAD_LETTERS)?;
        let compacted = described_as((source, source_of), (&plan, &manifest), (to, &roots), &form)?;
        let json = commit::json(&compacted)?;
        to.create(MANIFEST, &json).map_err(|error| Error::store(MANIFEST, &error))?;
    }
    let compacted = commit::read::<Compacted>(to, MANIFEST)?;
    let compacted = compacted.ok_or_else(|| Error::failed("the manifest was removed"))?;
    sweep(to).map_err(|error| Error::store(PARTS, &error))?;
    Ok(compacted)
}

/// Writes the plan of the compaction, or checks the one that is there.
fn begin(to: &Store, source: &Source, file_size: u64) -> Result<(), Error> {
    let (source, fan_in) = (source.clone(), tree::FAN_IN);
    let plan = CompactionPlan { format: FORMAT, source, file_size, fan_in };
    if !is_compaction(to)? {
        let root = to.root().display();
        match to.is_empty() {
            Ok(true) => {}
            Ok(false) => {
                let problem = format!("{root} exists already and is not a compaction");
                return Err(Error::usage(problem));
            }
            Err(error) => {
                return Err(Error::of_settings(format!("{root}: {error}"), may_pass(&error)));
            }
        }
        let json = commit::json(&plan)?;
        to.create(COMPACTION, &json).map_err(|error| Error::store(COMPACTION, &error))?;
    }
    let found = commit::read::<CompactionPlan>(to, COMPACTION)?;
    if found.as_ref() == Some(&plan) {
        return Ok(());
    }
    let root = to.root().display();
    Err(Error::usage(format!(
        "{root} has the compaction of another output, or with another size of files: choose \
         another directory"
    )))
}

/// The manifest of the files that are there.
fn described_as(
    (source, source_of): (&Store, Source),
    (plan, manifest): (&Plan, &Manifest),
    (to, roots): (&Store, &[Node]),
    form: &Form,
) -> Result<Compacted, Error> {
    let file = |node: &Node| {
        let (file, rows) = counted(to, &node.name(form.format()), form.format())?;
        Ok(CompactedFile { file, rows, files: node.files.len() })
    };
    let files = roots.iter().map(file).collect::<Result<Vec<_>, Error>>()?;
    let rows: u64 = files.iter().map(|file| file.rows).sum();
    if rows != manifest.scored {
        let scored = manifest.scored;
        return Err(Error::failed(format!("the files have {rows} rows, and the job has {scored}")));
    }
    let has_letters = manifest.dead_letters().next().is_some();
    let dead_letters = has_letters.then(|| finished::describe(to, DEAD_LETTERS)).transpose()?;
    Ok(Compacted {
        source: source_of,
        source_output: source.root().to_owned(),
        model: plan.scoring.model.clone(),
        version: plan.scoring.version.clone(),
        rows: manifest.rows,
        scored: manifest.scored,
        dead: manifest.dead,
        format: form.format(),
        columns: form.columns().to_vec(),
        scores: plan.scoring.outputs.iter().map(|output| output.column.clone()).collect(),
        answer_bytes: plan.answer_bytes,
        files,
        dead_letters,
    })
}

/// A file of the new output, and the number of its rows.
fn counted(to: &Store, name: &str, format: Format) -> Result<(DataFile, u64), Error> {
    if format == Format::Parquet {
        return Ok((finished::describe(to, name)?, finished::parquet(to, name)?.rows()));
    }
    let mut lines = Lines(0);
    let file = finished::copy(to, name, &mut lines)?;
    Ok((file, lines.0))
}

/// Counts the line feeds of what is written.
struct Lines(u64);

impl Write for Lines {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0 += data.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes the parts, and the files that were never finished.
fn sweep(to: &Store) -> io::Result<()> {
    for name in to.list(PARTS)?.iter().filter(|name| commit::is_own(name)) {
        to.remove(&format!("{PARTS}/{name}"))?;
    }
    [PARTS, ROOTS, DEAD, ""].into_iter().try_for_each(|directory| to.sweep(directory))
}

/// Calls `work` for all items, on several threads. After an error no further item is begun.
fn in_parallel<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let has_failed = || failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    thread::scope(|scope| {
        for _ in 0..cores.min(MOST_THREADS).min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Relaxed)) {
                    if has_failed() {
                        break;
                    }
                    if let Err(error) = work(item) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
