//! Fronts: the protocols in which callers make calls.
//!
//! A front is a value. The guard, the metrics, the traces and the record of changes take from it
//! whatever differs between protocols, so a further protocol is a further value and no arm of a
//! match elsewhere. Its decoding and encoding of predictions are
//! [`Exchange`](crate::predict::Exchange)s in the same module.

use std::time::Duration;

use axum::{http::HeaderMap, response::Response};
use outrigger_core::Failure;
use tonic::Status;

use crate::{audit::Verb, config::Right, metrics::Latency};

/// The number of fronts that the wiring creates. Each has a distinct `index` below this number.
pub(crate) const COUNT: usize = 6;

/// A protocol in which callers make calls.
#[derive(Debug)]
pub(crate) struct Front {
    /// The label `surface` of metrics and logs.
    pub(crate) name: &'static str,
    /// Its number, from 0.
    pub(crate) index: usize,
    /// The paths that it answers; the first route that matches counts.
    pub(crate) routes: &'static [Route],
    /// The header in which callers send their timeout.
    pub(crate) timeout: Timeout,
    /// Turns a failure into a response.
    pub(crate) respond: fn(&Failure) -> Response,
    /// Extracts the status of a failed response that no handler of this server made.
    pub(crate) foreign: fn(&HeaderMap) -> Option<Status>,
    /// True if answers may continue as long as the caller listens.
    pub(crate) streams: bool,
    /// The attribute `rpc.system` of its spans, which then also have a gRPC status code.
    pub(crate) rpc_system: Option<&'static str>,
    /// The metric of its predictions' latency under a name of the protocol.
    pub(crate) latency: Option<Latency>,
}

/// A header in which callers send their timeout, and its parser.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeout {
    pub(crate) header: &'static str,
    pub(crate) read: fn(&str) -> Option<Duration>,
}

/// A path that callers can request, with the rules for it.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: Path,
    pub(crate) method: Method,
    /// The name of its spans; `None` if it is requested too often to be traced.
    pub(crate) span: Option<&'static str>,
    /// The right that it requires; `None` if it is open to every caller.
    pub(crate) right: Option<Right>,
    /// The change that it makes. The handler checks the right to it, because only the handler knows
    /// what is changed, which the record of changes needs.
    pub(crate) change: Option<Verb>,
}

/// A pattern of request paths.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path {
    Exact(&'static str),
    /// All paths with this prefix.
    Under(&'static str),
    /// All paths with a prefix and an end, in any case: `/v1/models/NAME:VERB`.
    Verb(&'static str, &'static str),
}

/// The method of a call, as coarse as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Predict,
    BatchPredict,
    Explain,
    Models,
    Canaries,
    Validation,
    Metadata,
    Other,
}

impl Front {
    /// The route for a request path.
    pub(crate) fn route(&self, path: &str) -> &'static Route {
        self.routes.iter().find(|route| route.path.has(path)).unwrap_or(&Route::OTHER)
    }
}

impl Route {
    /// Any other path. A path that is not declared open requires the right to read.
    pub(crate) const OTHER: Self = Self {
        path: Path::Under(""),
        method: Method::Other,
        span: None,
        right: Some(Right::Read),
        change: None,
    };

    /// A prediction, or its explanation.
    pub(crate) const fn compute(path: &'static str, method: Method, span: &'static str) -> Self {
        let (path, span, right) = (Path::Exact(path), Some(span), Some(Right::Predict));
        Self { path, method, span, right, change: None }
    }

    /// A query of the states of models and canaries.
    pub(crate) const fn read(path: Path, method: Method, span: &'static str) -> Self {
        Self { path, method, span: Some(span), right: Some(Right::Read), change: None }
    }

    /// A standard protocol that reveals no secrets, such as health or reflection: probes need it,
    /// and tools before they can call anything.
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
            Self::Verb(prefix, verb) => {
                let [prefix, verb] = [prefix, verb].map(str::as_bytes);
                let path = path.as_bytes();
                path.len() >= prefix.len() + verb.len()
                    && path[..prefix.len()].eq_ignore_ascii_case(prefix)
                    && path[path.len() - verb.len()..].eq_ignore_ascii_case(verb)
            }
        }
    }
}

impl Method {
    pub(crate) const ALL: [Self; 8] = [
        Self::Predict,
        Self::BatchPredict,
        Self::Explain,
        Self::Models,
        Self::Canaries,
        Self::Validation,
        Self::Metadata,
        Self::Other,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::BatchPredict => "batch_predict",
            Self::Explain => "explain",
            Self::Models => "models",
            Self::Canaries => "canaries",
            Self::Validation => "validation",
            Self::Metadata => "metadata",
            Self::Other => "other",
        }
    }

    /// True if the method computes or may load a model, and so counts against the limit on such
    /// calls.
    pub(crate) const fn computes(self) -> bool {
        matches!(self, Self::Predict | Self::BatchPredict | Self::Explain | Self::Metadata)
    }

    /// True if the method runs a model.
    pub(crate) const fn runs(self) -> bool {
        matches!(self, Self::Predict | Self::BatchPredict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{grpc, http, oip, xgboost_serving};

    const ALL: [&Front; COUNT] = [
        &grpc::FRONT,
        &http::FRONT,
        &xgboost_serving::GRPC,
        &xgboost_serving::REST,
        &oip::GRPC,
        &oip::REST,
    ];

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
    fn a_verb_is_the_end_of_a_path_in_any_case() {
        let of = |path| xgboost_serving::REST.route(path).method;
        assert_eq!(of("/v1/models/ads/versions/7:predict"), Method::Predict);
        assert_eq!(of("/V1/Models/ads:PREDICT_SOFTMAX"), Method::Predict);
        assert_eq!(of("/v1/models/ads"), Method::Models);
        assert_eq!(of("/v1/models/ads:predict:x"), Method::Models);
        assert_eq!(of("/v1/models:predict"), Method::Other);
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
