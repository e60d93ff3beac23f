//! Compactions of finished jobs.

use std::{fs, path::Path};

use outrigger_batch::{Compacted, Compaction, Error, Format, Manifest, Size, Store, compact};

use crate::{
    harness::{Place, expected, host, rows_of, score, scored, text_of},
    kills::{OUTPUT, deadly, is_killed_at, variable},
};

/// The output of the job that a child compacts, and the most bytes of files that become one.
const SOURCE: &str = "OUTRIGGER_TEST_SOURCE";
const SIZE: &str = "OUTRIGGER_TEST_FILE_SIZE";
/// The most bytes of files that become one, where their number does not matter.
const FILE_SIZE: u64 = 20_000;

/// Rows of which some are dead.
fn rows(count: i64) -> impl Iterator<Item = i64> {
    (0..count).map(|id| if id % 10 == 9 { -1 } else { id })
}

/// A finished job with so many rows, three in a file.
async fn finished(count: i64) -> Place {
    finished_as(count, Format::Parquet).await
}

async fn finished_as(count: i64, format: Format) -> Place {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", rows(count));
    let mut job = place.job(&[&file], &[&host.address()]);
    (job.chunk_rows, job.output_format) = (Some(3), Some(format));
    score(job).await.expect("scored");
    place
}

/// The most bytes of files that become one, so that 20 do.
fn size_of_20(place: &Place) -> u64 {
    let manifest = Manifest::read(&place.store()).expect("readable").expect("a manifest");
    20 * manifest.files().map(|file| file.bytes).max().expect("files")
}

