//! The memory of the whole process while a job with large rows and small answers runs.

use std::{
    fs::File,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use arrow_array::{ArrayRef, Float32Array, Int64Array, ListArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType as ArrowType, Field};
use futures::future::BoxFuture;
use outrigger_batch::{
    Answer, Description, Endpoint, Engine, Environment, Error, Job, Model, Package, Size, Source,
    StartEngines, Store, Usage, Watch, run_in,
};
use outrigger_oip::{DataType, Tensor};
use outrigger_oip_client::{Failure, Ledger, ModelRef, Request};
use outrigger_tables::BatchWriter;
use outrigger_testkit::allocator::Reporting;
use tokio::time::Instant;

/// The bytes that the process has allocated, and the most that it had.
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Reporting = Reporting {
    allocated: |bytes| {
        let held = HELD.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(held, Relaxed);
    },
    freed: |bytes| {
        HELD.fetch_sub(bytes, Relaxed);
    },
};

/// The least memory of a job.
const MEMORY: u64 = 64 << 20;

/// An engine in this process, whose answer has one number for each row.
#[derive(Debug)]
struct Small;

impl Endpoint for Small {
    fn infer<'a>(
        &'a self,
        request: &'a Request,
        _: &'a dyn Ledger,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        let rows = request.inputs[0].shape[0];
        let data = vec![0; 4 * rows as usize].into();
        let output = Tensor::new("y", DataType::Fp32, vec![rows], data).expect("a tensor");
        let answer = Answer { outputs: vec![output], version: None, usage: Usage::default() };
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn describe<'a>(
        &'a self,
        _: ModelRef<'a>,
        _: Instant,
    ) -> BoxFuture<'a, Result<Description, Failure>> {
        Box::pin(std::future::ready(Ok(Description::default())))
    }

    fn is_ready<'a>(&'a self, _: ModelRef<'a>, _: Instant) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

#[derive(Debug)]
struct Engines;

impl StartEngines for Engines {
    fn start<'a>(&'a self, _: &'a Job) -> BoxFuture<'a, Result<Vec<Engine>, Error>> {
        let engine = Engine { name: "engine-0".to_owned(), endpoint: Arc::new(Small) };
        Box::pin(std::future::ready(Ok(vec![engine])))
    }
}

/// Writes a file of `rows` rows with lists of so many numbers.
fn write(path: &Path, rows: usize, numbers: usize) {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let field = Arc::new(Field::new_list_field(ArrowType::Float32, true));
    let offsets = OffsetBuffer::from_repeated_length(numbers, rows);
    let values = Arc::new(Float32Array::from(vec![1.0; rows * numbers]));
    let lists: ArrayRef = Arc::new(ListArray::new(field, offsets, values, None));
    let table = RecordBatch::try_from_iter([("id", ids), ("x", lists)]).expect("a table");
    let file = File::create(path).expect("a file");
    let mut writer = BatchWriter::new(file, &table.schema()).expect("a writer");
    writer.write(&table).expect("written");
    writer.finish().expect("finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_rows_with_small_answers_stay_within_the_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    write(Path::new(&path("large.parquet")), 32, 1 << 18);
    write(Path::new(&path("small.parquet")), 2000, 64);
    // The first rows are large, or come after small ones.
    let orders = [vec!["large.parquet"], vec!["small.parquet", "large.parquet"]];
    for (number, names) in orders.into_iter().enumerate() {
        let input = names.into_iter().map(path).collect();
        let mut job = Job::new(input, path(&format!("out-{number}")), "m", Vec::new());
        job.model = Model::packaged(Package::new("model"));
        job.memory = Size(MEMORY);
        let x =
            Source { datatype: Some(DataType::Fp32), shape: Some(vec![-1]), ..Source::default() };
        job.inputs.insert("x".to_owned(), x);
        let environment =
            Environment { engines: Some(Arc::new(Engines)), ..Environment::default() };
        let store = Store::local(&job.output);
        let before = HELD.load(Relaxed);
        PEAK.store(before, Relaxed);
        let manifest = run_in(&environment, job, store, Watch::default()).await.expect("scored");
        let peak = PEAK.load(Relaxed) - before;
        assert_eq!(manifest.dead, 0);
        assert!(peak as u64 <= MEMORY, "{peak} bytes with the input {number}");
    }
}
