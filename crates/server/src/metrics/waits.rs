//! Predictions that wait for their turn.

use std::sync::LazyLock;

use metrics::Gauge;

use super::{Counted, WAITING};

/// The thing that a prediction waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitsFor {
    /// Its turn at a crowded version.
    Version,
    /// A place in the process.
    Place,
    /// A model that is being loaded, or whose engine is away.
    Model,
    /// The room that other predictions leave, at a low priority.
    Room,
}

/// Counts a prediction that waits for its turn.
pub(crate) fn waiting(waits_for: WaitsFor) -> Counted {
    Counted::one(WAITING_FOR[waits_for as usize].clone())
}

/// Registers the series.
pub(super) fn begin() {
    LazyLock::force(&WAITING_FOR);
}

static WAITING_FOR: LazyLock<[Gauge; 4]> = LazyLock::new(|| {
    ["version", "place", "model", "room"]
        .map(|waits_for| metrics::gauge!(WAITING, "for" => waits_for))
});
