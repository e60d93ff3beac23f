//! The checks of batch clients, in whole jobs against scripted servers. The table is in the
//! documentation of `main.rs`.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use outrigger_batch::{Control, Error, Job, MaxErrors, Period, Store, Watch, run};
use outrigger_testkit::oip::{Answer, Seen, Server, identity};

use crate::harness::{
    Place, dead, expected, failing_on, host, ids, model, reasons, requests, score, scored,
    write_control,
};

/// The pause between two looks at something that a test waits for.
const LOOK: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread")]
async fn check_34_a_poison_row_of_a_thousand_is_isolated() {
    const BAD: i64 = 1577;
    let script = || failing_on(|id| id == BAD);
    let (place, one, two) = (Place::new(), model(script()).await, model(script()).await);
    let file = place.rows("a.parquet", 0..3000);
    let mut job = place.job(&[&file], &[&one.address(), &two.address()]);
    (job.batch_size, job.chunk_rows) = (1000, Some(1000));
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (2999, 1));
    assert_eq!(scored(&place.output()), expected((0..3000).filter(|id| *id != BAD)));
    assert_eq!(reasons(&place.output()), [(BAD as u64, "model_error".to_owned())]);
    // The whole batch, and two halves for each of the ten times that its part is cut. A test counts
    // the calls; here one may have been sent twice because its answer was late.
    let sent = [requests(&one), requests(&two)].concat();
    let parts: BTreeSet<_> =
        sent.into_iter().filter(|ids| ids[0] >= 1000 && ids[0] < 2000).collect();
    assert!(parts.len() <= 1 + 2 * 10, "{} parts", parts.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_35_a_row_that_ends_its_host_reaches_two_hosts() {
    ends_two_hosts(31, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_35_a_first_row_that_ends_its_host_reaches_two_hosts() {
    ends_two_hosts(0, 5).await;
}

/// Runs a job on this number of hosts, all of which the row `bad` ends.
async fn ends_two_hosts(bad: i64, hosts: usize) {
    let script = move |seen: &Seen| match ids(seen).contains(&bad) {
        true => Answer::Close,
        false => identity::grpc(seen),
    };
    let (place, mut servers) = (Place::new(), Vec::new());
    for _ in 0..hosts {
        servers.push(model(script).await);
    }
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let file = place.rows("a.parquet", 0..90);
    // One call at a time, so that no other row is in flight at a host when it ends.
    let job = Job { concurrency: 1, ..place.job(&[&file], &addresses) };
    score(job).await.expect("scored");
    assert_eq!(scored(&place.output()), expected((0..90).filter(|id| *id != bad)));
    assert_eq!(reasons(&place.output()), [(bad as u64, "host_lost".to_owned())]);
    let hit = servers.iter().filter(|server| requests(server).concat().contains(&bad));
    assert_eq!(hit.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_36_a_dead_letter_has_the_row_and_its_history() {
    let script = || failing_on(|id| id == 17);
    let (place, one, two) = (Place::new(), model(script()).await, model(script()).await);
    let file = place.rows("a.parquet", 0..40);
    let job = place.job(&[&file], &[&one.address(), &two.address()]);
    score(job).await.expect("scored");
    let [letter] = &dead(&place.output())[..] else { panic!("one letter") };
    let text = |key: &str| letter[key].as_str().unwrap_or_else(|| panic!("{key}: {letter}"));
    assert_eq!((text("file"), letter["row"].as_u64()), (&*file, Some(17)));
    assert_eq!(text("reason"), "model_error");
    assert!(text("error").contains("the model failed"), "{letter}");
    let mut hosts: Vec<_> = letter["hosts"].as_array().expect("hosts").iter().collect();
    hosts.sort_by_key(|host| host.to_string());
    let mut both = [one.address(), two.address()];
    both.sort();
    assert_eq!(hosts, both.each_ref());
    // The whole batch twice, and the row alone twice at least.
    assert!(letter["attempts"].as_u64() >= Some(4), "{letter}");
    let time = |key: &str| humantime::parse_rfc3339(text(key)).expect("a time");
    assert!(time("first") <= time("last"));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_37_a_share_of_dead_rows_stops_the_job() {
    // From the row 1,500 on, one row in twenty is bad.
    let script = || failing_on(|id| id >= 1500 && id % 20 == 0);
    let (place, one, two) = (Place::new(), model(script()).await, model(script()).await);
    let file = place.rows("a.parquet", 0..4000);
    let mut job = place.job(&[&file], &[&one.address(), &two.address()]);
    (job.batch_size, job.chunk_rows) = (10, Some(100));
    job.max_errors = Some(MaxErrors::Share(0.02));
    let error = score(job.clone()).await.expect_err("too many");
    assert_eq!(error, Error::TooManyDead);
    let sent = [requests(&one), requests(&two)].concat().concat();
    assert!(sent.iter().max() < Some(&3500), "the job stops long before its end");
    // Rows that were scored count, and the job goes on with another limit.
    job.max_errors = None;
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (3875, 125));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_41_a_host_that_ceases_to_answer_does_not_hold_up_the_end() {
    let calls = AtomicUsize::new(0);
    let slow = model(move |seen| match calls.fetch_add(1, Relaxed) {
        ..4 => identity::grpc(seen),
        _ => Answer::Never,
    });
    let (place, slow, good) = (Place::new(), slow.await, host().await);
    let file = place.rows("a.parquet", 0..300);
    let mut job = place.job(&[&file], &[&slow.address(), &good.address()]);
    job.timeout = Period(Duration::from_secs(24 * 3600));
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (300, 0));
    assert_eq!(scored(&place.output()), expected(0..300));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_42_workers_that_all_put_rows_back_do_not_block_each_other() {
    // All hosts refuse whatever they get for a while.
    let refusing = || {
        let calls = AtomicUsize::new(0);
        model(move |seen| match calls.fetch_add(1, Relaxed) {
            1..10 => Answer::Status(8, "too many requests".to_owned()),
            10..20 => Answer::Status(14, "not now".to_owned()),
            _ => identity::grpc(seen),
        })
    };
    let (place, one, two) = (Place::new(), refusing().await, refusing().await);
    let file = place.rows("a.parquet", 0..400);
    let job = place.job(&[&file], &[&one.address(), &two.address()]);
    let manifest = score(job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (400, 0));
    assert_eq!(scored(&place.output()), expected(0..400));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_43_a_changed_batch_size_loses_repeats_and_reorders_no_row() {
    let (place, host, watch) = (Place::new(), host().await, Watch::default());
    let file = place.rows("a.parquet", 0..400);
    let job = place.job(&[&file], &[&host.address()]);
    // The first commit pauses the job, and all commits wait until it is: so it is in its middle.
    let store = place.store().observed({
        let (store, watch) = (place.store(), watch.clone());
        let first = std::sync::Once::new();
        move |step| {
            if !step.starts_with("commit/") {
                return;
            }
            first.call_once(|| {
                let paused = Control { paused: true, ..Control::default() };
                write_control(&paused, &store);
                while !watch.get().is_paused {
                    thread::sleep(LOOK);
                }
            });
        }
    });
    let running = tokio::spawn(run(job, store, watch.clone()));
    while !watch.get().is_paused {
        tokio::time::sleep(LOOK).await;
    }
    let before = requests(&host);
    assert!(before.concat().len() < 200, "the job is in its middle");
    let sizes = |requests: &[Vec<i64>]| requests.iter().map(Vec::len).collect::<BTreeSet<_>>();
    assert!(sizes(&before).contains(&3));
    place.control(&Control { batch_size: Some(2), ..Control::default() });
    let manifest = running.await.expect("no panic").expect("scored");
    assert_eq!((manifest.scored, manifest.dead), (400, 0));
    assert_eq!(scored(&place.output()), expected(0..400));
    let after = requests(&host).split_off(before.len());
    let last = after.iter().rev().take(20).cloned().collect::<Vec<_>>();
    assert!(sizes(&last).iter().all(|size| *size <= 2), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_45_of_two_workers_with_one_chunk_one_wins() {
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..60);
    let both = Arc::new(Mutex::new(BTreeSet::new()));
    // The lease of the first chunk is lost when its data is to be written, and no data is written
    // before both workers have scored the chunk.
    let store = || {
        let (both, lease) = (Arc::clone(&both), place.output().join("lease/00000000.json"));
        place.store().observed(move |step| {
            let Some((data, _)) = step.split_once(": ") else { return };
            if !data.starts_with("data/00000000-") {
                return;
            }
            if both.lock().expect("no panic").insert(data.to_owned()) {
                // The other worker may have removed it.
                let _ = fs::remove_file(&lease);
            }
            while both.lock().expect("no panic").len() < 2 {
                thread::sleep(LOOK);
            }
        })
    };
    let work = |store: Store| {
        tokio::spawn(run(place.job(&[&file], &[&host.address()]), store, Watch::default()))
    };
    let workers = [work(store()), work(store())];
    let mut manifests = Vec::new();
    for worker in workers {
        manifests.push(worker.await.expect("no panic").expect("scored"));
    }
    assert_eq!(both.lock().expect("no panic").len(), 2, "two workers had the chunk");
    assert_eq!(manifests[0], manifests[1]);
    assert_eq!(scored(&place.output()), expected(0..60));
    let twice = requests(&host).concat().into_iter().filter(|id| *id == 6).count();
    assert!(twice >= 2, "the last row of the chunk was sent by both");
    let found = fs::read_dir(place.output().join("data")).expect("a directory");
    let found = found.map(|entry| entry.expect("an entry").file_name());
    let of_first = found.filter(|name| name.to_string_lossy().starts_with("00000000-"));
    assert_eq!(of_first.count(), 1);
}
