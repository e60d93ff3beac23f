//! Inputs, hosts, jobs and outputs of the tests.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arrow_array::{
    Array as _, ArrayRef, Int64Array, ListArray, RecordBatch, StringArray,
    cast::AsArray as _,
    types::{Float32Type, Int64Type},
};
use outrigger_batch::{
    Control, DataFile, Environment, Error, Host, Job, Manifest, Source, Store, Watch, run, run_in,
};
use outrigger_proto::inference::ModelInferRequest;
use outrigger_tables::{BatchWriter, Limits, Root, Table};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use prost::Message as _;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A directory with an input and an output.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file of these rows: `id`, and `x` with two numbers, the id and its double. A negative
    /// id has no numbers.
    pub(crate) fn rows(&self, name: &str, ids: impl Iterator<Item = i64>) -> String {
        self.parquet(name, columns(&ids.collect::<Vec<_>>()))
    }

    /// As [`rows`](Self::rows), with the further column `pad`: a text of `bytes` bytes in the first
    /// row, and an empty one in the others.
    pub(crate) fn padded_rows(
        &self,
        name: &str,
        ids: impl Iterator<Item = i64>,
        bytes: usize,
    ) -> String {
        let ids: Vec<_> = ids.collect();
        let pad =
            (0..ids.len()).map(|row| if row == 0 { "a".repeat(bytes) } else { String::new() });
        let pad: ArrayRef = Arc::new(StringArray::from_iter_values(pad));
        self.parquet(name, columns(&ids).into_iter().chain([("pad", pad)]))
    }

    fn parquet(
        &self,
        name: &str,
        columns: impl IntoIterator<Item = (&'static str, ArrayRef)>,
    ) -> String {
        let table = RecordBatch::try_from_iter(columns).expect("a table");
        let path = self.path(name);
        let file = File::create(&path).expect("a file");
        let mut writer = BatchWriter::new(file, &table.schema()).expect("a writer");
        writer.write(&table).expect("written");
        writer.finish().expect("finished");
        path.to_string_lossy().into_owned()
    }

    /// Writes a file of text.
    pub(crate) fn text(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("written");
        path.to_string_lossy().into_owned()
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.path("out")
    }

    pub(crate) fn store(&self) -> Store {
        Store::local(self.output())
    }

    /// Writes the control object of the job, in place of another one.
    pub(crate) fn control(&self, control: &Control) {
        write_control(control, &self.store());
    }

    /// A job over these files, in small batches and chunks.
    pub(crate) fn job(&self, files: &[&str], hosts: &[&str]) -> Job {
        job(self.output(), files, hosts)
    }
}

