//! The limits of requests that a reload of the configuration can change.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use outrigger_core::ModelName;
use outrigger_features::Limits;

use crate::{admission::Admission, caller::Party, config::Config, limits::Limit};

/// The limits of requests, shared by all listeners. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Tunables {
    /// The limit on calls that compute.
    pub(crate) admission: Admission,
    /// The limit on one caller's calls that compute.
    pub(crate) per_caller: Limit<Party>,
    /// The limit on one model's calls.
    pub(crate) per_model: Limit<ModelName>,
    request: Arc<ArcSwap<Request>>,
}

/// The limits of a single request.
#[derive(Debug)]
struct Request {
    limits: Limits,
    default_deadline: Duration,
}

impl Tunables {
    pub(crate) fn new(config: &Config) -> Self {
        let (server, limits) = (&config.server, &config.limits);
        Self {
            admission: Admission::new(server.max_in_flight, server.max_waiting),
            per_caller: Limit::new(limits.per_caller, "one caller"),
            per_model: Limit::new(limits.per_model, "one model"),
            request: Arc::new(ArcSwap::from_pointee(Request::new(config))),
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
        self.request.store(Arc::new(Request::new(config)));
    }

    /// The limits on a request's tensors.
    pub(crate) fn limits(&self) -> Limits {
        self.request.load().limits
    }

    /// The deadline of a request whose caller gives none.
    pub(crate) fn default_deadline(&self) -> Duration {
        self.request.load().default_deadline
    }
}

impl Request {
    fn new(config: &Config) -> Self {
        Self { limits: limits(config), default_deadline: config.server.default_deadline.0 }
    }
}

/// The limits on the tensors of one request.
pub(crate) fn limits(config: &Config) -> Limits {
    Limits {
        max_treatments: config.server.max_treatments as usize,
        max_users: config.server.max_users as usize,
        max_tensor_bytes: config.server.max_tensors.bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    /// A value for every setting of this crate that reloads, other than its default.
    const OTHER: &[(&str, &str)] = &[
        ("limits.per_caller", "3"),
        ("limits.per_model", "4"),
        ("server.default_deadline", "5s"),
        ("server.max_in_flight", "6"),
        ("server.max_treatments", "7"),
        ("server.max_users", "8"),
        ("server.max_waiting", "9"),
    ];

    fn config(other: &[(&str, &str)]) -> Config {
        let flag = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let flags: Vec<_> = other.iter().map(flag).collect();
        load(Some("images: {repository: r.example/team}"), [], &flags).unwrap().config
    }

    #[tokio::test]
    async fn every_setting_that_reloads_is_applied() {
        let usual = config(&[]);
        let all = usual.changes(&config(OTHER));
        assert_eq!((all.len(), all.iter().all(|change| change.reloads)), (OTHER.len(), true));
        for setting in OTHER {
            let other = config(&[*setting]);
            let expected = format!("{:?}", Tunables::new(&other));
            let tunables = Tunables::new(&usual);
            assert_ne!(format!("{tunables:?}"), expected, "{setting:?}");
            tunables.apply(&other);
            assert_eq!(format!("{tunables:?}"), expected, "{setting:?}");
        }
    }
}
