//! Files that are damaged in the middle.

use std::{
    fs::{self, File},
    time::SystemTime,
};

use outrigger_batch::{Error, Manifest};

use crate::harness::{Place, expected, host, score, scored};

/// Writes a file with this time.
fn write(path: &str, content: &[u8], time: SystemTime) {
    fs::write(path, content).expect("written");
    let file = File::options().write(true).open(path).expect("a file");
    file.set_modified(time).expect("the time is set");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_stops_a_job_which_goes_on_when_it_is_mended() {
    const ROWS: i64 = 100_000;
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..ROWS);
    let whole = fs::read(&file).expect("a file");
    let time = fs::metadata(&file).expect("a file").modified().expect("a time");
    // The numbers are the last column, before the footer.
    let mut damaged = whole.clone();
    let middle = whole.len() * 3 / 4;
    damaged[middle..middle + 4096].fill(0xff);
    write(&file, &damaged, time);
    let mut job = place.job(&[&file], &[&host.address()]);
    (job.batch_size, job.chunk_rows) = (1000, Some(5000));
    let error = score(job.clone()).await.expect_err("it is damaged");
    let is_clear = matches!(&error, Error::Failed(it) if it.contains("a.parquet"));
    assert!(is_clear, "{error}");
    assert_eq!(Manifest::read(&place.store()), Ok(None));
    let before = place.store().list("commit").expect("commits").len();
    assert!(before > 0, "the rows before the damage are committed");
    write(&file, &whole, time);
    let sent = host.count("/ModelInfer");
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (ROWS as u64, 0));
    assert!(scored(&place.output()) == expected(0..ROWS));
    // Rows that are committed are not sent again.
    assert!(host.count("/ModelInfer") - sent <= 100 - 5 * before + 1, "{before} chunks before");
}
