//! Several workers on one job.

use std::collections::BTreeSet;

use outrigger_testkit::oip::identity;

use crate::harness::{Place, expected, host, score, scored};

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_on_one_job_double_nothing() {
    let (place, host) = (Place::new(), host().await);
    host.script(|seen| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        identity::server(seen)
    });
    let file = place.rows("a.parquet", 0..300);
    let job = || place.job(&[&file], &[&host.address()]);
    let workers = [tokio::spawn(score(job())), tokio::spawn(score(job()))];
    let mut manifests = Vec::new();
    for worker in workers {
        manifests.push(worker.await.expect("no panic").expect("scored"));
    }
    assert_eq!(manifests[0], manifests[1]);
    assert_eq!(scored(&place.output()), expected(0..300));
    // The files that the manifest does not name are gone.
    let chunks = manifests[0].chunks.iter();
    let named: BTreeSet<_> =
        chunks.filter_map(|chunk| chunk.data.as_ref()).map(|data| data.name.clone()).collect();
    let entries = std::fs::read_dir(place.output().join("data")).expect("a directory");
    let found: BTreeSet<_> = entries
        .map(|entry| format!("data/{}", entry.expect("an entry").file_name().to_string_lossy()))
        .collect();
    assert_eq!(found, named);
}
