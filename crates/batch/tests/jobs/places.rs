//! The places of a job's input and output.

use std::{fs, path::Path};

use outrigger_batch::{Compaction, Error, Job, Size};

use crate::harness::{Place, dead, expected, host, score, scored};

/// The path from the directory of this process.
fn relative(path: &str) -> String {
    let here = std::env::current_dir().expect("a directory");
    let up = "../".repeat(here.components().count() - 1);
    format!("{up}{}", path.trim_start_matches('/'))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_of_a_process_does_not_matter() {
    let (place, host) = (Place::new(), host().await);
    let ids = || (0..20).map(|id| if id == 7 { -7 } else { id });
    let file = place.rows("a.parquet", ids());
    let from_here = relative(&file);
    assert!(Path::new(&from_here).is_file() && Path::new(&from_here).is_relative());
    let first = score(place.job(&[&from_here], &[&host.address()])).await.expect("scored");
    assert_eq!(scored(&place.output()), expected(ids().filter(|id| *id >= 0)));
    let letter = dead(&place.output()).remove(0);
    assert_eq!(letter["file"].as_str(), Some(&*file), "the file is found from anywhere");
    // A process elsewhere has another path to the file.
    let again = score(place.job(&[&file], &[&host.address()])).await;
    assert_eq!(again, Ok(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_among_the_input_is_refused_before_the_first_row() {
    let (place, host) = (Place::new(), host().await);
    fs::create_dir(place.path("rows")).expect("a directory");
    place.rows("rows/a.parquet", 0..20);
    let rows = place.path("rows").to_string_lossy().into_owned();
    let job = |output: &str| {
        let job = place.job(&[&rows], &[&host.address()]);
        Job { output: place.path(output), ..job }
    };
    let large = Compaction { to: place.path("rows/large"), file_size: Size(1 << 20) };
    for (job, key) in
        [(job("rows/out"), "output: "), (Job { compact: Some(large), ..job("out") }, "compact: ")]
    {
        let refused = score(job).await.expect_err(key);
        let is_clear =
            |it: &String| it.starts_with(key) && it.contains("whose files are the input");
        assert!(matches!(&refused, Error::Usage(it) if is_clear(it)), "{refused}");
    }
    assert!(!place.path("rows/out").exists() && host.seen().is_empty());
    // Names that begin with an underscore are not read, so the job can be run again.
    let first = score(job("rows/_out")).await.expect("scored");
    assert_eq!(score(job("rows/_out")).await, Ok(first));
}
