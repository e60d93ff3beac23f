//! The memory of versions in the engine.

use std::collections::BTreeMap;

use outrigger_core::Stage;
use outrigger_lifecycle::{OTHER, Snapshot, model_label};

/// The bytes of each version in the engine, by the labels for model and digest.
pub(super) fn memory(snapshot: &Snapshot) -> BTreeMap<(String, String), u64> {
    let mut memory = BTreeMap::new();
    for (name, model) in snapshot.models.iter() {
        let label = || model_label(name).map_or(OTHER.to_owned(), |label| label.to_string());
        for version in model.versions.values().filter(|version| version.stage >= Stage::Loaded) {
            let model = label();
            let digest = if model == OTHER { model.clone() } else { version.digest.to_string() };
            *memory.entry((model, digest)).or_default() += version.size_bytes;
        }
    }
    memory
}
