//! The reading of chunks: rows of files as batches for the hosts. Each reader has a thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::Duration,
};

use arrow_array::RecordBatch;
use http::HeaderMap;
use outrigger_oip_client::Request;
use outrigger_tables::bytes_of_rows;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    Error,
    batch::{Batch, Death, ToOutput},
    commit::Commit,
    control::Control,
    encode::{Encoded, encode},
    endpoint::bytes_of,
    input::{self, InputFile, Reading},
    language,
    lease::Leases,
    memory::{Charge, Memory},
    output::{self, Begun, Ended, Outputs},
    plan::{Chunk, Scoring},
    prepare::suspect::{self, Suspect},
    work::{Next, Work},
};

/// The pause before chunks of other workers are looked at again.
const ELSEWHERE: Duration = Duration::from_secs(1);
/// The bytes that an answer takes while it is decoded beside those of its rows: names, shapes, the
/// limits of a parser.
pub(crate) const CALL_BYTES: u64 = 64 << 10;
/// A batch takes at most this part of the memory, whatever its number of rows.
const SHARE: u64 = 8;
/// The times that the inputs of a row are in memory: as tensors, and in the message of a call.
pub(crate) const COPIES: u64 = 2;
/// The mean size of the rows of a batch may be so many times that of the largest batch before.
/// Otherwise the batch has fewer rows.
const LARGER: u64 = 2;
/// The least bytes of rows that are read together.
const LEAST_READ: u64 = 64 << 10;

/// The values by which readers form batches, which change while they read.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// The most rows in a batch.
    pub(crate) batch_rows: AtomicU32,
    /// The bytes of an answer for one row.
    pub(crate) answer_bytes: AtomicU64,
    /// The bytes of a row before it is answered.
    pub(crate) row_bytes: AtomicU64,
}

/// A message from a reader or an output.
#[derive(Debug)]
pub(crate) enum Event {
    /// A batch with rows for the hosts.
    Batch(Box<Batch>),
    /// This number of rows cannot be sent.
    Invalid(u32),
    /// This number of rows is dead in the commits that this worker does not count itself.
    DeadElsewhere(u64),
    /// A chunk was begun.
    Begun,
    /// The output of a chunk has ended.
    Ended(Ended),
    /// A reader has nothing left to read.
    Read(Result<(), Error>),
    /// The control object, as it is now.
    Control(Control),
}

/// Reads chunks. Several threads share one.
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) scoring: Scoring,
    /// The rows that may have ended hosts before the job began.
    pub(crate) suspects: Vec<Suspect>,
    /// The request of a batch, without inputs.
    pub(crate) request: Request,
    pub(crate) sizes: Arc<Sizes>,
    pub(crate) memory: Memory,
    /// The places for chunks that are open at a time.
    pub(crate) places: Memory,
    pub(crate) work: Mutex<Work>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) outputs: Arc<Outputs>,
    /// For batches, which are bounded.
    pub(crate) batches: mpsc::Sender<Event>,
    /// For all else.
    pub(crate) events: mpsc::UnboundedSender<Event>,
}

impl Readers {
    /// Reads chunks until none is left, or the job stops. Blocks.
    pub(crate) fn run(&self) {
        let result = catch_unwind(AssertUnwindSafe(|| self.read_all()));
        let result = result.unwrap_or_else(|_| Err(Error::failed("a reader panicked")));
        // A job that has stopped does not listen.
        let _ = self.events.send(Event::Read(result));
    }

