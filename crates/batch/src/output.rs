//! The output of a chunk: the file of its rows, its dead letters, and its commit.

pub(crate) mod hashed;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
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
    attempt: String,
    rows: Option<RowFile>,
    letters: Option<Hashed<NewObject>>,
    /// The number of rows that were written to either.
    read: u64,
    scored: u64,
    dead: u64,
    hosts: BTreeSet<String>,
}

/// Begins the output of a chunk of `file`. `ended` is called at its end. `place` is held until then.
///
/// # Errors
/// There is no further thread.
pub(crate) fn begin(
    outputs: &Arc<Outputs>,
    (chunk, file): (&Chunk, InputFile),
    place: Charge,
    ended: impl FnOnce(Ended) + Send + 'static,
) -> Result<Sender<ToOutput>, Error> {
    let (sender, receiver) = channel();
    let output = Output {
        outputs: Arc::clone(outputs),
        chunk: chunk.clone(),
        file,
        attempt: format!("{:08x}", rand::random::<u32>()),
        rows: None,
        letters: None,
        read: 0,
        scored: 0,
        dead: 0,
        hosts: BTreeSet::new(),
    };
    let work = move || {
        let written = catch_unwind(AssertUnwindSafe(|| output.write(&receiver)));
        ended(written.unwrap_or_else(|_| Err(Error::failed("the output of a chunk panicked"))));
        drop(place);
    };
    let thread = thread::Builder::new().name(format!("output-{}", chunk.number)).spawn(work);
    thread.map(|_| sender).map_err(Error::failed)
}

impl Output {
    /// Writes batches in their order, which is not that of their arrival, and commits the chunk.
    fn write(mut self, batches: &Receiver<ToOutput>) -> Ended {
        let (mut early, mut next, mut count) = (BTreeMap::new(), 0, None);
        while count != Some(next) {
            match batches.recv() {
                Ok(ToOutput::End { batches }) => count = Some(batches),
                Ok(ToOutput::Settled(settled)) => {
                    early.insert(settled.batch.sequence, settled);
                }
                // The job stops.
                Err(_) => return Ok(()),
            }
            while let Some(settled) = early.remove(&next) {
                self.batch(*settled)?;
                next += 1;
            }
        }
        self.commit()
    }

    fn batch(&mut self, settled: Settled) -> Result<(), Error> {
        let Settled { batch, mut pieces } = settled;
        pieces.sort_by_key(|piece| piece.rows.start);
        for piece in pieces {
            let range = piece.rows.start as usize..piece.rows.end as usize;
            let rows = batch.rows.get(range).unwrap_or_default();
            self.piece((&batch.keys, rows), &piece.outputs)?;
            self.hosts.insert(piece.host);
        }
        let mut dead = batch.dead;
        dead.sort_by_key(|(row, _)| *row);
        for (row, death) in &dead {
            let position = self.chunk.rows.start + self.read + u64::from(*row);
            self.letter(position, custom_id(&batch.keys, *row as usize), death)?;
        }
        self.read += batch.keys.num_rows() as u64;
        Ok(())
    }

    /// Writes scored rows: those of `keys` at these positions, and their answers. Columns take further
    /// memory beside the answers, so few rows are decoded at a time.
    fn piece(
        &mut self,
        (keys, rows): (&RecordBatch, &[u32]),
        answer: &[Tensor],
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
        self.scored += rows.len() as u64;
        let name = self.name(DATA, &format.to_string());
        let failed = |error: &str| Error::failed(format!("{name}: {error}"));
        if self.rows.is_none() {
            let file = Hashed::new(self.begin(&name)?);
            self.rows = Some(RowFile::new(*format, file, schema).map_err(|error| failed(&error))?);
        }
        let Some(file) = &mut self.rows else { return Ok(()) };
        file.write(&table).map_err(|error| failed(&error))
    }

    fn letter(
        &mut self,
        position: u64,
        custom_id: Option<&str>,
        death: &Death,
    ) -> Result<(), Error> {
        self.dead += 1;
        let name = self.name(DEAD, "jsonl");
        if self.letters.is_none() {
            self.letters = Some(Hashed::new(self.begin(&name)?));
        }
        let (file, row) = (&self.file.path, self.file.row(position));
        let letter = DeadLetter { file, row, custom_id, death };
        let mut line = serde_json::to_vec(&letter).map_err(Error::failed)?;
        line.push(b'\n');
        let Some(file) = &mut self.letters else { return Ok(()) };
        file.write_all(&line).map_err(|error| Error::store(&name, &error))
    }

    fn name(&self, directory: &str, ending: &str) -> String {
        format!("{directory}/{}-{}.{ending}", self.chunk.name(), self.attempt)
    }

    fn begin(&self, name: &str) -> Result<NewObject, Error> {
        self.outputs.store.begin(name).map_err(|error| Error::store(name, &error))
    }

    /// Completes both files, and commits them. If another worker was faster, its files count.
    fn commit(mut self) -> Ended {
        let name = self.name(DATA, &self.outputs.format.to_string());
        let rows = self
            .rows
            .take()
            .map(|file| file.finish().map_err(|error| Error::failed(format!("{name}: {error}"))));
        let data = rows.transpose()?.map(|file| finish(&name, file)).transpose()?;
        let name = self.name(DEAD, "jsonl");
        let dead_letters = self.letters.take().map(|file| finish(&name, file)).transpose()?;
        let Self { outputs, chunk, attempt, read, scored, dead, hosts, .. } = self;
        if read != chunk.count() || scored + dead != read {
            return Err(Error::failed(format!(
                "the chunk {} has {} rows, of which {scored} were scored and {dead} are dead",
                chunk.number,
                chunk.count()
            )));
        }
        let commit = Commit {
            chunk: chunk.number,
            attempt,
            rows: read,
            scored,
            dead,
            data,
            dead_letters,
            version: outputs.version.clone(),
            hosts,
            time: crate::time::now(),
        };
        let counts = &outputs.counts;
        counts.commits(commit.chunk);
        match commit.write(&outputs.store)? {
            true => {
                counts.committed.fetch_add(read, Relaxed);
                counts.committed_chunks.fetch_add(1, Relaxed);
            }
            false => counts.lost(commit.chunk, dead),
        }
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