/// The columns of rows with these ids.
fn columns(ids: &[i64]) -> [(&'static str, ArrayRef); 2] {
    let x = ids.iter().map(|id| (*id >= 0).then(|| [*id as f32, 2.0 * *id as f32].map(Some)));
    let x = ListArray::from_iter_primitive::<Float32Type, _, _>(x);
    [("id", Arc::new(Int64Array::from(ids.to_vec()))), ("x", Arc::new(x))]
}

/// Writes the control object of the job in a store, in place of another one.
pub(crate) fn write_control(control: &Control, store: &Store) {
    let json = serde_json::to_vec(control).expect("JSON");
    store.replace("control.json", &json).expect("written");
}

/// A job of 60 rows that has committed some chunks and gets no further answers; its worker runs.
pub(crate) struct Halted {
    pub(crate) place: Place,
    pub(crate) server: Server,
    pub(crate) job: Job,
    watch: Watch,
    running: JoinHandle<Result<Manifest, Error>>,
}

impl Halted {
    pub(crate) async fn new() -> Self {
        let place = Place::new();
        let server = model(|seen| match ids(seen)[0] {
            21.. => Answer::Never,
            _ => identity::grpc(seen),
        })
        .await;
        let file = place.rows("a.parquet", 0..60);
        let (job, watch) = (place.job(&[&file], &[&server.address()]), Watch::default());
        let watched = watch.clone();
        let store = place.store();
        let started = job.clone();
        let mut environment = Environment::default();
        environment.periods.drain = Duration::ZERO;
        let running =
            tokio::spawn(async move { run_in(&environment, started, store, watched).await });
        while place.store().list("commit").expect("listed").len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Self { place, server, job, watch, running }
    }

    /// Interrupts the worker, and waits for its end.
    pub(crate) async fn interrupt(&mut self) {
        self.watch.interrupt();
        let ended = (&mut self.running).await.expect("no panic");
        assert_eq!(ended, Err(Error::Interrupted));
    }
}

/// The rows of these ids as JSON Lines, like those of [`Place::rows`].
pub(crate) fn lines(ids: impl Iterator<Item = i64>) -> String {
    let line = |id: i64| match id >= 0 {
        true => format!("{{\"id\": {id}, \"x\": [{id}, {}.0]}}\n", 2 * id),
        false => format!("{{\"id\": {id}}}\n"),
    };
    ids.map(line).collect()
}

/// A job with this output over these files, in small batches and chunks.
pub(crate) fn job(output: PathBuf, files: &[&str], hosts: &[&str]) -> Job {
    let input = files.iter().map(ToString::to_string).collect();
    let hosts = hosts.iter().map(|host| Host::new(host)).collect();
    let mut job = Job::new(input, output, "m", hosts);
    let x = Source {
        datatype: Some(outrigger_oip::DataType::Fp32),
        shape: Some(vec![2]),
        ..Source::default()
    };
    job.inputs = BTreeMap::from([("x".to_owned(), x)]);
    job.batch_size = 3;
    job.chunk_rows = Some(7);
    job
}

/// The same job with one number in a row, which is the id.
pub(crate) fn of_numbers(mut job: Job) -> Job {
    let x = job.inputs.get_mut("x").expect("an input");
    (x.columns, x.shape) = (vec!["id".to_owned()], Some(Vec::new()));
    job.keys = Some(vec!["id".to_owned()]);
    job
}

/// A host over gRPC that returns its inputs, where `change` has changed the numbers.
pub(crate) async fn changing(change: impl Fn(f32) -> f32 + Send + Sync + 'static) -> Server {
    model(move |seen| {
        identity::grpc_with(seen, |reply| {
            let contents = reply.raw_output_contents[0].to_vec();
            let numbers = contents.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it));
            let changed: Vec<u8> = numbers.flat_map(|it| change(it).to_le_bytes()).collect();
            reply.raw_output_contents[0] = changed.into();
        })
    })
    .await
}

/// Runs a job.
pub(crate) async fn score(job: Job) -> Result<Manifest, Error> {
    let store = Store::local(&job.output);
    run(job, store, Watch::default()).await
}

/// Runs a job with this output.
pub(crate) async fn score_in(store: Store, job: Job) -> Result<Manifest, Error> {
    run(job, store, Watch::default()).await
}

/// A host over gRPC that returns its inputs.
pub(crate) async fn host() -> Server {
    Server::start(Protocol::Http2, identity::server).await
}

