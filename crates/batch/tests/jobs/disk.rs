//! A disk that has no room.

use std::{
    collections::BTreeSet,
    env, io,
    path::Path,
    process::{Command, Output},
};

use outrigger_batch::{Error, Format, Job, Manifest, Size, Store};
use outrigger_testkit::tools::if_installed;

use crate::harness::{Place, expected, host, job, reasons, score, scored};

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

/// The file, the host and the mounted directory of a child that mounts small disks.
const SMALL_FILE: &str = "OUTRIGGER_TEST_SMALL_FILE";
const SMALL_HOST: &str = "OUTRIGGER_TEST_SMALL_HOST";
const DISK: &str = "OUTRIGGER_TEST_SMALL_DISK";
/// The bytes of a page: a disk in memory has a whole number of them.
const PAGE: u64 = 4096;
/// More pages, and more inodes, than the job needs.
const ENOUGH: u64 = 60;

/// The rows of a small job of two chunks; two of them are dead.
fn rows() -> impl Iterator<Item = i64> {
    (0..14).map(|id| if id % 6 == 5 { -1 } else { id })
}

/// Mounts, in the mount namespace of this process.
fn mount(arguments: &[&str]) {
    let ended = Command::new("mount").args(arguments).output().expect("a process");
    assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// The command in a mount namespace of its own, which needs root's rights.
fn apart(command: &[&str]) -> Command {
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "--propagation", "private"]).args(command);
    apart
}

/// The worker on disks of all sizes: a test that only does something in a process of its own.
#[tokio::test(flavor = "multi_thread")]
async fn small_child() {
    let Ok(disk) = env::var(DISK) else { return };
    let (file, host) = (env::var(SMALL_FILE).expect("set"), env::var(SMALL_HOST).expect("set"));
    let mut full = BTreeSet::new();
    for limit in ["size", "nr_inodes"] {
        let unit = if limit == "size" { PAGE } else { 1 };
        // An empty disk has an inode.
        let mut stops = 0;
        for count in 2..ENOUGH {
            mount(&["-t", "tmpfs", "-o", &format!("{limit}={}", count * unit), "tmpfs", &disk]);
            let output = Path::new(&disk).join("out");
            let mut job = job(output.clone(), &[&file], &[&host]);
            job.memory = Size(64 << 20);
            let stopped = score(job.clone()).await.err();
            if let Some(error) = &stopped {
                let text = error.to_string();
                assert!(matches!(error, Error::Failed(_)), "{limit}={count}: {text}");
                assert!(text.contains("No space left on device"), "{limit}={count}: {text}");
                full.insert(text.split(['/', ':']).next().expect("a name").to_owned());
                assert_eq!(Manifest::read(&Store::local(&output)), Ok(None), "{limit}={count}");
                stops += 1;
            }
            mount(&["-o", "remount,size=0,nr_inodes=0", &disk]);
            let manifest = score(job).await;
            let manifest = manifest.unwrap_or_else(|error| panic!("{limit}={count}: {error}"));
            assert_eq!((manifest.rows, manifest.dead), (14, 2), "{limit}={count}");
            assert_eq!(scored(&output), expected(rows().filter(|id| *id >= 0)));
            assert_eq!(reasons(&output), [5, 11].map(|row| (row, "invalid_input".to_owned())));
            for directory in ["data", "dead", "commit"] {
                let entries = std::fs::read_dir(output.join(directory)).expect("a directory");
                assert_eq!(entries.count(), 2, "{limit}={count}: {directory}");
            }
            let ended = Command::new("umount").arg(&disk).status().expect("a process");
            assert!(ended.success(), "{limit}={count}: a file is still open");
            if stopped.is_none() {
                break;
            }
        }
        assert!(stops > 5, "{limit}: {stops} disks were too small");
    }
    for name in ["plan.json", "lease", "data", "dead", "commit", "manifest.json"] {
        assert!(full.contains(name), "{name} was always written: {full:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_disk_is_full_at_any_moment_stops_and_goes_on() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", rows());
    let disk = place.path("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let disk = disk.to_string_lossy();
    let may_mount = |ended: Output| match ended.status.success() {
        true => Ok(()),
        false => Err(io::Error::other("needs root's rights, to mount a small disk")),
    };
    let ended = apart(&["mount", "-t", "tmpfs", "tmpfs", &disk]).output();
    if if_installed("unshare", ended.and_then(may_mount)).is_none() {
        return;
    }
    let test = env::current_exe().expect("this test");
    let mut command = apart(&[&test.to_string_lossy(), "--exact", "disk::small_child"]);
    command.env(SMALL_FILE, file).env(SMALL_HOST, host.address()).env(DISK, &*disk);
    let ended = command.output().expect("a process");
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && text.contains("1 passed"), "{text}");
}
