//! A service that does not run, for tests of its parts: events are applied by
//! hand, and nothing answers.

use std::sync::Arc;

use outrigger_backend::TfServing;
use outrigger_core::{ModelName, Selector};
use outrigger_oci::Client;
use outrigger_store::Store;
use tempfile::TempDir;

use crate::{Config, Handle, Service, start};

/// A service over a store of its own, with every image allowed.
pub(crate) fn service(config: Config) -> (Handle, Service, TempDir) {
    // A second installation is refused, and just as good.
    rustls::crypto::ring::default_provider().install_default().ok();
    let dir = TempDir::new().expect("a directory");
    let engine = outrigger_backend::Config::new("127.0.0.1:1");
    let backend = Arc::new(TfServing::connect(engine).expect("a valid configuration"));
    let store = Store::open(outrigger_store::Config::new(dir.path())).expect("a store");
    let client = Client::new(Default::default()).expect("a valid configuration");
    let (handle, service) = start(config, client, store, backend).expect("a valid configuration");
    (handle, service, dir)
}

pub(crate) fn churn() -> ModelName {
    "churn".parse().expect("a valid name")
}

pub(crate) fn latest() -> Selector {
    Selector::Tag("latest".parse().expect("a valid tag"))
}
