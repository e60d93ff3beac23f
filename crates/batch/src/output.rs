//! The output of a chunk: the file of its rows, its dead letters, and its commit.

pub(crate) mod hashed;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use outrigger_oip::Tensor;
use outrigger_oip_client::part_of;
use outrigger_tables::Format;
use serde::Serialize;

use self::{hashed::Hashed, rows::RowFile};
use crate::{
    Error,
    batch::{Death, Settled, ToOutput},
    columns::OutputColumn,
    commit::{Commit, DATA, DEAD, DataFile},
    decode::{self, decode},
    input::InputFile,
    language::custom_id,
    memory::Charge,
    plan::Chunk,
    progress::Counts,
    store::{NewObject, Store},
};

/// The settings of all outputs of a job.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) store: Store,
    /// The format of the files with rows.
    pub(crate) format: Format,
    pub(crate) schema: SchemaRef,
    pub(crate) columns: Vec<OutputColumn>,
    pub(crate) version: Option<String>,
    pub(crate) counts: Counts,
    /// The time after which the rows of a chunk that are written are committed as a part.
    pub(crate) part: Duration,
    /// True if a job that stops commits what is written.
    pub(crate) keeps_parts: AtomicBool,
    /// Held by the one output that decodes rows although the memory has no room for their columns.
    pub(crate) turn: Mutex<()>,
}

/// The memory of columns while they are decoded and written.
enum Room<'a> {
    Charged {
        _charge: Charge,
    },
    /// There is none. Only one output is in this state, so that the others give memory back.
    Alone {
        _turn: MutexGuard<'a, ()>,
    },
}

impl Outputs {
    /// Takes memory for columns beside the answer with this charge. An output never waits for memory,
    /// which it is about to give back.
    fn room(&self, beside: &Charge, bytes: u64) -> Room<'_> {
        let mut charge = beside.beside();
        match charge.grow(bytes, false) {
            true => Room::Charged { _charge: charge },
            false => {
                Room::Alone { _turn: self.turn.lock().unwrap_or_else(PoisonError::into_inner) }
            }
        }
    }
}

/// The end of a chunk's output. It is no error that the job has stopped before all rows were there.
pub(crate) type Ended = Result<(), Error>;

/// A dead letter, as its file has it: one line of JSON.
#[derive(Debug, Serialize)]
struct DeadLetter<'a> {
    file: &'a Path,
    /// The number of the row in the file, from 0.
    row: u64,
    /// The key of this name, which lines of OpenAI's batches have.
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_id: Option<&'a str>,
    #[serde(flatten)]
    death: &'a Death,
}

/// Writes the output of one chunk, on a thread of its own.
struct Output {
    outputs: Arc<Outputs>,
    chunk: Chunk,
    file: InputFile,
    /// The parts that are committed.
    parts: Vec<Commit>,
    part: Part,
    /// The time at which the next part is committed, if it has rows.
    due: Instant,
}

/// The rows of a chunk that are committed together: all, or those after the parts before.
#[derive(Default)]
struct Part {
    /// The position of the first row among those of the chunk.
    start: u64,
    attempt: String,
    rows: Option<RowFile>,
    letters: Option<Hashed<NewObject>>,
    /// The number of rows that were written to either.
    read: u64,
    scored: u64,
    dead: u64,
    hosts: BTreeSet<String>,
}

impl Part {
    fn new(start: u64) -> Self {
        Self { start, attempt: format!("{:08x}", rand::random::<u32>()), ..Self::default() }
    }
}

/// A chunk of a file whose output is written, with the parts of it that are committed.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) chunk: Chunk,
    pub(crate) file: InputFile,
    pub(crate) parts: Vec<Commit>,
}

/// Begins the output of a chunk. `ended` is called at its end. `place` is held until then.
///
/// # Errors
/// There is no further thread.
pub(crate) fn begin(
    outputs: &Arc<Outputs>,
    Begun { chunk, file, parts }: Begun,
    place: Charge,
    ended: impl FnOnce(Ended) + Send + 'static,
) -> Result<Sender<ToOutput>, Error> {
    let (sender, receiver) = channel();
    let name = format!("output-{}", chunk.number);
    let part = Part::new(parts.iter().map(|part| part.rows).sum());
    let due = Instant::now() + outputs.part;
    let output = Output { outputs: Arc::clone(outputs), chunk, file, parts, part, due };
    let work = move || {
        let written = catch_unwind(AssertUnwindSafe(|| output.write(&receiver)));
        ended(written.unwrap_or_else(|_| Err(Error::failed("the output of a chunk panicked"))));
        drop(place);
    };
    let thread = thread::Builder::new().name(name).spawn(work);
    thread.map(|_| sender).map_err(Error::failed)
}

