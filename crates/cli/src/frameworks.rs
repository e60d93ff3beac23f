//! The frameworks whose packages the commands read, and the engine that scores them.

use std::sync::Arc;

use outrigger_core::Failure;
use outrigger_run::{Engine, Framework};
use outrigger_store::Store;
use outrigger_tfserving::{Client, Config, Settings, TENSORFLOW};

/// Every framework of the shipped engines.
pub(crate) const KNOWN: [Framework; 1] = [TENSORFLOW];

/// The engine that listens at `endpoint`, with its files in `store`.
pub(crate) fn connect(endpoint: String, store: Store) -> Result<Arc<dyn Engine>, Failure> {
    let client = Client::connect(Config::new(endpoint))
        .map_err(|error| Failure::because(error.reason(), &error))?;
    Ok(Arc::new(outrigger_tfserving::Engine::new(client, store, Settings::default())))
}
