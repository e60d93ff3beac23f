//! The fields of a request that decide where it goes.

use outrigger_proto::outrigger::v1::ModelSelector;

use super::Request;
use crate::Limits;

/// What of a request decides where it goes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Routing {
    /// The model asked for.
    pub model: Option<ModelSelector>,
    /// The request's id; empty when there is none.
    pub request_id: String,
    /// The key that decides on the arm; empty when there is none.
    pub routing_key: String,
}

impl Routing {
    /// Reads it from an encoded `outrigger.v1.PredictRequest`, of which nothing else is
    /// kept; `None` if the bytes are no message.
    pub fn of(message: &[u8]) -> Option<Self> {
        let limits = Limits { max_treatments: 0, ..Limits::default() };
        Request::scan(message, &limits).ok().map(|request| request.routing())
    }
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{PredictRequest, ResponseOptions, Treatment};
    use prost::Message as _;

    use super::*;

    fn model(name: &str) -> Option<ModelSelector> {
        Some(ModelSelector { name: name.into(), version: None })
    }

    #[test]
    fn it_is_found_before_and_after_treatments_and_the_last_counts() {
        let request = PredictRequest {
            model: model("churn"),
            request_id: "r1".into(),
            routing_key: "u7".into(),
            treatments: vec![Treatment::default(); 3],
            options: Some(ResponseOptions { top_k: 2, ..Default::default() }),
            ..Default::default()
        };
        let late = PredictRequest { model: model("fraud"), ..Default::default() };
        let twice = [request.encode_to_vec(), late.encode_to_vec()].concat();
        let routing = |name| Routing {
            model: model(name),
            request_id: "r1".into(),
            routing_key: "u7".into(),
        };
        assert_eq!(Routing::of(&request.encode_to_vec()), Some(routing("churn")));
        assert_eq!(Routing::of(&twice), Some(routing("fraud")));
    }

    #[test]
    fn bytes_that_are_no_message_go_nowhere() {
        for garbage in [&b"\xff\xff\xff"[..], b"\x0a\x05ab", b"\x07", b"\x32\x05ab"] {
            assert_eq!(Routing::of(garbage), None);
        }
    }
}
