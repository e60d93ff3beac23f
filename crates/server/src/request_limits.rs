//! The limits of requests that a reload of the configuration can change.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use outrigger_budget::{Budget, default_memory};
use outrigger_core::ModelName;
use outrigger_features::Limits;
use outrigger_score::SharedLimits;

use crate::{admission::Admission, caller::Party, config::Config, limits::Limit};

/// The limits of requests, shared by all listeners. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct RequestLimits {
    /// The limit on calls that compute.
    pub(crate) admission: Admission,
    /// The limit on one caller's calls that compute.
    pub(crate) per_caller: Limit<Party>,
    /// The limit on one model's calls.
    pub(crate) per_model: Limit<ModelName>,
    /// The limits on a request's tensors.
    pub(crate) tensors: SharedLimits,
    /// The memory of the process, divided into accounts.
    pub(crate) budget: Budget,
    /// The deadline of a request whose caller sets none.
    default_deadline: Arc<ArcSwap<Duration>>,
}

impl RequestLimits {
    pub(crate) fn new(config: &Config) -> Self {
        let (server, limits) = (&config.server, &config.limits);
        Self {
            admission: Admission::new(server.max_in_flight, server.max_waiting),
            per_caller: Limit::new(limits.per_caller, "one caller"),
            per_model: Limit::new(limits.per_model, "one model"),
            tensors: Arc::new(ArcSwap::from_pointee(tensors(config))),
            budget: Budget::new(server.memory.map_or_else(default_memory, |memory| memory.0)),
            default_deadline: Arc::new(ArcSwap::from_pointee(server.default_deadline.0)),
        }
    }

    /// Applies the limits of `config` to requests from now on. Requests in progress are not cut
    /// off, even if they are more than a lowered limit allows.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn apply(&self, config: &Config) {
        self.admission.resize(config.server.max_in_flight, config.server.max_waiting);
        self.per_caller.set(config.limits.per_caller);
        self.per_model.set(config.limits.per_model);
        self.tensors.store(Arc::new(tensors(config)));
        self.default_deadline.store(Arc::new(config.server.default_deadline.0));
    }

    /// The deadline of a request whose caller sets none.
    pub(crate) fn default_deadline(&self) -> Duration {
        **self.default_deadline.load()
    }
}

/// The limits on the tensors of one request.
pub(crate) fn tensors(config: &Config) -> Limits {
    Limits {
        max_treatments: config.server.max_treatments as usize,
        max_users: config.server.max_users as usize,
        max_tensor_bytes: config.server.max_tensors.bytes(),
    }
}
