//! Checks that the generated files under `docs/` are current. `UPDATE=1 cargo test -p
//! outrigger-server --test reference` regenerates them.

use std::{env, fs, path::Path};

fn is_current(page: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, generated).expect("docs can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "docs/{page} is out of date: run this test with UPDATE=1");
}

#[test]
fn the_configuration_page_is_current() {
    is_current("configuration.md", &outrigger_server::config::reference_markdown());
}

#[test]
fn the_errors_page_is_current() {
    is_current("errors.md", &outrigger_server::errors_markdown());
}

#[test]
fn the_metrics_page_is_current() {
    is_current("metrics.md", &outrigger_server::metrics::reference_markdown());
}

#[test]
fn the_openapi_document_is_current() {
    is_current("openapi.json", &outrigger_server::openapi_document());
}
