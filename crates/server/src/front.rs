//! Fronts: the protocols in which callers make calls.
//!
//! A front is a value. The guard, the metrics, the traces and the record of changes
//! take from it what differs between protocols, so a further protocol is a further
//! value and no arm of a match elsewhere. It has its decoding and encoding of
//! predictions beside it, as [`Exchange`](crate::predict::Exchange)s.

use std::time::Duration;

use axum::{http::HeaderMap, response::Response};
use outrigger_core::Failure;
use tonic::Status;

use crate::{audit::Verb, config::Right, grpc, http};

/// All fronts, each at its index.
pub(crate) static ALL: [&Front; 2] = [&grpc::FRONT, &http::FRONT];
/// The number of fronts.
pub(crate) const COUNT: usize = ALL.len();

/// A protocol in which callers make calls.
#[derive(Debug)]
pub(crate) struct Front {
    /// The label `surface` of metrics and logs.
    pub(crate) name: &'static str,
    /// Its place in [`ALL`].
    pub(crate) index: usize,
    /// The paths that it answers; the first route that has a path counts.
    pub(crate) routes: &'static [Route],
    /// How callers say how long they wait.
    pub(crate) timeout: Timeout,
    /// Answers with a failure.
    pub(crate) respond: fn(&Failure) -> Response,
    /// The status of a failed response that no handler of ours made.
    pub(crate) foreign: fn(&HeaderMap) -> Option<Status>,
    /// Answers may go on for as long as the caller listens.
    pub(crate) streams: bool,
    /// The attribute `rpc.system` of its spans, which have a gRPC status code then.
    pub(crate) rpc_system: Option<&'static str>,
}

/// A header by which callers say how long they wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeout {
    pub(crate) header: &'static str,
    pub(crate) read: fn(&str) -> Option<Duration>,
}

/// Something that callers can ask for.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: Path,
    pub(crate) method: Method,
    /// The name of its spans; `None`: not traced, as it is asked for too often to be
    /// of interest.
    pub(crate) span: Option<&'static str>,
    /// The right that it takes; `None`: it is open to all.
    pub(crate) right: Option<Right>,
    /// The change that it makes. Its handler asks for the right to it, once it knows
    /// for the record what is changed.
    pub(crate) change: Option<Verb>,
}

/// Paths of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path {
    Exact(&'static str),
    /// All paths that begin so.
    Under(&'static str),
}

/// The kind of a call, as coarsely as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Predict,
    BatchPredict,
    Explain,
    Models,
    Canaries,
    Other,
}

impl Front {
    /// The route that a request path asks for.
    pub(crate) fn route(&self, path: &str) -> &'static Route {
        self.routes.iter().find(|route| route.path.has(path)).unwrap_or(&Route::OTHER)
    }
}

impl Route {
    /// Any other path: what is not known to be open takes the right to read.
    pub(crate) const OTHER: Self = Self {
        path: Path::Under(""),
        method: Method::Other,
        span: None,
        right: Some(Right::Read),
        change: None,
    };

    /// A prediction, or what leads up to one.
    pub(crate) const fn compute(path: &'static str, method: Method, span: &'static str) -> Self {
        let (path, span, right) = (Path::Exact(path), Some(span), Some(Right::Predict));
        Self { path, method, span, right, change: None }
    }

    /// States of models and canaries.
    pub(crate) const fn read(path: Path, method: Method, span: &'static str) -> Self {
        Self { path, method, span: Some(span), right: Some(Right::Read), change: None }
    }

    /// A protocol of others that tells no secrets: probes ask for it, and tools before
    /// they can ask for anything.
    pub(crate) const fn open(path: &'static str) -> Self {
        Self { path: Path::Under(path), right: None, ..Self::OTHER }
    }

    /// The route with the change that it makes.
    pub(crate) const fn changing(self, verb: Verb) -> Self {
        Self { change: Some(verb), ..self }
    }
}

impl Path {
    fn has(self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Under(prefix) => path.starts_with(prefix),
        }
    }
}

impl Method {
    pub(crate) const ALL: [Self; 6] = [
        Self::Predict,
        Self::BatchPredict,
        Self::Explain,
        Self::Models,
        Self::Canaries,
        Self::Other,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::BatchPredict => "batch_predict",
            Self::Explain => "explain",
            Self::Models => "models",
            Self::Canaries => "canaries",
            Self::Other => "other",
        }
    }

    /// Whether it computes, and so counts against the limit of such calls.
    pub(crate) const fn computes(self) -> bool {
        matches!(self, Self::Predict | Self::BatchPredict | Self::Explain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_front_is_at_its_index() {
        let indexes = ALL.map(|front| front.index);
        assert_eq!(indexes, std::array::from_fn(|index| index));
    }

    #[test]
    fn a_path_of_the_other_front_is_no_method() {
        let of = |front: &Front, path| front.route(path).method;
        let predict = "/outrigger.v1.PredictionService/Predict";
        assert_eq!(of(&grpc::FRONT, predict), Method::Predict);
        assert_eq!(of(&http::FRONT, predict), Method::Other);
        assert_eq!(of(&http::FRONT, "/v1/predict"), Method::Predict);
        assert_eq!(of(&grpc::FRONT, "/v1/predict"), Method::Other);
    }

    #[test]
    fn a_route_says_which_right_and_which_change() {
        let of = |path| grpc::FRONT.route(path);
        let predict = of("/outrigger.v1.PredictionService/Predict");
        assert_eq!((predict.right, predict.change), (Some(Right::Predict), None));
        let load = of("/outrigger.v1.ModelService/LoadModel");
        assert_eq!((load.method, load.change), (Method::Models, Some(Verb::Load)));
        let get = of("/outrigger.v1.ModelService/GetModel");
        assert_eq!((get.method, get.right, get.change), (Method::Models, Some(Right::Read), None));
        assert_eq!(of("/grpc.health.v1.Health/Check").right, None);
        assert_eq!(of("/unknown.Service/Method").right, Some(Right::Read));
    }
}
