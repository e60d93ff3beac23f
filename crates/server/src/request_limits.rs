//! The limits of requests that a reload of the configuration can change.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use outrigger_budget::{Budget, default_memory};
use outrigger_core::ModelName;
use outrigger_features::Limits;
use outrigger_score::SharedLimits;

use crate::{
    admission::Admission,
    caller::Party,
    config::{Config, Model, View},
    cpus,
    limits::Limit,
    metrics,
    priority::Low,
    unknown_names::UnknownNames,
};

/// The least default limit of a caller or a model: a smaller one would leave an engine idle.
const LEAST_SHARE: u32 = 16;

/// The limits of requests, shared by all listeners. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct RequestLimits {
    /// The places of calls that compute.
    pub(crate) admission: Admission,
    /// The places of calls of low priority.
    pub(crate) low: Low,
    /// The limit on one caller's calls that compute.
    pub(crate) per_caller: Limit<Party>,
    /// The limit on one model's calls.
    pub(crate) per_model: Limit<ModelName>,
    /// The budget of each caller for names that do not exist.
    pub(crate) unknown_names: UnknownNames,
    /// The hash by which the load of a version tells callers apart.
    hasher: RandomState,
    /// The limits on a request's tensors.
    pub(crate) tensors: SharedLimits,
    /// The memory of the process, divided into accounts.
    pub(crate) budget: Budget,
    /// The deadline of a request whose caller sets none.
    default_deadline: Arc<ArcSwap<Duration>>,
    /// The views of models in the Open Inference Protocol, where they are not the default.
    views: Arc<ArcSwap<Views>>,
}

/// The views of models by their names.
type Views = HashMap<String, View>;

impl Config {
    /// The bytes of memory that are budgeted: `server.memory` or its default.
    pub fn memory(&self) -> u64 {
        self.server.memory.map_or_else(default_memory, |memory| memory.0)
    }
}

impl RequestLimits {
    pub(crate) fn new(config: &Config) -> Self {
        let server = &config.server;
        let budget = Budget::new(config.memory());
        let per_caller = Limit::new(0, "one caller", metrics::Limit::Caller);
        let places = (server.max_in_flight, server.max_waiting);
        let admission = Admission::new(places, per_caller.clone(), budget.requests.clone());
        let limits = Self {
            low: Low::new(admission.clone(), cpus::detect(server.threads).threads),
            admission,
            per_caller,
            per_model: Limit::new(0, "one model", metrics::Limit::Model),
            unknown_names: UnknownNames::new(config.images.poll_interval.0),
            hasher: RandomState::new(),
            tensors: Arc::new(ArcSwap::from_pointee(tensors(config))),
            budget,
            default_deadline: Arc::new(ArcSwap::from_pointee(server.default_deadline.0)),
            views: Arc::new(ArcSwap::from_pointee(views(config))),
        };
        limits.set_shares(config);
        limits
    }

    /// Sets the limits on the shares of callers and models.
    fn set_shares(&self, config: &Config) {
        let (limits, places) = (&config.limits, config.server.max_in_flight);
        let callers = limits.callers.iter().map(|(name, most)| (Party::Known(name.into()), *most));
        let per_caller = limits.per_caller.unwrap_or_else(|| places.div_ceil(4).max(LEAST_SHARE));
        self.per_caller.set(per_caller, callers.collect());
        let models = limits.models.iter().map(|(name, most)| (name.clone(), *most));
        let per_model = limits.per_model.unwrap_or_else(|| places.div_ceil(2).max(LEAST_SHARE));
        self.per_model.set(per_model, models.collect());
        self.unknown_names.set(limits.unknown_names);
    }

    /// A hash of the caller, different in each process.
    pub(crate) fn hash(&self, caller: &Party) -> u64 {
        self.hasher.hash_one(caller)
    }

    /// Applies the limits of `config` to requests from now on. Requests in progress are not cut
    /// off, even if they are more than a lowered limit allows.
    pub(crate) fn apply(&self, config: &Config) {
        self.set_shares(config);
        self.admission.resize(config.server.max_in_flight, config.server.max_waiting);
        self.tensors.store(Arc::new(tensors(config)));
        self.default_deadline.store(Arc::new(config.server.default_deadline.0));
        self.views.store(Arc::new(views(config)));
    }

    /// The view of a model in the Open Inference Protocol.
    pub(crate) fn view(&self, model: &str) -> View {
        self.views.load().get(model).copied().unwrap_or_default()
    }

    /// The deadline of a request whose caller sets none.
    pub(crate) fn default_deadline(&self) -> Duration {
        **self.default_deadline.load()
    }
}

fn views(config: &Config) -> Views {
    let view = |model: &Model| (model.name.to_string(), model.view);
    config.models.iter().map(view).filter(|(_, view)| *view != View::default()).collect()
}

/// The limits on the tensors of one request.
pub(crate) fn tensors(config: &Config) -> Limits {
    Limits {
        max_treatments: config.server.max_treatments as usize,
        max_users: config.server.max_users as usize,
        max_tensor_bytes: config.server.max_tensors.bytes(),
    }
}
