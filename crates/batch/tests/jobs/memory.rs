//! Answers that are larger than those before, and rows of very different sizes, within the memory.

use std::{
    fs::{self, File},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use arrow_array::{
    Array as _, ArrayRef, Int64Array, ListArray, RecordBatch, cast::AsArray as _,
    types::Float32Type,
};
use outrigger_batch::{
    Error, Host, HostVerification, Job, Manifest, Period, Progress, Sample, Size, Store, Tolerance,
    Verifiers, Watch, run, verify_on_hosts,
};
use outrigger_oip::DataType;
use outrigger_proto::inference::{ModelInferRequest, model_infer_response::InferOutputTensor};
use outrigger_tables::{BatchWriter, Limits, Root, Table};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use prost::Message as _;
use serde_json::{Value, json};

use crate::harness::{Place, host, scored};

/// The least memory of a job; a message has a quarter of it.
const MEMORY: u64 = 64 << 20;

/// Runs a job, and returns its last progress too.
async fn watched(job: Job) -> (Result<Manifest, Error>, Progress) {
    let (store, watch) = (Store::local(&job.output), Watch::default());
    let result = run(job, store, watch.clone()).await;
    (result, watch.get())
}

/// The answer with a text of `bytes` for each row, in JSON over HTTP/1.1 and else in a message.
fn texts(protocol: Protocol, seen: &Seen, bytes: usize) -> Answer {
    if protocol == Protocol::Http1 {
        return identity::json_with(seen, |reply| {
            let output = &mut reply["outputs"][0];
            let rows = output["shape"][0].as_u64().expect("rows");
            output["shape"] = json!([rows]);
            output["datatype"] = json!("BYTES");
            output["data"] = (0..rows).map(|_| Value::from("a".repeat(bytes))).collect();
        });
    }
    identity::grpc_with(seen, |reply| {
        let rows = reply.outputs[0].shape[0];
        let (name, datatype) = (reply.outputs[0].name.clone(), "BYTES".to_owned());
        reply.outputs = vec![InferOutputTensor {
            name,
            datatype,
            shape: vec![rows],
            ..InferOutputTensor::default()
        }];
        let text = [&u32::try_from(bytes).expect("a length").to_le_bytes()[..], &vec![b'a'; bytes]];
        reply.raw_output_contents = vec![text.concat().repeat(rows as usize).into()];
    })
}

/// Hosts whose first `small` calls have answers of a few bytes a row, and the others of `bytes`.
async fn growing(
    protocol: Protocol,
    count: usize,
    (small, bytes): (usize, usize),
) -> (Vec<Server>, Vec<String>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut servers = Vec::new();
    for _ in 0..count {
        let calls = Arc::clone(&calls);
        let server = Server::start(protocol, move |seen| match seen.call.ends_with("nfer") {
            true => {
                let is_small = calls.fetch_add(1, Relaxed) < small;
                texts(protocol, seen, if is_small { 10 } else { bytes })
            }
            // It does not describe its model.
            false if protocol == Protocol::Http1 => Answer::json(501, "{}"),
            false => identity::server(seen),
        });
        servers.push(server.await);
    }
    let addresses = servers.iter().map(Server::address).collect();
    (servers, addresses)
}

/// A job of the least memory with one row in a request.
fn job(place: &Place, file: &str, hosts: &[String]) -> Job {
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let mut job = place.job(&[file], &hosts);
    job.memory = Size(MEMORY);
    (job.batch_size, job.chunk_rows) = (1, Some(1000));
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_grow_to_the_limit_of_a_message_stay_within_the_memory() {
    let place = Place::new();
    // 16 calls are in flight at a time, and answers of 15 MiB fit two at a time.
    let (_servers, hosts) = growing(Protocol::Http2, 8, (40, 15 << 20)).await;
    let file = place.rows("a.parquet", 0..60);
    let (result, progress) = watched(job(&place, &file, &hosts)).await;
    let manifest = result.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (60, 0));
    let Progress { memory_peak, memory_limit, .. } = progress;
    assert!(memory_peak <= memory_limit, "{memory_peak} of {memory_limit}");
    assert!(memory_peak > 15 << 20, "{memory_peak}: the answers were charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_whose_answers_do_not_fit_together_are_sent_in_parts() {
    let place = Place::new();
    // JSON takes three times its bytes while it is read: the answer for four rows does not fit.
    let (_servers, hosts) = growing(Protocol::Http1, 2, (5, 3 << 20)).await;
    let file = place.rows("a.parquet", 0..32);
    let mut job = job(&place, &file, &hosts);
    job.batch_size = 4;
    let (result, progress) = watched(job).await;
    let manifest = result.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (32, 0));
    let Progress { memory_peak, memory_limit, .. } = progress;
    assert!(memory_peak <= memory_limit, "{memory_peak} of {memory_limit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_fit_alone_stops_the_job_until_it_has_more_memory() {
    let place = Place::new();
    let (_servers, hosts) = growing(Protocol::Http1, 1, (12, 12 << 20)).await;
    let file = place.rows("a.parquet", 0..16);
    let first = job(&place, &file, &hosts);
    let (result, progress) = watched(first.clone()).await;
    let error = result.expect_err("it does not fit");
    let is_clear =
        matches!(&error, Error::Failed(it) if it.contains("does not fit into the memory"));
    assert!(is_clear, "{error}");
    assert!(progress.memory_peak <= progress.memory_limit, "{progress:?}");
    assert_eq!(progress.dead, 0);
    let (result, progress) = watched(Job { memory: Size(4 * MEMORY), ..first }).await;
    let manifest = result.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (16, 0));
    assert!(progress.memory_peak <= progress.memory_limit, "{progress:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_is_held_to_the_memory_too() {
    let (place, file) = (Place::new(), |place: &Place| place.rows("a.parquet", 0..16));
    // Near a quarter of the memory in JSON, which takes several times its bytes while it is read.
    let (_servers, hosts) = growing(Protocol::Http1, 2, (0, 15 << 20)).await;
    let error = watched(job(&place, &file(&place), &hosts)).await.0.expect_err("it does not fit");
    let is_clear =
        matches!(&error, Error::Failed(it) if it.contains("run the job with more memory"));
    assert!(is_clear, "{error}");
    assert!(!place.output().exists());
    // The answer for four rows does not fit, and those for single ones do.
    let (_servers, hosts) = growing(Protocol::Http1, 2, (0, 3 << 20)).await;
    let mut job = job(&place, &file(&place), &hosts);
    job.batch_size = 4;
    let (result, progress) = watched(job).await;
    assert_eq!(result.expect("scored").scored, 16);
    assert!(progress.memory_peak <= progress.memory_limit, "{progress:?}");
}

/// Writes rows with lists of these lengths, in which each number is the id.
fn lists(place: &Place, name: &str, lengths: &[usize]) -> String {
    let ids = Int64Array::from_iter_values(0..lengths.len() as i64);
    let x = lengths.iter().enumerate().map(|(id, length)| Some(vec![Some(id as f32); *length]));
    let x: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(x));
    let table = RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef), ("x", x)]);
    let table = table.expect("a table");
    let path = place.path(name);
    let mut writer =
        BatchWriter::new(File::create(&path).expect("a file"), &table.schema()).expect("a writer");
    writer.write(&table).expect("written");
    writer.finish().expect("finished");
    path.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_very_different_sizes_stay_within_the_memory() {
    let (place, host) = (Place::new(), host().await);
    let lengths: Vec<_> = (0..300).map(|row| [7, 100_000, 1, 1000][row % 4]).collect();
    let file = lists(&place, "a.parquet", &lengths);
    let mut job = job(&place, &file, &[host.address()]);
    job.batch_size = 64;
    job.inputs.get_mut("x").expect("an input").shape = Some(vec![-1]);
    let (result, progress) = watched(job).await;
    assert_eq!(result.expect("scored").scored, 300);
    let rows = scored(&place.output());
    for (row, (id, scores)) in rows.iter().enumerate() {
        assert_eq!((*id, scores.len()), (row as i64, lengths[row]));
        assert!(scores.iter().all(|score| *score == row as f32), "row {row}");
    }
    assert!(progress.memory_peak <= progress.memory_limit, "{progress:?}");
}