    fn read_all(&self) -> Result<(), Error> {
        while let Some(place) = self.places.take(1) {
            let goes_on = match self.next()? {
                Next::Chunk(chunk) => self.chunk(&chunk, place)?,
                Next::Wait => {
                    drop(place);
                    self.memory.pause(ELSEWHERE)
                }
                Next::Done => false,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn next(&self) -> Result<Next, Error> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.next(&self.leases)
    }

    /// Reads one chunk. Returns false if the job stops.
    fn chunk(&self, chunk: &Chunk, place: Charge) -> Result<bool, Error> {
        let file = self.scoring.files.get(chunk.file);
        let file = file.ok_or_else(|| Error::failed("the plan has no such file"))?;
        let (events, leases, number) =
            (self.events.clone(), Arc::clone(&self.leases), chunk.number);
        let ended = move |end: Ended| {
            let end = end.and_then(|()| leases.release(number));
            let _ = events.send(Event::Ended(end));
        };
        let parts = Commit::read_parts(&self.outputs.store, chunk)?;
        let rest = self.resumed(chunk, &parts);
        let begun = Begun { chunk: chunk.clone(), file: file.clone(), parts };
        let output = output::begin(&self.outputs, begun, place, ended)?;
        // The output cannot end before, since its sender is here.
        let _ = self.events.send(Event::Begun);
        if rest.count() == 0 {
            let _ = output.send(ToOutput::End { batches: 0 });
            return Ok(true);
        }
        let mut rows = Rows::open(self, &rest, file)?;
        let mut sequence = 0;
        let mut position = rest.rows.start;
        loop {
            // A file that has changed may be damaged: that is the reason then.
            let next = rows.next(self).or_else(|error| rows.reading.check(file).and(Err(error)))?;
            let (keys, encoded, charge) = match next {
                Read::Rows(keys, encoded, charge) => (keys, encoded, charge),
                Read::End => break,
                Read::Stopped => return Ok(false),
            };
            let rows = position..position + encoded.read as u64;
            position = rows.end;
            let batch = self.batch((sequence, keys), encoded, (charge, &output));
            let ended = suspect::hosts(&self.suspects, chunk.file, &rows);
            let ended = ended.into_iter().map(str::to_owned).collect();
            if !self.send(Batch { ended, ..batch }) {
                return Ok(false);
            }
            sequence += 1;
        }
        rows.reading.check(file)?;
        // An output that has failed reports it.
        let _ = output.send(ToOutput::End { batches: sequence });
        Ok(true)
    }

    /// The rows of a chunk after these parts, whose rows are counted.
    fn resumed(&self, chunk: &Chunk, parts: &[Commit]) -> Chunk {
        let counts = &self.outputs.counts;
        let rows = parts.iter().map(|part| part.rows).sum();
        counts.resumed.fetch_add(rows, Relaxed);
        counts.resumed_dead.fetch_add(parts.iter().map(|part| part.dead).sum(), Relaxed);
        Chunk { rows: chunk.rows.start + rows..chunk.rows.end, ..chunk.clone() }
    }

    /// The rows of the next batch, and the most bytes of them when they are read.
    fn extent(&self) -> (u64, u64) {
        let Sizes { batch_rows, answer_bytes, row_bytes } = &*self.sizes;
        let row = row_bytes.load(Relaxed);
        let bytes = row.saturating_add(answer_bytes.load(Relaxed));
        let most = (self.memory.limit() / SHARE / bytes.max(1)).max(1);
        let rows = self::batch_rows(&self.scoring, batch_rows.load(Relaxed));
        let rows = most.min(rows.into());
        let bytes = (LARGER * rows).saturating_mul(row).max(LEAST_READ);
        (rows, bytes.min(batch_bytes(&self.memory)))
    }

    /// The bytes of the answer to so many rows.
    fn answer_bytes(&self, rows: u64) -> u64 {
        match rows {
            0 => 0,
            _ => CALL_BYTES + self.sizes.answer_bytes.load(Relaxed).saturating_mul(rows),
        }
    }

    /// A charge of `bytes` in place of another one; `None` if the job stops.
    fn exchange(&self, mut charge: Charge, bytes: u64) -> Option<Charge> {
        let more = bytes.saturating_sub(charge.bytes());
        if more == 0 || charge.grow(more, false) {
            charge.shrink(bytes);
            return Some(charge);
        }
        // Readers that hold memory while they wait for more would wait for each other.
        drop(charge);
        self.memory.take(bytes)
    }

    /// A batch of rows whose memory is charged.
    fn batch(
        &self,
        (sequence, keys): (u64, RecordBatch),
        encoded: Encoded,
        (charge, output): (Charge, &Sender<ToOutput>),
    ) -> Batch {
        let Encoded { tensors, rows, invalid, read } = encoded;
        let counts = &self.outputs.counts;
        counts.read.fetch_add(read as u64, Relaxed);
        counts.invalid.fetch_add(invalid.len() as u64, Relaxed);
        if !invalid.is_empty() {
            let rows = u32::try_from(invalid.len()).unwrap_or(u32::MAX);
            let _ = self.events.send(Event::Invalid(rows));
        }
        let keys_bytes = bytes_of_rows(&keys);
        let bytes = keys_bytes + COPIES * bytes_of(&tensors);
        let request =
            Request { inputs: tensors, rows: Some(rows.len() as u64), ..self.request.clone() };
        let death = |(row, reason)| (row, Death::invalid(reason));
        let dead = invalid.into_iter().map(death).collect();
        let output = Some(output.clone());
        let tokens = match self.scoring.protocol.is_language() {
            true => language::tokens(&request),
            false => 0,
        };
        Batch {
            sequence,
            keys,
            rows,
            request,
            tokens,
            ended: Vec::new(),
            dead,
            keys_bytes,
            bytes,
            charge,
            output,
        }
    }

    /// Passes a batch on: to the hosts, or to the output if no row of it can be sent. Returns false
    /// if the job stops.
    fn send(&self, batch: Batch) -> bool {
        if batch.rows.is_empty() {
            return batch.settle(Vec::new(), false);
        }
        self.batches.blocking_send(Event::Batch(Box::new(batch))).is_ok()
    }
}

/// The rows of one chunk.
struct Rows {
    reading: Reading,
    /// The number of rows that were not read yet.
    left: u64,
    /// Rows that could not be in one request with those before them, and their memory.
    rest: Option<(input::Rows, Charge)>,
    keys: Vec<usize>,
}

/// The next rows of a chunk.
enum Read {
    /// The key columns of the rows, their tensors, and the memory of both and of the answer.
    Rows(RecordBatch, Encoded, Charge),
    /// There are no more.
    End,
    /// The job stops.
    Stopped,
}

impl Rows {
    fn open(readers: &Readers, chunk: &Chunk, file: &InputFile) -> Result<Self, Error> {
        let patience = readers.outputs.store.patience();
        let reading = Reading::new(&readers.scoring, file, chunk.rows.clone(), patience)?;
        let schema = reading.schema();
        let keys = readers.scoring.keys.iter().map(|key| schema.index_of(key));
        let keys = keys.collect::<Result<_, _>>().map_err(Error::failed)?;
        Ok(Self { reading, left: chunk.count(), rest: None, keys })
    }

    /// Reads the next rows, after their memory was charged: the most that they may take. The charge
    /// is exchanged when they are known.
    fn next(&mut self, readers: &Readers) -> Result<Read, Error> {
        let (rows, charge) = match self.rest.take() {
            Some(rest) => rest,
            None if self.left == 0 => return Ok(Read::End),
            None => {
                let (most, bytes) = readers.extent();
                let most = most.min(self.left);
                let charge = readers.memory.take(COPIES * bytes + readers.answer_bytes(most));
                let Some(charge) = charge else { return Ok(Read::Stopped) };
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let Some(rows) = self.reading.next_within(most, bytes)? else {
                    return Ok(Read::End);
                };
                self.left = self.left.saturating_sub(rows.table.num_rows() as u64);
                (rows, charge)
            }
        };
        let encoded = encode(&rows, &readers.scoring.inputs);
        let keys = rows.table.slice(0, encoded.read).project(&self.keys).map_err(Error::failed)?;
        let tensors = COPIES * bytes_of(&encoded.tensors);
        let bytes = bytes_of_rows(&keys) + tensors;
        let all = bytes_of_rows(&rows.table);
        let row_bytes = &readers.sizes.row_bytes;
        row_bytes.fetch_max(bytes / encoded.read.max(1) as u64, Relaxed);
        row_bytes.fetch_max(all / rows.table.num_rows().max(1) as u64, Relaxed);
        let batch = bytes + readers.answer_bytes(encoded.rows.len() as u64);
        let has_rest = encoded.read < rows.table.num_rows();
        let rest = if has_rest { all } else { 0 };
        let Some(mut charge) = readers.exchange(charge, batch + rest) else {
            return Ok(Read::Stopped);
        };
        let charge_of_batch = charge.split(batch);
        self.rest = has_rest.then(|| (rows.after(encoded.read), charge));
        Ok(Read::Rows(keys, encoded, charge_of_batch))
    }
}

/// The most rows of a request, where the job allows `most`. A line of OpenAI's batches is a request of
/// its own, and so is a row of some models.
pub(crate) fn batch_rows(scoring: &Scoring, most: u32) -> u32 {
    if scoring.row_by_row || scoring.protocol.is_language() { 1 } else { most }
}

/// The most bytes of the rows of a request, but for a single row.
pub(crate) fn batch_bytes(memory: &Memory) -> u64 {
    memory.limit() / SHARE / COPIES
}

/// A request without inputs. Its deadline is set for each call.
pub(crate) fn request(scoring: &Scoring) -> Request {
    let mut outputs: Vec<_> = scoring.outputs.iter().map(|output| &*output.tensor).collect();
    outputs.sort_unstable();
    outputs.dedup();
    Request {
        model: scoring.model.as_str().into(),
        version: scoring.version().map(Into::into),
        inputs: Vec::new(),
        outputs: outputs.into_iter().map(Into::into).collect(),
        rows: None,
        row_by_row: scoring.row_by_row,
        deadline: Instant::now(),
        headers: HeaderMap::new(),
    }
}