impl Output {
    /// Writes batches in their order, which is not that of their arrival, and commits the chunk. Commits
    /// what is written as a part when it is due, or when the job stops.
    fn write(mut self, batches: &Receiver<ToOutput>) -> Ended {
        let (mut early, mut next, mut count) = (BTreeMap::new(), 0, None);
        while count != Some(next) {
            match batches.recv_timeout(self.wait()) {
                Ok(ToOutput::End { batches }) => count = Some(batches),
                Ok(ToOutput::Settled(settled)) => {
                    early.insert(settled.batch.sequence, settled);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop(),
            }
            while let Some(settled) = early.remove(&next) {
                self.batch(*settled)?;
                next += 1;
            }
            if self.part.read > 0 && self.due <= Instant::now() && count != Some(next) {
                self.commit_part()?;
            }
        }
        self.commit()
    }

    /// The longest time to wait for a batch.
    fn wait(&self) -> Duration {
        match self.part.read {
            0 => Duration::MAX,
            _ => self.due.saturating_duration_since(Instant::now()),
        }
    }

    /// Commits what is written: the job stops.
    fn stop(mut self) -> Ended {
        match self.part.read > 0 && self.outputs.keeps_parts.load(Relaxed) {
            true => self.commit_part(),
            false => Ok(()),
        }
    }

    fn batch(&mut self, settled: Settled) -> Result<(), Error> {
        let Settled { batch, mut pieces } = settled;
        pieces.sort_by_key(|piece| piece.rows.start);
        for piece in pieces {
            let range = piece.rows.start as usize..piece.rows.end as usize;
            let rows = batch.rows.get(range).unwrap_or_default();
            self.piece((&batch.keys, rows), &piece.outputs, &batch.charge)?;
            self.part.hosts.insert(piece.host);
        }
        let mut dead = batch.dead;
        dead.sort_by_key(|(row, _)| *row);
        for (row, death) in &dead {
            let Part { start, read, .. } = &self.part;
            let position = self.chunk.rows.start + start + read + u64::from(*row);
            self.letter(position, custom_id(&batch.keys, *row as usize), death)?;
        }
        self.part.read += batch.keys.num_rows() as u64;
        Ok(())
    }

    /// Writes scored rows: those of `keys` at these positions, and their answers. Columns take further
    /// memory beside the answers, so few rows are decoded at a time.
    fn piece(
        &mut self,
        (keys, rows): (&RecordBatch, &[u32]),
        answer: &[Tensor],
        charge: &Charge,
    ) -> Result<(), Error> {
        let outputs = Arc::clone(&self.outputs);
        let is_used = |it: &&Tensor| outputs.columns.iter().any(|of| *of.tensor == *it.name);
        let answer: Vec<_> = answer.iter().filter(is_used).collect();
        let has_rows = |it: &&Tensor| {
            it.shape.first().is_some_and(|count| usize::try_from(*count) == Ok(rows.len()))
        };
        if !answer.iter().all(has_rows) {
            return Err(Error::failed("an answer has another number of rows than its request"));
        }
        for range in decode::ranges(&answer, rows.len()) {
            let bytes = decode::writing_bytes(&answer, rows.len(), range.len());
            let _room = outputs.room(charge, bytes);
            let tensors: Vec<_> = answer.iter().map(|it| part_of(it, range.clone())).collect();
            let columns = decode(&tensors, &outputs.columns).map_err(Error::failed)?;
            self.rows(keys, &rows[range], columns)?;
        }
        Ok(())
    }

    /// Writes scored rows: those of `keys` at these positions, and the columns of their answers.
    fn rows(
        &mut self,
        keys: &RecordBatch,
        rows: &[u32],
        answer: Vec<ArrayRef>,
    ) -> Result<(), Error> {
        let Outputs { schema, format, .. } = &*self.outputs;
        let is_whole = rows.len() == keys.num_rows() || keys.num_columns() == 0;
        let keys = match is_whole {
            true => keys.clone(),
            false => {
                take_record_batch(keys, &UInt32Array::from(rows.to_vec())).map_err(Error::failed)?
            }
        };
        let columns = keys.columns().iter().cloned().chain(answer).collect();
        let table =
            RecordBatch::try_new(SchemaRef::clone(schema), columns).map_err(Error::failed)?;
        let name = self.name(DATA, &format.to_string());
        let failed = |error: &str| Error::failed(format!("{name}: {error}"));
        if self.part.rows.is_none() {
            let file = Hashed::new(self.begin(&name)?);
            let file = RowFile::new(*format, file, schema).map_err(|error| failed(&error))?;
            self.part.rows = Some(file);
        }
        self.part.scored += rows.len() as u64;
        let Some(file) = &mut self.part.rows else { return Ok(()) };
        file.write(&table).map_err(|error| failed(&error))
    }

    fn letter(
        &mut self,
        position: u64,
        custom_id: Option<&str>,
        death: &Death,
    ) -> Result<(), Error> {
        self.part.dead += 1;
        let name = self.name(DEAD, "jsonl");
        if self.part.letters.is_none() {
            self.part.letters = Some(Hashed::new(self.begin(&name)?));
        }
        let (file, row) = (&self.file.path, self.file.row(position));
        let letter = DeadLetter { file, row, custom_id, death };
        let mut line = serde_json::to_vec(&letter).map_err(Error::failed)?;
        line.push(b'\n');
        let Some(file) = &mut self.part.letters else { return Ok(()) };
        file.write_all(&line).map_err(|error| Error::store(&name, &error))
    }

    fn name(&self, directory: &str, ending: &str) -> String {
        format!("{directory}/{}-{}.{ending}", self.chunk.name(), self.part.attempt)
    }

    fn begin(&self, name: &str) -> Result<NewObject, Error> {
        self.outputs.store.begin(name).map_err(|error| Error::store(name, &error))
    }

    /// Completes both files. The next part begins after their rows.
    fn finished(&mut self) -> Result<Commit, Error> {
        let data_name = self.name(DATA, &self.outputs.format.to_string());
        let dead_name = self.name(DEAD, "jsonl");
        let next = Part::new(self.part.start + self.part.read);
        let Part { start, attempt, rows, letters, read, scored, dead, hosts } =
            mem::replace(&mut self.part, next);
        let failed = |error| Error::failed(format!("{data_name}: {error}"));
        let rows = rows.map(|file| file.finish().map_err(failed)).transpose()?;
        let data = rows.map(|file| finish(&data_name, file)).transpose()?;
        let dead_letters = letters.map(|file| finish(&dead_name, file)).transpose()?;
        Ok(Commit {
            chunk: self.chunk.number,
            start,
            attempt,
            rows: read,
            scored,
            dead,
            data,
            dead_letters,
            version: self.outputs.version.clone(),
            hosts,
            time: crate::time::now(),
            parts: Vec::new(),
        })
    }

    /// Commits what is written as a part.
    fn commit_part(&mut self) -> Result<(), Error> {
        let part = self.finished()?;
        part.write_part(&self.outputs.store)?;
        self.outputs.counts.stored.fetch_add(part.rows, Relaxed);
        self.parts.push(part);
        self.due = Instant::now() + self.outputs.part;
        Ok(())
    }

    /// Commits the chunk. If another worker was faster, its files count.
    fn commit(mut self) -> Ended {
        let last = self.finished()?;
        let rows = last.rows;
        let Self { outputs, chunk, mut parts, .. } = self;
        let commit = match parts.is_empty() {
            true => last,
            false => {
                parts.extend((rows > 0).then_some(last));
                Commit::of_parts(parts).ok_or_else(|| Error::failed("a chunk has no parts"))?
            }
        };
        let Commit { scored, dead, .. } = commit;
        if commit.rows != chunk.count() || scored + dead != commit.rows {
            return Err(Error::failed(format!(
                "the chunk {} has {} rows, of which {scored} were scored and {dead} are dead",
                chunk.number,
                chunk.count()
            )));
        }
        let counts = &outputs.counts;
        counts.commits(commit.chunk);
        match commit.write(&outputs.store)? {
            true => {
                counts.committed.fetch_add(commit.rows, Relaxed);
                counts.committed_chunks.fetch_add(1, Relaxed);
            }
            false => counts.lost(commit.chunk, dead),
        }
        counts.stored.fetch_add(rows, Relaxed);
        Ok(())
    }
}

/// Completes a file.
fn finish(name: &str, file: Hashed<NewObject>) -> Result<DataFile, Error> {
    let (object, bytes, blake3) = file.end();
    let is_new = object.finish().map_err(|error| Error::store(name, &error))?;
    match is_new {
        true => Ok(DataFile { name: name.to_owned(), bytes, blake3 }),
        false => Err(Error::failed(format!("{name} exists already"))),
    }
}
