//! Fetching layers: streaming, resuming, verifying.

use std::{fs, path::PathBuf, time::Duration};

use futures::future::try_join_all;
use outrigger_core::{Digest, Failure, Reason};
use outrigger_oci::{Client, Error, Layer, Receiver, Reference, Space};
use outrigger_testkit::registry::{Gate, Registry, Rule};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::support::{NAME, bytes, client, config, layer_of, reference, registry_with};

const SIZE: usize = 300_000;

struct Fixture {
    registry: Registry,
    content: Vec<u8>,
    layer: Layer,
    work: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let content = bytes(SIZE);
        let (registry, _, layer) = registry_with(&content).await;
        Self { registry, content, layer, work: tempfile::tempdir().unwrap() }
    }

    fn dest(&self) -> PathBuf {
        self.work.path().join("partial")
    }

    fn reference(&self) -> Reference {
        reference(self.registry.host(), "")
    }

    async fn fetch(&self) -> Result<(), Error> {
        let client = client(self.registry.host());
        client.fetch_blob(&self.reference(), &self.layer, &self.dest()).await
    }

    async fn arrives(&self) {
        self.fetch().await.unwrap();
        assert!(fs::read(self.dest()).unwrap() == self.content, "content differs");
    }

    /// The `Range` headers of the blob's requests.
    fn ranges(&self) -> Vec<String> {
        let requests = self.registry.requests().into_iter();
        let blobs = requests.filter(|request| request.path.contains("/blobs/"));
        blobs.map(|request| request.header("range").unwrap_or("all").to_owned()).collect()
    }
}

#[tokio::test]
async fn a_blob_arrives_whole() {
    let fixture = Fixture::new().await;
    fixture.arrives().await;
    assert_eq!(fixture.ranges(), ["all"]);
}

#[tokio::test]
async fn a_complete_file_is_verified_and_not_fetched() {
    let fixture = Fixture::new().await;
    fs::write(fixture.dest(), &fixture.content).unwrap();
    fixture.arrives().await;
    assert!(fixture.ranges().is_empty());
}

#[tokio::test]
async fn a_broken_connection_is_resumed_where_it_broke() {
    let fixture = Fixture::new().await;
    fixture.registry.script(Rule::get("/blobs/").times(1).cut_after(100_000));
    fixture.arrives().await;
    let ranges = fixture.ranges();
    assert_eq!(ranges.len(), 2);
    // Some of the first bytes may have been lost with the connection.
    let resumed = ranges[1].strip_prefix("bytes=").map(|range| range.trim_end_matches('-').parse());
    let start: usize = resumed.map_or(0, |start| start.unwrap());
    assert!(start <= 100_000, "{start}");
}

#[tokio::test]
async fn a_leftover_file_is_hashed_and_resumed() {
    let fixture = Fixture::new().await;
    fs::write(fixture.dest(), &fixture.content[..200_000]).unwrap();
    fixture.arrives().await;
    assert_eq!(fixture.ranges(), ["bytes=200000-"]);
}

#[tokio::test]
async fn a_leftover_that_is_something_else_is_started_over() {
    let fixture = Fixture::new().await;
    fs::write(fixture.dest(), vec![0; 200_000]).unwrap();
    fixture.arrives().await;
    assert_eq!(fixture.ranges(), ["bytes=200000-", "all"]);
    fs::write(fixture.dest(), vec![0; SIZE]).unwrap();
    fixture.arrives().await;
    fs::write(fixture.dest(), vec![0; SIZE + 1]).unwrap();
    fixture.arrives().await;
}

#[tokio::test]
async fn a_server_without_ranges_is_read_from_the_start() {
    let fixture = Fixture::new().await;
    for rule in [
        Rule::get("/blobs/").ignore_range(),
        Rule::get("/blobs/").times(1).status(416),
        // Announces a range other than the requested one.
        Rule::get("/blobs/").times(1).status(206).header("content-range", "bytes 5-9/10"),
    ] {
        fs::write(fixture.dest(), &fixture.content[..200_000]).unwrap();
        fixture.registry.behave();
        fixture.registry.script(rule);
        fixture.arrives().await;
    }
}

