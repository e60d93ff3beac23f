//! Answers whose rows have other sizes than the model's description says.

use bytes::Bytes;
use outrigger_batch::{Error, Store, Watch, run};
use outrigger_proto::inference::{ModelMetadataResponse, model_metadata_response::TensorMetadata};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use prost::Message as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::harness::{Place, expected, score, scored};

/// A host whose model has rows of these sizes, and answers as `script` says.
async fn described(
    sizes: &[i64],
    script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> Server {
    let shape = [&[-1], sizes].concat();
    let output = TensorMetadata { name: "OUT_x".to_owned(), datatype: "FP32".to_owned(), shape };
    let metadata = ModelMetadataResponse {
        name: "m".to_owned(),
        outputs: vec![output],
        ..ModelMetadataResponse::default()
    };
    let metadata = Bytes::from(metadata.encode_to_vec());
    let server = Server::start(Protocol::Http2, move |seen| match seen.call.rsplit('/').next() {
        Some("ModelInfer") => script(seen),
        Some("ModelMetadata") => Answer::Message(metadata.clone()),
        _ => identity::server(seen),
    });
    server.await
}

/// The answer with three numbers in a row, where the model has two.
fn wide(seen: &Seen) -> Answer {
    identity::grpc_with(seen, |reply| {
        let rows = reply.outputs[0].shape[0];
        reply.outputs[0].shape = vec![rows, 3];
        reply.raw_output_contents[0] = vec![0; 12 * rows as usize].into();
    })
}

/// The answer without elements whose rows have this many empty lists.
fn hollow(lists: i64) -> impl Fn(&Seen) -> Answer {
    move |seen| {
        identity::grpc_with(seen, |reply| {
            let rows = reply.outputs[0].shape[0];
            reply.outputs[0].shape = vec![rows, lists, 0];
            reply.raw_output_contents[0] = Bytes::new();
        })
    }
}

/// Asserts that all of 500 rows are scored by these hosts, although one answers wrongly.
async fn assert_no_row_changes(place: &Place, liar: &Server, good: &Server) {
    let file = place.rows("a.parquet", 0..500);
    let mut job = place.job(&[&file], &[&liar.address(), &good.address()]);
    (job.batch_size, job.chunk_rows) = (4, Some(50));
    let watch = Watch::default();
    let manifest = run(job, Store::local(place.output()), watch.clone()).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (500, 0));
    let progress = watch.get();
    let lies = progress.hosts.iter().find_map(|host| host.ends.get("bad_reply"));
    assert!(lies.is_some_and(|lies| *lies > 0), "{progress:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_lists_beyond_memory_changes_no_row() {
    // The same shape with 2^40 in place of 3 would take terabytes.
    let calls = AtomicUsize::new(0);
    let liar = described(&[-1, -1], move |seen| match calls.fetch_add(1, Relaxed) % 3 {
        2 => hollow(1 << 40)(seen),
        _ => hollow(3)(seen),
    });
    let (place, liar, good) = (Place::new(), liar.await, described(&[-1, -1], hollow(3)).await);
    assert_no_row_changes(&place, &liar, &good).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_answer_with_lists_beyond_memory_is_refused() {
    let (place, host) = (Place::new(), described(&[-1, -1], hollow(1 << 40)).await);
    let file = place.rows("a.parquet", 0..20);
    let error = score(place.job(&[&file], &[&host.address()])).await.expect_err("many lists");
    let is_clear = matches!(&error, Error::Usage(it) if it.contains("too many lists"));
    assert!(is_clear, "{error}");
    assert!(!place.output().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_rows_of_another_size_changes_no_row() {
    let calls = AtomicUsize::new(0);
    // The first call, which decides about the columns, is right.
    let liar = described(&[2], move |seen| match calls.fetch_add(1, Relaxed) % 3 {
        2 => wide(seen),
        _ => identity::grpc(seen),
    });
    let (place, liar, good) = (Place::new(), liar.await, described(&[2], identity::grpc).await);
    assert_no_row_changes(&place, &liar, &good).await;
    assert_eq!(scored(&place.output()), expected(0..500));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_answer_of_another_size_is_refused_before_anything_is_written() {
    let (place, host) = (Place::new(), described(&[3], identity::grpc).await);
    let file = place.rows("a.parquet", 0..20);
    let error = score(place.job(&[&file], &[&host.address()])).await.expect_err("another size");
    let is_clear = matches!(&error, Error::Usage(it)
        if it.starts_with("outputs: ") && it.contains("not rows of [3]"));
    assert!(is_clear, "{error}");
    assert!(!place.output().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_that_the_model_leaves_open_may_change() {
    let calls = AtomicUsize::new(0);
    let host = described(&[-1], move |seen| match calls.fetch_add(1, Relaxed) {
        0 => identity::grpc(seen),
        _ => wide(seen),
    });
    let (place, host) = (Place::new(), host.await);
    let file = place.rows("a.parquet", 0..20);
    let manifest = score(place.job(&[&file], &[&host.address()])).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (20, 0));
    assert!(scored(&place.output()).iter().all(|(_, scores)| scores.len() == 3));
}
