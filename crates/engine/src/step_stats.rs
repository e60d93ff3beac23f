//! Adds up the times of operations over runs that TensorFlow traces.

use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use outrigger_proto::raw::read::{Fields, Value};
use serde::{Deserialize, Serialize};

use crate::{
    malformed::Malformed,
    status::Status,
    tensorflow::{Endpoint, Session, Tensor},
};

/// The times of all traced runs but the first, which also prepares TensorFlow's executors. Times are
/// in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Runs.
    pub runs: u64,
    /// The time of these runs, with that of tracing them.
    pub run_nanos: u64,
    /// Nodes of the graph by name, after TensorFlow's optimisation. Operations run one after the
    /// other, so the sum of their times is less than that of the runs.
    pub nodes: BTreeMap<String, Node>,
}

/// The executions of one node of the graph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The type of the operation, for example `MatMul`; empty if the trace does not have it.
    pub operation: String,
    /// Executions; a node in a loop has several in a run.
    pub executions: u64,
    /// The time of these executions.
    pub nanos: u64,
}

/// Traces runs, and keeps a file with their times.
#[derive(Debug)]
pub struct StepStats {
    file: PathBuf,
    /// `None` before the first run.
    times: Mutex<Option<Times>>,
}

impl StepStats {
    /// Replaces `file` by one without times.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(file: PathBuf) -> io::Result<Self> {
        let stats = Self { file, times: Mutex::default() };
        stats.write(&Times::default())?;
        Ok(stats)
    }

    /// Runs the graph and adds the times of its operations. A trace that cannot be read or written
    /// is logged, and its run succeeds all the same.
    ///
    /// # Errors
    /// TensorFlow's error.
    ///
    /// # Panics
    /// An endpoint belongs to another session.
    pub fn run(
        &self,
        session: &Session,
        inputs: &[(Endpoint, Tensor)],
        outputs: &[Endpoint],
    ) -> Result<Vec<Tensor>, Status> {
        let start = Instant::now();
        let (tensors, metadata) = session.run_traced(inputs, outputs)?;
        if let Err(error) = self.add(&metadata, start.elapsed()) {
            tracing::warn!(%error, file = %self.file.display(), "the times of a run are lost");
        }
        Ok(tensors)
    }

    fn add(&self, metadata: &[u8], elapsed: Duration) -> io::Result<()> {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(times) = times.as_mut() else {
            *times = Some(Times::default());
            return Ok(());
        };
        let mut next = times.clone();
        next.add(metadata).map_err(io::Error::other)?;
        next.runs += 1;
        next.run_nanos += u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        *times = next;
        self.write(times)
    }

    /// Replaces the file at once and as a whole.
    fn write(&self, times: &Times) -> io::Result<()> {
        let written = self.file.with_extension("new");
        fs::write(&written, serde_json::to_vec(times)?)?;
        fs::rename(written, &self.file)
    }
}

impl Times {
    /// Adds the trace in an encoded `tensorflow.RunMetadata`.
    fn add(&mut self, metadata: &[u8]) -> Result<(), Malformed> {
        const STEP_STATS: u32 = 1;
        const DEVICE: u32 = 1;
        const NODE: u32 = 2;
        for stats in messages(metadata, STEP_STATS) {
            for device in messages(stats?, DEVICE) {
                for node in messages(device?, NODE) {
                    self.add_node(node?)?;
                }
            }
        }
        Ok(())
    }

    /// Adds an encoded `tensorflow.NodeExecStats`.
    fn add_node(&mut self, stats: &[u8]) -> Result<(), Malformed> {
        let (mut name, mut label) = ("", "");
        let (mut start, mut end) = (0, 0);
        for field in Fields::of(stats) {
            match field? {
                (1, Value::Bytes(text)) => name = utf8(text)?,
                (8, Value::Bytes(text)) => label = utf8(text)?,
                (14, Value::Varint(nanos)) => start = nanos,
                (15, Value::Varint(nanos)) => end = nanos,
                _ => {}
            }
        }
        let node = self.nodes.entry(name.to_owned()).or_default();
        node.operation = operation(label).to_owned();
        node.executions += 1;
        node.nanos += end.saturating_sub(start);
        Ok(())
    }
}

/// The messages in the field `number` of a message.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    Fields::of(message).filter_map(move |field| match field {
        Ok((found, Value::Bytes(part))) if found == number => Some(Ok(part)),
        Ok(_) => None,
        Err(error) => Some(Err(error.into())),
    })
}

fn utf8(text: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(text).map_err(|_| Malformed)
}

/// The operation's type in the label of a trace: `NAME = TYPE(INPUTS)`.
fn operation(label: &str) -> &str {
    let (_, call) = label.split_once(" = ").unwrap_or_default();
    call.split_once('(').map_or(call, |(operation, _)| operation)
}

#[cfg(test)]
mod tests {
    use outrigger_proto::raw::write::{put_bytes, put_int};

    use super::*;

    /// An encoded `RunMetadata` with one device and these nodes: name, label, start and end.
    fn metadata(nodes: &[(&str, &str, u64, u64)]) -> Vec<u8> {
        let mut device = Vec::new();
        put_bytes(1, b"/device:CPU:0", &mut device);
        for (name, label, start, end) in nodes {
            let mut node = Vec::new();
            put_bytes(1, name.as_bytes(), &mut node);
            put_bytes(8, label.as_bytes(), &mut node);
            put_int(14, *start, &mut node);
            put_int(15, *end, &mut node);
            put_bytes(2, &node, &mut device);
        }
        let (mut stats, mut metadata) = (Vec::new(), Vec::new());
        put_bytes(1, &device, &mut stats);
        put_bytes(1, &stats, &mut metadata);
        metadata
    }

    fn node(operation: &str, executions: u64, nanos: u64) -> Node {
        Node { operation: operation.to_owned(), executions, nanos }
    }

    fn read(stats: &StepStats) -> Times {
        serde_json::from_slice(&fs::read(&stats.file).expect("a file")).expect("times")
    }

    #[test]
    fn times_of_all_runs_but_the_first_are_added_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let stats = StepStats::create(directory.path().join("times.json")).expect("a file");
        assert_eq!(read(&stats), Times::default());
        let run = metadata(&[
            ("product", "product = MatMul(a, b)", 100, 700),
            ("sum", "[CPU] sum = AddV2(product, c)", 0, 50),
            ("sum", "[CPU] sum = AddV2(product, c)", 60, 100),
            ("_SOURCE", "", 5, 4),
        ]);
        for _ in 0..3 {
            stats.add(&run, Duration::from_micros(2)).expect("added");
        }
        let times = read(&stats);
        assert_eq!((times.runs, times.run_nanos), (2, 4000));
        let nodes = [
            ("_SOURCE".to_owned(), node("", 2, 0)),
            ("product".to_owned(), node("MatMul", 2, 1200)),
            ("sum".to_owned(), node("AddV2", 4, 180)),
        ];
        assert_eq!(times.nodes, nodes.into());
    }

    #[test]
    fn a_malformed_trace_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let stats = StepStats::create(directory.path().join("times.json")).expect("a file");
        let mut run = metadata(&[("product", "product = MatMul(a, b)", 100, 700)]);
        stats.add(&run, Duration::ZERO).expect("the first run");
        stats.add(&run, Duration::ZERO).expect("added");
        let before = read(&stats);
        run.pop();
        stats.add(&run, Duration::ZERO).expect_err("malformed");
        assert_eq!(read(&stats), before);
    }
}