/// The numbers of rows in the requests that a host has seen.
fn request_rows(host: &Server) -> Vec<i64> {
    let seen = host.seen().into_iter().filter(|seen| seen.call.ends_with("/ModelInfer"));
    let request = |seen: Seen| ModelInferRequest::decode(seen.body).expect("a request");
    seen.map(|seen| request(seen).inputs[0].shape[0]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_rows_that_are_large_stay_within_the_memory() {
    let (place, host) = (Place::new(), host().await);
    // Rows of 3 MiB, which are in memory twice: two would be more than an eighth of it.
    let file = lists(&place, "a.parquet", &[3 << 18; 8]);
    let mut job = job(&place, &file, &[host.address()]);
    job.batch_size = 64;
    job.inputs.get_mut("x").expect("an input").shape = Some(vec![-1]);
    let (result, progress) = watched(job).await;
    assert_eq!(result.expect("scored").scored, 8);
    let requests = request_rows(&host);
    assert!(requests.len() > 8 && requests.iter().all(|rows| *rows == 1), "{requests:?}");
    let Progress { memory_peak, memory_limit, .. } = progress;
    assert!(memory_peak <= memory_limit, "{memory_peak} of {memory_limit}");
    assert_eq!(scored(&place.output()).len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_row_larger_than_the_memory_is_an_error_before_the_start() {
    let (place, host) = (Place::new(), host().await);
    let file = lists(&place, "a.parquet", &[5 << 20, 1]);
    let mut job = job(&place, &file, &[host.address()]);
    job.inputs.get_mut("x").expect("an input").shape = Some(vec![-1]);
    let error = watched(job.clone()).await.0.expect_err("it does not fit");
    let is_clear = matches!(&error, Error::Usage(it)
        if it.starts_with("memory: the row 0 of ") && it.contains("a.parquet takes 20.0 MiB"));
    assert!(is_clear, "{error}");
    assert!(!place.output().exists() && request_rows(&host).is_empty());
    job.memory = Size(4 * MEMORY);
    assert_eq!(watched(job).await.0.expect("scored").scored, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answers_of_a_verification_are_held_to_the_memory() {
    let (place, host) = (Place::new(), host().await);
    // Rows of 1 MiB, of which a verification reads seven at a time.
    let file = lists(&place, "a.parquet", &[1 << 18; 14]);
    let mut job = job(&place, &file, &[host.address()]);
    job.inputs.get_mut("x").expect("an input").shape = Some(vec![-1]);
    watched(job).await.0.expect("scored");
    let verified = async |memory: Option<u64>| {
        let before = request_rows(&host).len();
        let (sample, tolerance) =
            (Sample { rows: 14, seed: 1 }, Tolerance { atol: 0.0, rtol: 0.0 });
        let verifiers = Verifiers {
            hosts: vec![Host::new(&host.address())],
            ca: None,
            timeout: Period(Duration::from_secs(60)),
            memory: memory.map(Size),
        };
        let found = verify_on_hosts(&place.store(), sample, verifiers, (3, tolerance)).await;
        (found, request_rows(&host).split_off(before))
    };
    let is_same = |found: &HostVerification| found.passed() && found.job.rows == 14;
    let (found, rows) = verified(None).await;
    assert!(is_same(&found.expect("verified")));
    assert_eq!(rows, [7, 7], "the answers fit into the memory of the job");
    // One that does not fit is asked for again with fewer rows.
    let (found, rows) = verified(Some(5 << 20)).await;
    assert!(is_same(&found.expect("verified")));
    assert!(rows[0] == 7 && rows[1..].iter().all(|rows| (1..5).contains(rows)), "{rows:?}");
    let is_clear = |error: Error| {
        let is_clear = matches!(&error, Error::Failed(it)
            if it.starts_with("memory: an answer of ") && it.contains("verify with more memory"));
        assert!(is_clear, "{error}");
    };
    is_clear(verified(Some(1 << 20)).await.0.expect_err("it does not fit"));
    // Without an argument it is the memory in the plan.
    let path = place.output().join("plan.json");
    let plan = fs::read_to_string(&path).expect("a plan");
    let less = plan.replace(&format!("\"memory\": {MEMORY}"), "\"memory\": 1000000");
    assert_ne!(plan, less);
    fs::write(&path, less).expect("written");
    is_clear(verified(None).await.0.expect_err("it does not fit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_of_512_by_512_stay_within_the_memory() {
    const SIDE: i64 = 512;
    let (place, host) = (Place::new(), host().await);
    let file = lists(&place, "a.parquet", &[(SIDE * SIDE) as usize; 24]);
    let mut job = job(&place, &file, &[host.address()]);
    job.batch_size = 64;
    let x = job.inputs.get_mut("x").expect("an input");
    (x.datatype, x.shape) = (Some(DataType::Fp32), Some(vec![SIDE, SIDE]));
    let (result, progress) = watched(job).await;
    let manifest = result.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (24, 0));
    assert!(progress.memory_peak <= progress.memory_limit, "{progress:?}");
    let mut id = 0;
    for data in manifest.files() {
        let path = place.output().join(&data.name);
        let table = Table::open(&Root::Any, &path, Limits::default()).expect("a table");
        let all = 0..table.rows();
        let mut rows = table.read(std::slice::from_ref(&all), &["OUT_x"]).expect("its rows");
        while let Some(batch) = rows.next(1).expect("readable") {
            let column = batch.column_by_name("OUT_x").expect("scores").as_list::<i32>();
            let lines = column.value(0);
            let lines = lines.as_list::<i32>();
            assert_eq!(lines.len(), SIDE as usize);
            let numbers = lines.values().as_primitive::<Float32Type>();
            assert_eq!(numbers.len(), (SIDE * SIDE) as usize);
            assert!(numbers.values().iter().all(|number| *number == id as f32));
            id += 1;
        }
    }
    assert_eq!(id, 24);
}