#[tokio::test]
async fn a_transfer_that_keeps_breaking_leaves_its_file_for_the_next_time() {
    let fixture = Fixture::new().await;
    fixture.registry.script(Rule::get("/blobs/").cut_after(0));
    fs::write(fixture.dest(), &fixture.content[..1000]).unwrap();
    let error = fixture.fetch().await.unwrap_err();
    assert_eq!(error.reason(), Reason::RegistryUnavailable);
    assert_eq!(fixture.ranges().len(), 4);
    assert_eq!(fs::metadata(fixture.dest()).unwrap().len(), 1000);
    fixture.registry.behave();
    fixture.registry.forget_requests();
    fixture.arrives().await;
    assert_eq!(fixture.ranges(), ["bytes=1000-"]);
}

#[tokio::test]
async fn a_blob_with_another_digest_is_refused_and_removed() {
    let fixture = Fixture::new().await;
    let mut wrong = fixture.content.clone();
    wrong[SIZE / 2] ^= 1;
    fixture.registry.corrupt_blob(NAME, fixture.layer.digest, wrong);
    let error = fixture.fetch().await.unwrap_err();
    assert!(
        matches!(error, Error::DigestMismatch { expected, .. } if expected == fixture.layer.digest)
    );
    assert_eq!(error.reason(), Reason::ImageInvalid);
    assert!(!fixture.dest().exists());
}

#[tokio::test]
async fn a_blob_of_another_size_is_refused() {
    let fixture = Fixture::new().await;
    for size in [SIZE - 1, SIZE + 1] {
        fixture.registry.corrupt_blob(NAME, fixture.layer.digest, bytes(size));
        let error = fixture.fetch().await.unwrap_err();
        assert!(matches!(error, Error::SizeMismatch { .. }), "{error:?}");
        assert_eq!(error.reason(), Reason::ImageInvalid);
        assert!(!fixture.dest().exists());
    }
}

#[tokio::test]
async fn a_missing_blob_is_an_error_and_leaves_no_file() {
    let fixture = Fixture::new().await;
    let layer = layer_of(b"not there");
    let client = client(fixture.registry.host());
    let error = client.fetch_blob(&fixture.reference(), &layer, &fixture.dest()).await.unwrap_err();
    assert_eq!(error.reason(), Reason::DigestNotFound);
    assert!(!fixture.dest().exists());
}

#[tokio::test]
async fn a_server_that_always_sends_another_range_is_given_up() {
    let fixture = Fixture::new().await;
    fs::write(fixture.dest(), &fixture.content[..1000]).unwrap();
    let rule = Rule::get("/blobs/").status(206).header("content-range", "bytes 5-9/10");
    fixture.registry.script(rule);
    let error = fixture.fetch().await.unwrap_err();
    assert_eq!(error.reason(), Reason::ImageInvalid);
    assert_eq!(fixture.ranges(), ["bytes=1000-", "all"]);
}

#[tokio::test]
async fn an_empty_blob_needs_no_registry() {
    let fixture = Fixture::new().await;
    let layer = layer_of(b"");
    assert_eq!(layer.digest, Digest::of(b""));
    let client = client(fixture.registry.host());
    client.fetch_blob(&fixture.reference(), &layer, &fixture.dest()).await.unwrap();
    assert_eq!(fs::read(fixture.dest()).unwrap(), b"");
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_an_io_error_with_its_path() {
    let fixture = Fixture::new().await;
    let dest = fixture.work.path().join("no/such/file");
    let client = client(fixture.registry.host());
    let error = client.fetch_blob(&fixture.reference(), &fixture.layer, &dest).await.unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if *path == dest), "{error:?}");
}

#[tokio::test]
async fn layers_are_fetched_together_and_counted() {
    let registry = Registry::start().await;
    let work = tempfile::tempdir().unwrap();
    let contents: Vec<_> = (1..=5).map(|n| bytes(n * 10_000)).collect();
    let layers: Vec<_> = contents
        .iter()
        .map(|content| {
            registry.push_blob(NAME, content.clone());
            let layer = layer_of(content);
            (layer, work.path().join(layer.digest.hex()))
        })
        .collect();
    let (client, receiver) = (client(registry.host()), Receiver::default());
    let reference = reference(registry.host(), "");
    // The first request is answered only after the last was received, so they must run
    // concurrently.
    let gate = Gate::new();
    registry.script(Rule::get(&layers[0].0.digest.to_string()).pause_after(1, &gate));
    let opened = async {
        while registry.count("GET", &layers[4].0.digest.to_string()) == 0 {
            tokio::task::yield_now().await;
        }
        gate.open();
    };
    let fetches = layers
        .iter()
        .map(|(layer, dest)| client.fetch_blob_with(&reference, layer, dest, &receiver));
    let fetched = try_join_all(fetches);
    tokio::join!(async { fetched.await.unwrap() }, opened);
    assert_eq!(receiver.progress.bytes(), 150_000);
    for ((_, path), content) in layers.iter().zip(&contents) {
        assert!(fs::read(path).unwrap() == *content);
    }
}