/// A host over gRPC whose model answers as `script` says.
pub(crate) async fn model(script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Server {
    Server::start(Protocol::Http2, move |seen| match seen.call.ends_with("/ModelInfer") {
        true => script(seen),
        false => identity::server(seen),
    })
    .await
}

/// The answer of a model that fails on rows for which `is_bad` holds.
pub(crate) fn failing_on(is_bad: impl Fn(i64) -> bool) -> impl Fn(&Seen) -> Answer {
    move |seen| match ids(seen).into_iter().any(&is_bad) {
        true => Answer::Status(13, "the model failed".to_owned()),
        false => identity::grpc(seen),
    }
}

/// The ids of the rows of a request.
pub(crate) fn ids(seen: &Seen) -> Vec<i64> {
    let request = ModelInferRequest::decode(seen.body.clone()).expect("a request");
    let numbers = request.raw_input_contents[0].as_chunks::<8>().0;
    let first = |pair: &[u8; 8]| f32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
    numbers.iter().map(|pair| first(pair) as i64).collect()
}

/// The ids in each request of rows that a server has seen.
pub(crate) fn requests(server: &Server) -> Vec<Vec<i64>> {
    let seen = server.seen().into_iter().filter(|seen| seen.call.ends_with("/ModelInfer"));
    seen.map(|seen| ids(&seen)).collect()
}

/// The rows of an output in the order of its manifest: the id, and the scores.
pub(crate) fn scored(output: &Path) -> Vec<(i64, Vec<f32>)> {
    let manifest = Manifest::read(&Store::local(output)).expect("readable").expect("a manifest");
    rows_of(output, manifest.files())
}

/// The rows of these files of an output.
pub(crate) fn rows_of<'a>(
    output: &Path,
    files: impl Iterator<Item = &'a DataFile>,
) -> Vec<(i64, Vec<f32>)> {
    let mut rows = Vec::new();
    for data in files {
        let path = output.join(&data.name);
        let size = std::fs::metadata(&path).expect("the file of the manifest").len();
        assert_eq!(size, data.bytes);
        match path.extension().is_some_and(|ending| ending == "jsonl") {
            true => rows.extend(rows_of_lines(&path)),
            false => rows.extend(rows_of_parquet(&path)),
        }
    }
    rows
}

fn rows_of_lines(path: &Path) -> Vec<(i64, Vec<f32>)> {
    let text = std::fs::read_to_string(path).expect("a file");
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let scores = row["OUT_x"].as_array().expect("scores").iter();
        let scores = scores.map(|score| score.as_f64().expect("a number") as f32);
        (row["id"].as_i64().expect("an id"), scores.collect())
    };
    text.lines().map(row).collect()
}

fn rows_of_parquet(path: &Path) -> Vec<(i64, Vec<f32>)> {
    let table = Table::open(&Root::Any, path, Limits::default()).expect("a table");
    let all = 0..table.rows();
    let mut batches = table.read(std::slice::from_ref(&all), &["id", "OUT_x"]).expect("its rows");
    let mut rows = Vec::new();
    while let Some(batch) = batches.next(1000).expect("readable") {
        let ids = batch.column_by_name("id").expect("ids").as_primitive::<Int64Type>();
        let lists = batch.column_by_name("OUT_x").expect("scores").as_list::<i32>();
        for row in 0..batch.num_rows() {
            let scores = lists.value(row);
            let scores = scores.as_primitive::<Float32Type>().values().to_vec();
            assert!(lists.is_valid(row));
            rows.push((ids.value(row), scores));
        }
    }
    rows
}

/// The files of an output in JSON Lines, in the order of its manifest.
pub(crate) fn text_of(output: &Path) -> String {
    let manifest = Manifest::read(&Store::local(output)).expect("readable").expect("a manifest");
    let files = manifest.chunks.iter().filter_map(|chunk| chunk.data.as_ref());
    let text = |name: &str| {
        assert!(name.ends_with(".jsonl"), "{name}");
        std::fs::read_to_string(output.join(name)).expect("a file of text")
    };
    files.map(|file| text(&file.name)).collect()
}

/// The expected rows of these ids.
pub(crate) fn expected(ids: impl Iterator<Item = i64>) -> Vec<(i64, Vec<f32>)> {
    ids.map(|id| (id, vec![id as f32, 2.0 * id as f32])).collect()
}

/// The dead letters of an output, in the order of its manifest.
pub(crate) fn dead(output: &Path) -> Vec<Value> {
    let manifest = Manifest::read(&Store::local(output)).expect("readable").expect("a manifest");
    let files = manifest.chunks.iter().filter_map(|chunk| chunk.dead_letters.as_ref());
    let text = files.map(|file| std::fs::read_to_string(output.join(&file.name)).expect("a file"));
    let lines: Vec<_> =
        text.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The rows and reasons of dead letters.
pub(crate) fn reasons(output: &Path) -> Vec<(u64, String)> {
    let of = |letter: &Value| {
        let reason = letter["reason"].as_str().expect("a reason").to_owned();
        (letter["row"].as_u64().expect("a row"), reason)
    };
    dead(output).iter().map(of).collect()
}