/// Checks that a compaction has the rows and dead letters of its job.
fn check(place: &Place, compacted: &Compacted, to: &Path) {
    let manifest = Manifest::read(&place.store()).expect("readable").expect("a manifest");
    let rows = rows_of(to, compacted.files.iter().map(|part| &part.file));
    assert_eq!(rows, scored(&place.output()));
    assert_eq!((compacted.rows, compacted.scored), (manifest.rows, manifest.scored));
    assert_eq!(compacted.source.fingerprint, manifest.fingerprint);
    let read = |root: &Path, name: &str| fs::read_to_string(root.join(name)).expect("a file");
    let letters = manifest.dead_letters().map(|file| read(&place.output(), &file.name));
    let all = compacted.dead_letters.as_ref().map(|file| read(to, &file.name));
    assert_eq!(all.unwrap_or_default(), letters.collect::<String>());
    let names = |directory: &str| {
        let Ok(entries) = fs::read_dir(to.join(directory)) else { return 0 };
        entries.count()
    };
    assert_eq!((names("data"), names("part")), (compacted.files.len(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_become_few_in_the_same_order() {
    let place = finished(300).await;
    let (to, count) = (place.path("large"), scored(&place.output()).len());
    assert_eq!(scored(&place.output()), expected(rows(300).filter(|id| *id >= 0)));
    let size = size_of_20(&place);
    let compacted = compact(&place.store(), &Store::local(&to), size).expect("compacted");
    check(&place, &compacted, &to);
    let files: Vec<_> = compacted.files.iter().map(|part| part.files).collect();
    assert!(files.len() > 2 && files.iter().max() > Some(&16), "{files:?}: one has parts");
    assert_eq!(files.iter().sum::<usize>(), 100);
    assert_eq!(compacted.files.iter().map(|part| part.rows).sum::<u64>(), count as u64);
    let again = compact(&place.store(), &Store::local(&to), size);
    assert_eq!(again, Ok(compacted));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_joined_as_they_are() {
    let place = finished_as(300, Format::Jsonl).await;
    let to = place.path("large");
    let size = size_of_20(&place);
    let compacted = compact(&place.store(), &Store::local(&to), size).expect("compacted");
    check(&place, &compacted, &to);
    assert_eq!(compacted.format, Format::Jsonl);
    let files: Vec<_> = compacted.files.iter().map(|part| part.files).collect();
    assert!(files.len() > 2 && files.iter().max() > Some(&16), "{files:?}: one has parts");
    let text = compacted.files.iter().map(|part| {
        assert!(part.file.name.ends_with(".jsonl"), "{}", part.file.name);
        fs::read_to_string(to.join(&part.file.name)).expect("a file")
    });
    assert_eq!(text.collect::<String>(), text_of(&place.output()), "all bytes are the same");
    let rows: Vec<_> = compacted.files.iter().map(|part| part.rows).collect();
    assert_eq!(rows.iter().sum::<u64>(), 270);
    let again = compact(&place.store(), &Store::local(&to), size);
    assert_eq!(again, Ok(compacted));
    // A file of the job that was changed is found before its lines are a part of another one.
    let manifest = Manifest::read(&place.store()).expect("readable").expect("a manifest");
    let name = &manifest.files().last().expect("a file").name;
    fs::write(place.output().join(name), "{}\n").expect("written");
    let other = compact(&place.store(), &Store::local(place.path("other")), size);
    assert!(matches!(&other, Err(Error::Failed(it)) if it.contains("was changed")), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_may_have_a_compaction() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", rows(30));
    let mut job = place.job(&[&file], &[&host.address()]);
    let to = place.path("large");
    job.compact = Some(Compaction { to: to.clone(), file_size: Size(FILE_SIZE) });
    score(job.clone()).await.expect("scored");
    let compacted = Compacted::open(&Store::local(&to)).expect("readable").expect("compacted");
    check(&place, &compacted, &to);
    // A job that was ended before its compaction.
    fs::remove_dir_all(&to).expect("removed");
    score(job).await.expect("scored before");
    let again = Compacted::open(&Store::local(&to)).expect("readable").expect("compacted");
    assert_eq!(again, compacted);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_compacted_is_refused() {
    let place = finished(30).await;
    let to = || Store::local(place.path("large"));
    let refused = |fault: &str| match compact(&place.store(), &to(), FILE_SIZE) {
        Err(Error::Usage(message)) if message.contains(fault) => {}
        other => panic!("{fault}: {other:?}"),
    };
    compact(&place.store(), &to(), FILE_SIZE + 1).expect("compacted");
    refused("with another size");
    fs::remove_dir_all(to().root()).expect("removed");
    let own = compact(&place.store(), &place.store(), FILE_SIZE);
    assert!(matches!(&own, Err(Error::Usage(it)) if it.contains("exists already")), "{own:?}");
    let manifest = Manifest::read(&place.store()).expect("readable").expect("a manifest");
    let name = &manifest.files().last().expect("a file").name;
    fs::write(place.output().join(name), "short").expect("written");
    let damaged = compact(&place.store(), &to(), FILE_SIZE);
    assert!(matches!(&damaged, Err(Error::Failed(it)) if it.contains("was changed")));
    let unfinished = Compacted::open(&to());
    assert!(matches!(&unfinished, Err(Error::Usage(it)) if it.contains("is not finished")));
    fs::remove_file(place.output().join("manifest.json")).expect("removed");
    refused("is not finished");
}

/// The compaction that is killed: a test that only does something in a process of its own.
#[test]
fn child() {
    let Ok(output) = std::env::var(OUTPUT) else { return };
    let Some(to) = deadly(Store::local(output)) else { return };
    let size = variable(SIZE).parse().expect("a number");
    compact(&Store::local(variable(SOURCE)), &to, size).expect("compacted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_is_the_same_after_a_kill_at_any_step() {
    let place = finished(120).await;
    let source = place.output().to_string_lossy().into_owned();
    let size = size_of_20(&place);
    let whole = Store::local(place.path("whole"));
    let expected = compact(&place.store(), &whole, size).expect("compacted");
    assert!(expected.files.len() > 1 && expected.files[0].files > 16, "it has parts");
    let mut steps = 0;
    loop {
        let to = place.path(&format!("step-{steps}"));
        let output = to.to_string_lossy().into_owned();
        let size_text = size.to_string();
        let variables = [(SOURCE, &*source), (OUTPUT, &*output), (SIZE, &*size_text)];
        let is_killed = is_killed_at(steps, "compactions::child", &variables);
        let compacted = compact(&place.store(), &Store::local(&to), size);
        let compacted = compacted.unwrap_or_else(|error| panic!("step {steps}: {error}"));
        assert_eq!(compacted, expected, "step {steps}");
        check(&place, &compacted, &to);
        fs::remove_dir_all(&to).expect("removed");
        if !is_killed {
            break;
        }
        steps += 1;
    }
    assert!(steps > 40, "{steps} steps");
}