#[tokio::test]
async fn a_stopped_fetch_is_resumed_by_the_next() {
    let fixture = Fixture::new().await;
    fixture.registry.script(Rule::get("/blobs/").times(1).pause_after(150_000, &Gate::new()));
    let client = client(fixture.registry.host());
    let receiver = Receiver::default();
    let (reference, dest) = (fixture.reference(), fixture.dest());
    {
        let fetch = client.fetch_blob_with(&reference, &fixture.layer, &dest, &receiver);
        let half = async {
            while receiver.progress.bytes() < 150_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            result = fetch => panic!("it cannot end: {result:?}"),
            () = half => {}
        }
    }
    fixture.arrives().await;
    assert_eq!(fixture.ranges(), ["all", "bytes=150000-"]);
}

#[tokio::test]
async fn two_fetches_into_one_file_do_not_disturb_each_other() {
    let fixture = Fixture::new().await;
    let (one, other) = tokio::join!(fixture.fetch(), fixture.fetch());
    one.unwrap();
    other.unwrap();
    assert!(fs::read(fixture.dest()).unwrap() == fixture.content, "content differs");
    // The second fetch waited for the lock, and found the file complete.
    assert_eq!(fixture.ranges(), ["all"]);
}

#[tokio::test]
async fn an_overflowing_length_is_a_size_mismatch() {
    let fixture = Fixture::new().await;
    fs::write(fixture.dest(), &fixture.content[..1000]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 1000-/*\r\ncontent-length: {}\r\n\r\n",
        u64::MAX - 2
    );
    let liar = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let (client, reference) = (client(&host), reference(&host, ""));
    let dest = fixture.dest();
    let fetch = client.fetch_blob(&reference, &fixture.layer, &dest);
    let (result, _stream) = tokio::join!(fetch, liar);
    assert!(matches!(result, Err(Error::SizeMismatch { .. })), "{result:?}");
}

/// A registry that sends a byte now and then is never silent, so only the least throughput ends it.
#[tokio::test]
async fn a_layer_that_drips_ends_at_once_and_keeps_what_came() {
    let fixture = Fixture::new().await;
    fixture.registry.script(Rule::get("/blobs/").drip(Duration::from_millis(5)));
    let mut config = config(fixture.registry.host());
    config.timeouts.idle = Duration::from_millis(200);
    config.timeouts.least = 1000;
    let client = Client::new(config).unwrap();
    let (reference, dest) = (fixture.reference(), fixture.dest());
    let error = client.fetch_blob(&reference, &fixture.layer, &dest).await.unwrap_err();
    let Error::TooSlow { received, within, least: 1000, .. } = &error else { panic!("{error:?}") };
    assert!((1..1000).contains(received) && *within >= Duration::from_millis(200), "{error}");
    assert_eq!((error.reason(), fixture.ranges().len()), (Reason::RegistryUnavailable, 1));
    let kept = fs::metadata(fixture.dest()).unwrap().len();
    assert!(kept >= *received, "{kept} bytes of {received} are kept");
    fixture.registry.behave();
    fixture.arrives().await;
}

#[tokio::test]
async fn a_destination_without_space_ends_the_transfer() {
    let fixture = Fixture::new().await;
    let client = client(fixture.registry.host());
    let full = Failure::new(Reason::StoreFull, "no more than 100000 bytes");
    let refused = full.clone();
    let grant = move |_: &Layer, length| match length <= 100_000 {
        true => Ok(()),
        false => Err(refused.clone()),
    };
    let receiver = Receiver { space: Some(Space::new(grant)), ..Receiver::default() };
    let (reference, dest) = (fixture.reference(), fixture.dest());
    let fetch = client.fetch_blob_with(&reference, &fixture.layer, &dest, &receiver);
    assert_eq!(fetch.await.unwrap_err().failure(), full);
    assert!(fs::metadata(&dest).map_or(0, |it| it.len()) <= 100_000);
    assert_eq!(fixture.ranges().len(), 1);
}
