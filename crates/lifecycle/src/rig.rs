//! A service that does not run, for tests of its parts: tests apply events by hand, and no job
//! completes.

use std::sync::Arc;

use outrigger_core::{EngineId, ModelName, Selector};
use outrigger_oci::Client;
use outrigger_store::Store;
use outrigger_tfserving::Settings;
use tempfile::TempDir;

use crate::{Config, Engines, Handle, Service, start};

/// Creates a service over a store of its own, with every image allowed.
pub(crate) fn service(config: Config) -> (Handle, Service, TempDir) {
    // A second installation fails, which does no harm.
    rustls::crypto::ring::default_provider().install_default().ok();
    let dir = TempDir::new().expect("a directory");
    let engine = outrigger_tfserving::Config::new("127.0.0.1:1");
    let client = outrigger_tfserving::Client::connect(engine).expect("a valid configuration");
    let store = Store::open(outrigger_store::Config::new(dir.path())).expect("a store");
    let serving = store.serving(&EngineId::default(), None).expect("a directory");
    let engine = outrigger_tfserving::Engine::new(client, serving, Settings::default());
    let engines = Engines::from([(EngineId::default(), Arc::new(engine) as Arc<_>)]);
    let client = Client::new(Default::default()).expect("a valid configuration");
    let (handle, service) = start(config, client, store, engines).expect("a valid configuration");
    (handle, service, dir)
}

pub(crate) fn churn() -> ModelName {
    "churn".parse().expect("a valid name")
}

pub(crate) fn latest() -> Selector {
    Selector::Tag("latest".parse().expect("a valid tag"))
}
