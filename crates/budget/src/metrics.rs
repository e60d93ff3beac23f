//! The metrics of this crate.

use outrigger_core::{Metric, MetricKind, Reason};

use crate::Budget;

const USED: &str = "outrigger_memory_used_bytes";
const LIMIT: &str = "outrigger_memory_limit_bytes";
const REFUSALS: &str = "outrigger_memory_refusals_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[
    Metric {
        name: USED,
        kind: MetricKind::Gauge,
        labels: &["account"],
        help: "Memory in use of each account of server.memory (requests, waiting, unread, answers, \
               packages, plans, pulls).",
    },
    Metric {
        name: LIMIT,
        kind: MetricKind::Gauge,
        labels: &["account"],
        help: "Size of each account of server.memory.",
    },
    Metric {
        name: REFUSALS,
        kind: MetricKind::Counter,
        labels: &["account", "reason"],
        help: "Requests, answers, packages and plans that were refused because their memory did \
               not fit into the account, by reason: TOO_LARGE and IMAGE_INVALID are larger than \
               the account allows at any time, the others found it in use.",
    },
];

impl Budget {
    /// Registers the series of all accounts, so that rate() sees the first refusal.
    pub fn begin(&self) {
        for account in self.accounts() {
            for reason in account.reasons() {
                metrics::counter!(REFUSALS, "account" => account.name(), "reason" => reason.as_str())
                    .absolute(0);
            }
        }
        self.record();
    }

    /// Records the sizes and the use of all accounts. Charges do not record them, because a request
    /// has several.
    #[allow(clippy::cast_precision_loss)]
    pub fn record(&self) {
        for account in self.accounts() {
            metrics::gauge!(USED, "account" => account.name()).set(account.used() as f64);
            metrics::gauge!(LIMIT, "account" => account.name()).set(account.limit() as f64);
        }
        let unread = &self.unread;
        metrics::gauge!(USED, "account" => unread.name()).set(unread.used() as f64);
        metrics::gauge!(LIMIT, "account" => unread.name()).set(unread.limit() as f64);
    }
}

/// Counts a refusal.
pub(crate) fn refused(account: &'static str, reason: Reason) {
    metrics::counter!(REFUSALS, "account" => account, "reason" => reason.as_str()).increment(1);
}
