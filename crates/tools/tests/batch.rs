//! Batch jobs whose model is a package.

use std::{
    fs::{self, File},
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use arrow_array::{
    ArrayRef, Float32Array, Int64Array, ListArray, RecordBatch,
    cast::AsArray as _,
    types::{Float32Type, Int64Type},
};
use outrigger_batch::{Environment, Error, Job, Manifest, Model, Package, Store, Watch, run_in};
use outrigger_budget::Budget;
use outrigger_run::{Engine, Framework};
use outrigger_tables::{BatchWriter, Limits, Root, Table};
use outrigger_testkit::{
    package::{Framework as Kind, Package as Written},
    remote::{self, SCRIPTED, Server},
};
use outrigger_tools::{
    batch::Engines,
    engine::Program,
    registry::{self, Progress},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

/// A directory with a package, an input and an output.
struct Place(TempDir);

impl Place {
    fn with(package: Written) -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        package.write(&place.path("package")).expect("a package");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes so many rows with these features of the treatment, and further columns.
    fn rows(&self, t0: ArrayRef, further: Vec<(&str, ArrayRef)>) {
        let count = t0.len() as i64;
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        let t1: ArrayRef = Arc::new(Float32Array::from(vec![0.25; t0.len()]));
        let columns = [("id", id), ("t0", t0), ("t1", t1)].into_iter().chain(further);
        let table = RecordBatch::try_from_iter(columns).expect("a table");
        let file = File::create(self.path("rows.parquet")).expect("a file");
        let mut writer = BatchWriter::new(file, &table.schema()).expect("a writer");
        writer.write(&table).expect("written");
        writer.finish().expect("finished");
    }

    fn job(&self) -> Job {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let input = vec![text(self.path("rows.parquet"))];
        let mut job = Job::new(input, self.path("out"), "", Vec::new());
        job.model = Model::packaged(Package::new(&text(self.path("package"))));
        (job.batch_size, job.chunk_rows) = (4, Some(9));
        job
    }

    /// The ids and scores of the output.
    fn scored(&self) -> Vec<(i64, f32)> {
        let store = Store::local(self.path("out"));
        let manifest = Manifest::read(&store).expect("readable").expect("a manifest");
        let mut rows = Vec::new();
        for data in manifest.chunks.iter().filter_map(|chunk| chunk.data.as_ref()) {
            let path = self.path("out").join(&data.name);
            let table = Table::open(&Root::Any, &path, Limits::default()).expect("a table");
            let all = 0..table.rows();
            let all = std::slice::from_ref(&all);
            let mut batches = table.read(all, &["id", "score"]).expect("its rows");
            while let Some(batch) = batches.next(1000).expect("readable") {
                let ids = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
                let scores = batch.column(1).as_primitive::<Float32Type>().values().to_vec();
                rows.extend(ids.into_iter().zip(scores));
            }
        }
        rows
    }
}

fn singles(values: impl IntoIterator<Item = Option<f32>>) -> ArrayRef {
    Arc::new(Float32Array::from_iter(values))
}

/// Numbers of which trees have leaves, for so many rows.
fn quarters(rows: i16) -> impl Iterator<Item = f32> {
    (0..rows).map(|row| f32::from(row % 20) / 4.0)
}

fn environment(program: Program, frameworks: Vec<Framework>) -> Environment {
    // Fails if another test has installed the provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = registry::client(Vec::new(), None).expect("a client");
    let engines = Engines { client, program, frameworks, progress: Progress::default() };
    Environment { engines: Some(Arc::new(engines)), ..Environment::default() }
}

/// A program that must not be started: all models run in this process.
fn none() -> Program {
    Program {
        binary: "/nonexistent".into(),
        arguments: Vec::new(),
        flags: |_, _| Ok(Vec::new()),
        connect: |_, _| unreachable!("it does not start"),
        in_process: |_| Some(Arc::new(outrigger_forest::engine(&Budget::unlimited()))),
        other: |_| Ok(None),
        passes: 1,
        for_batching: false,
    }
}

async fn score(environment: &Environment, job: Job) -> Result<Manifest, Error> {
    let store = Store::local(&job.output);
    run_in(environment, job, store, Watch::default()).await
}

fn trees(bias: u16, golden: Option<u16>) -> Written {
    Written { framework: Kind::Xgboost, bias, golden, ..Written::default() }
}

fn in_this_process() -> Environment {
    environment(none(), outrigger_forest::FRAMEWORKS.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_scored_in_this_process() {
    let place = Place::with(trees(3, Some(6)));
    place.rows(singles(quarters(40).map(Some)), Vec::new());
    let manifest = score(&in_this_process(), place.job()).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (40, 0));
    let scores = quarters(40).map(|t0| t0 + 0.25 + 3.0);
    assert_eq!(place.scored(), (0..).zip(scores).collect::<Vec<_>>());
    let version = manifest.chunks[0].version.as_deref().expect("a digest");
    assert!(version.starts_with("sha256:"), "{version}");
    // Finished jobs start no engine.
    fs::remove_dir_all(place.path("package")).expect("removed");
    assert_eq!(score(&in_this_process(), place.job()).await, Ok(manifest));
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_values_are_those_of_a_request_without_the_feature() {
    let place = Place::with(trees(0, None));
    // u0 has a default, and t0 is required.
    let t0 = quarters(20).enumerate().map(|(row, value)| (row != 7).then_some(value));
    let u0 = singles((0..20_i16).map(|row| (row % 3 == 0).then_some(1.0)));
    place.rows(singles(t0), vec![("u0", u0)]);
    let manifest = score(&in_this_process(), place.job()).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (19, 1));
    let scores = (0..).zip(quarters(20).map(|t0| t0 + 0.25)).filter(|(id, _)| *id != 7);
    assert_eq!(place.scored(), scores.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_beside_dense_features_are_scored_and_no_key() {
    let place = Place::with(Written { framework: Kind::GbdtFm, bias: 3, ..Written::default() });
    let [metadata, machine] =
        ["metadata.json", "gbdt_fm/deploy.fm"].map(|name| place.path("package").join(name));
    let text = fs::read_to_string(&metadata).expect("metadata");
    let mut content: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let features = content["inputs"][0]["features"].as_array_mut().expect("features");
    let tags = json!({"name": "tags", "entity": "treatment", "max": 4, "default": []});
    features.push(tags);
    fs::write(&metadata, content.to_string()).expect("written");
    let weights = fs::read_to_string(&machine).expect("a machine") + "5000 10\n5001 20\n";
    fs::write(&machine, weights).expect("written");
    let t0: Vec<_> = quarters(8).collect();
    let ids = |row: usize| {
        [Some(vec![5000]), Some(vec![5000, 5001]), None, Some(vec![])][row % 4].clone()
    };
    let lists = (0..t0.len()).map(|row| ids(row).map(|ids| ids.into_iter().map(Some)));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    place.rows(singles(t0.iter().copied().map(Some)), vec![("tags", lists)]);
    let manifest = score(&in_this_process(), place.job()).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (8, 0));
    let scores = t0.iter().zip([10.0, 30.0, 0.0, 0.0].into_iter().cycle());
    let scores = scores.map(|(t0, of_tags)| t0 + 0.25 + 3.0 + of_tags);
    assert_eq!(place.scored(), (0..).zip(scores).collect::<Vec<_>>());
    let data = manifest.chunks[0].data.as_ref().expect("rows");
    let path = place.path("out").join(&data.name);
    let table = Table::open(&Root::Any, &path, Limits::default()).expect("a table");
    let names: Vec<_> = table.schema().fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["id", "score"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_is_not_valid_is_found_before_the_first_row() {
    let place = Place::with(trees(3, Some(7)));
    place.rows(singles(quarters(9).map(Some)), Vec::new());
    let refused = async |job: Job, fault: &str| match score(&in_this_process(), job).await {
        Err(Error::Usage(message)) if message.contains(fault) => {}
        other => panic!("{fault}: {other:?}"),
    };
    refused(place.job(), "GOLDEN_MISMATCH").await;
    let metadata = place.path("package/metadata.json");
    let text = fs::read_to_string(&metadata).expect("metadata");
    fs::write(&metadata, text.replace("float32", "float16")).expect("written");
    refused(place.job(), "IMAGE_INVALID").await;
    let mut other = place.job();
    other.model = Model::packaged(Package::new("no such/package"));
    refused(other, "neither a directory nor an image").await;
    assert!(!place.path("out").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_keeps_the_package_that_it_began_with() {
    let place = Place::with(trees(3, None));
    place.rows(singles(quarters(9).map(Some)), Vec::new());
    let manifest = score(&in_this_process(), place.job()).await.expect("scored");
    let digest = manifest.chunks[0].version.clone().expect("a digest");
    let mut job = place.job();
    job.output = place.path("again");
    job.model.version = Some(digest);
    score(&in_this_process(), job.clone()).await.expect("the same package");
    // The job is not finished, and its package is replaced.
    fs::remove_file(place.path("again/manifest.json")).expect("removed");
    fs::remove_dir_all(place.path("again/commit")).expect("removed");
    trees(4, None).write(&place.path("package")).expect("another package");
    let Err(Error::Failed(message)) = score(&in_this_process(), job).await else {
        panic!("another model")
    };
    assert!(message.contains("and the job has version sha256:"), "{message}");
}

/// The sockets of the scripted engines, of which each program of [`killable`] takes the last one.
static SOCKETS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// An engine whose process does nothing but write its id into `directory`: what it stands for is
/// a server of the test.
fn killable(directory: &Path) -> Program {
    let script = format!("echo > {}/$$; exec sleep 1000", directory.display());
    Program {
        binary: "/bin/sh".into(),
        arguments: vec!["-c".to_owned(), script],
        connect: |_, _| {
            let socket = SOCKETS.lock().expect("no panic").pop().expect("an engine is left");
            Ok(Arc::new(remote::Engine::new(socket, Duration::from_secs(10))) as Arc<dyn Engine>)
        },
        in_process: |_| None,
        ..none()
    }
}

/// The processes that have been started.
fn processes(directory: &Path) -> Vec<i32> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().parse().expect("a process")).collect()
}

/// Waits until so many processes have been started. Returns them.
fn started(directory: &Path, count: usize) -> Vec<i32> {
    loop {
        let processes = processes(directory);
        if processes.len() >= count {
            return processes;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_engine_is_one_host_that_is_away_for_a_while() {
    let written = Written { framework: Kind::Scripted, bias: 3, ..Written::default() };
    let place = Place::with(written);
    place.rows(singles(quarters(400).map(Some)), Vec::new());
    let directory = place.path("processes");
    fs::create_dir(&directory).expect("a directory");
    let runs = Arc::new(AtomicUsize::new(0));
    let servers = [0, 1, 2].map(|_| Server::start().expect("a server"));
    for server in &servers {
        SOCKETS.lock().expect("no panic").push(server.socket());
        let runs = Arc::clone(&runs);
        let directory = directory.clone();
        server.on_run(move |_, scores| {
            // The first runs are those of the gate and of the plan.
            if runs.fetch_add(1, Relaxed) == 20 {
                // A run needs the server only, and may be over before a process has begun.
                let first = Pid::from_raw(started(&directory, 2)[0]).expect("a process");
                kill_process(first, Signal::KILL).expect("killed");
                started(&directory, 3);
            }
            Ok(scores)
        });
    }
    let mut job = place.job();
    let package = job.model.package.as_mut().expect("a package");
    package.instances = NonZeroU32::new(2).expect("two");
    let environment = environment(killable(&directory), vec![SCRIPTED]);
    let manifest = score(&environment, job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (400, 0));
    let scores = quarters(400).map(|t0| t0 + 0.25 + 3.0);
    assert_eq!(place.scored(), (0..).zip(scores).collect::<Vec<_>>());
    assert_eq!(processes(&directory).len(), 3, "the killed one was started again");
    let hosts = manifest.chunks.iter().flat_map(|chunk| &chunk.hosts);
    assert!(hosts.clone().all(|host| host.starts_with("scripted engine ")));
}
