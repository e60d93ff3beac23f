//! The fields of a request that decide its route: model, request id and routing key.

use outrigger_proto::outrigger::v1::ModelSelector;

use super::Request;
use crate::limits::Limits;

/// The fields of a request that decide its route.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Routing<'a> {
    /// The requested model.
    pub model: Option<&'a ModelSelector>,
    /// The request's id; empty when there is none.
    pub request_id: &'a str,
    /// The key that decides the arm; empty when there is none.
    pub routing_key: &'a str,
}

/// The routing key of an encoded `outrigger.v1.PredictRequest`, empty when there is none;
/// `None` if the bytes are not a valid message.
pub fn routing_key(message: &[u8]) -> Option<&str> {
    let limits = Limits { max_treatments: 0, ..Limits::default() };
    Request::scan(message, &limits).ok().map(|request| request.routing_key)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outrigger_core::Reason;
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
        for (message, name) in [(request.encode_to_vec(), "churn"), (twice, "fraud")] {
            let message = Bytes::from(message);
            let parts = Request::read(&message, &Limits::default()).expect("a message");
            let model = model(name);
            let routing = Routing { model: model.as_ref(), request_id: "r1", routing_key: "u7" };
            assert_eq!(parts.routing(), routing);
            assert_eq!(routing_key(&message), Some("u7"));
        }
    }

    #[test]
    fn bytes_that_are_no_message_go_nowhere() {
        for garbage in [&b"\xff\xff\xff"[..], b"\x0a\x05ab", b"\x07", b"\x32\x05ab"] {
            assert_eq!(routing_key(garbage), None);
            let garbage = Bytes::from_static(garbage);
            let failure = Request::read(&garbage, &Limits::default()).unwrap_err();
            assert_eq!(failure.reason, Reason::RequestMalformed);
        }
    }
}
