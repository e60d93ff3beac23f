//! A disk that has no room.

use std::{env, path::Path, process::Command};

use outrigger_batch::{Error, Format, Job, Manifest, Store};

use crate::harness::{Place, expected, host, job, score, scored};

/// The files, the host and the output of the child's job.
const FILES: &str = "OUTRIGGER_TEST_FULL_FILES";
const HOST: &str = "OUTRIGGER_TEST_FULL_HOST";
const OUTPUT: &str = "OUTRIGGER_TEST_FULL_OUTPUT";
/// The largest file in blocks of 512 or 1024 bytes. The output of the second file is larger.
const BLOCKS: u32 = 64;

/// A job with a chunk for each file.
fn chunks(output: &Path, files: &[&str], host: &str, format: Format) -> Job {
    let mut job = job(output.to_owned(), files, &[host]);
    (job.chunk_rows, job.batch_size) = (Some(100_000), 256);
    job.output_format = Some(format);
    job
}

/// The worker without room: a test that only does something in a process of its own.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let Ok(files) = env::var(FILES) else { return };
    let files: Vec<_> = files.split('\n').collect();
    let (output, host) = (env::var_os(OUTPUT).expect("set"), env::var(HOST).expect("set"));
    for format in [Format::Parquet, Format::Jsonl] {
        let output = Path::new(&output).join(format.to_string());
        let job = chunks(&output, &files, &host, format);
        let error = score(job).await.expect_err("there is no room");
        let is_full = matches!(&error, Error::Failed(it) if it.contains("File too large"));
        assert!(is_full, "{format}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_room_for_its_output_stops_and_goes_on() {
    let (place, host) = (Place::new(), host().await);
    let files = [place.rows("a.parquet", 0..10), place.rows("b.parquet", 10..20_000)];
    let files = files.each_ref().map(|file| &**file);
    // A write that is too long is an error, and no signal.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f {BLOCKS}; exec \"$0\" --exact \"$1\"")]);
    command.arg(env::current_exe().expect("this test")).arg("disk::child");
    command.env(FILES, files.join("\n")).env(HOST, host.address()).env(OUTPUT, place.output());
    let ended = command.output().expect("a process");
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && text.contains("1 passed"), "{text}");
    for format in [Format::Parquet, Format::Jsonl] {
        let output = place.output().join(format.to_string());
        let store = Store::local(&output);
        assert_eq!(Manifest::read(&store), Ok(None));
        assert!(store.list("commit").expect("commits").len() < 2);
        let job = chunks(&output, &files, &host.address(), format);
        let manifest = score(job).await.expect("scored");
        assert_eq!((manifest.rows, manifest.scored), (20_000, 20_000));
        assert!(scored(&output) == expected(0..20_000), "{format}");
        let entries = std::fs::read_dir(output.join("data")).expect("a directory");
        assert_eq!(entries.count(), 2, "{format}: what was not finished is removed");
    }
}
