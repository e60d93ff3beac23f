//! Checks that the page of the metrics is current. `UPDATE=1 cargo test -p outrigger-batch-ui --test
//! reference` regenerates it.

use std::{env, fs, path::Path};

#[test]
fn the_page_of_the_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/batch-metrics.md");
    let generated = outrigger_batch_ui::metrics::reference_markdown();
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &generated).expect("docs can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "docs/batch-metrics.md is out of date: run this with UPDATE=1");
}
