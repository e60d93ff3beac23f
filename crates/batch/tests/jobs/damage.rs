//! Files and objects that are damaged.

use std::{
    fs::{self, File},
    time::SystemTime,
};

use outrigger_batch::{Control, Error, Job, Manifest, MaxErrors, Progress, State, Status};

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
    let commits = place.store().list("commit").expect("commits");
    // Those of parts of a chunk have its number and that of a row.
    let before = commits.iter().filter(|name| !name.contains('-')).count();
    assert!(before > 0, "the rows before the damage are committed");
    write(&file, &whole, time);
    let sent = host.count("/ModelInfer");
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (ROWS as u64, 0));
    assert!(scored(&place.output()) == expected(0..ROWS));
    // Rows that are committed are not sent again.
    assert!(host.count("/ModelInfer") - sent <= 100 - 5 * before + 1, "{before} chunks before");
}

/// The crash of a machine may leave small objects empty, with zeros or with a part of their content.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_with_damaged_leases_settings_and_reports() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", (0..70).map(|id| if id < 14 { -1 } else { id }));
    let mut job = place.job(&[&file], &[&host.address()]);
    job.max_errors = Some(MaxErrors::Rows(5));
    assert_eq!(score(job.clone()).await, Err(Error::TooManyDead));
    let store = place.store();
    let time = humantime::format_rfc3339(SystemTime::now()).to_string();
    let report = Progress { worker: "a".to_owned(), time, rows: 70, ..Progress::default() };
    let json = serde_json::to_vec(&report).expect("JSON");
    store.replace("worker/a.json", &json).expect("written");
    store.replace("worker/b.json", b"").expect("written");
    store.replace("worker/c.json", &json[..json.len() / 2]).expect("written");
    store.replace("control.json", b"").expect("written");
    for chunk in 0..10 {
        let name = format!("lease/{chunk:08}.json");
        store.replace(&name, &[0; 100][..chunk * 10]).expect("written");
    }
    let status = Status::read(&store).expect("read");
    assert_eq!((status.workers, status.state), (vec![report], State::Running));
    assert_eq!(status.control, Control::default());
    let manifest = score(Job { max_errors: None, ..job }).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (56, 14));
    assert_eq!(scored(&place.output()), expected(14..70));
}
