//! The store's metrics.

use bytesize::ByteSize;
use outrigger_core::{Metric, MetricKind, Reason};

use crate::Error;

const SIZE: &str = "outrigger_store_size_bytes";
const MAX_SIZE: &str = "outrigger_store_max_size_bytes";
const EVICTIONS: &str = "outrigger_store_evictions_total";
const UNPACKS: &str = "outrigger_store_unpack_seconds";
const UNPACK_FAILURES: &str = "outrigger_store_unpack_failures_total";
const JOURNAL_DAMAGED: &str = "outrigger_store_journal_damaged_total";

/// All of the store's metrics.
pub const METRICS: &[Metric] = &[
    Metric {
        name: SIZE,
        kind: MetricKind::Gauge,
        labels: &["kind"],
        help: "Bytes in the model store by kind: blob, partial, tree; as last measured.",
    },
    Metric {
        name: MAX_SIZE,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Configured size of the model store.",
    },
    Metric {
        name: EVICTIONS,
        kind: MetricKind::Counter,
        labels: &["kind"],
        help: "Blobs, partial downloads and trees removed from the store to make room.",
    },
    Metric {
        name: UNPACKS,
        kind: MetricKind::Histogram,
        labels: &[],
        help: "Time to unpack an image that ended in a tree.",
    },
    Metric {
        name: UNPACK_FAILURES,
        kind: MetricKind::Counter,
        labels: &["reason"],
        help: "Images that could not be unpacked, by reason.",
    },
    Metric {
        name: JOURNAL_DAMAGED,
        kind: MetricKind::Counter,
        labels: &["file", "used"],
        help: "Journal files found damaged or missing, by the source that was used instead: the \
               previous copy, the names kept beside the trees (trees), or nothing.",
    },
];

/// The source that was used in place of a damaged journal file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Used {
    Previous,
    Trees,
    Nothing,
}

impl Used {
    fn as_str(self) -> &'static str {
        match self {
            Self::Previous => "previous",
            Self::Trees => "trees",
            Self::Nothing => "nothing",
        }
    }
}

/// A kind of content that can be evicted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Blob,
    Partial,
    Tree,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Partial => "partial",
            Self::Tree => "tree",
        }
    }
}

pub(crate) fn measured(kind: Kind, size: ByteSize) {
    metrics::gauge!(SIZE, "kind" => kind.as_str()).set(size.as_u64() as f64);
}

/// Publishes the configured size and registers every counter at zero, so that it is exposed before
/// the first event and `rate()` sees the first increment.
pub(crate) fn register(max_size: u64) {
    metrics::gauge!(MAX_SIZE).set(max_size as f64);
    for kind in [Kind::Blob, Kind::Partial, Kind::Tree] {
        metrics::counter!(EVICTIONS, "kind" => kind.as_str()).absolute(0);
    }
    for reason in [Reason::ImageInvalid, Reason::StoreFull] {
        metrics::counter!(UNPACK_FAILURES, "reason" => reason.as_str()).absolute(0);
    }
    for file in ["record", "versions", "canaries", "crashes"] {
        for used in [Used::Previous, Used::Trees, Used::Nothing] {
            let labels = [("file", file), ("used", used.as_str())];
            metrics::counter!(JOURNAL_DAMAGED, &labels).absolute(0);
        }
    }
    // A histogram is exposed once it is registered.
    let _ = metrics::histogram!(UNPACKS);
}

pub(crate) fn evicted(kind: Kind) {
    metrics::counter!(EVICTIONS, "kind" => kind.as_str()).increment(1);
}

pub(crate) fn unpacked(took: std::time::Duration) {
    metrics::histogram!(UNPACKS).record(took.as_secs_f64());
}

pub(crate) fn unpack_failed(error: &Error) {
    metrics::counter!(UNPACK_FAILURES, "reason" => error.reason().as_str()).increment(1);
}

/// Counts a journal file that was damaged or missing.
pub(crate) fn journal_damaged(file: &str, used: Used) {
    let labels = [("file", file.to_owned()), ("used", used.as_str().to_owned())];
    metrics::counter!(JOURNAL_DAMAGED, &labels).increment(1);
}
