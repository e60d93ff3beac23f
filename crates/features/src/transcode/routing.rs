//! The fields of a request that decide where it goes.

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::ModelSelector;
use prost::Message as _;

use super::{
    schema::SELECTOR,
    wire::{MAX_DEPTH, Malformed, Reader},
};

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
    /// Reads it from an encoded `outrigger.v1.PredictRequest`. The rest is read over:
    /// what comes after a treatment is mostly another one.
    ///
    /// # Errors
    /// REQUEST_MALFORMED when the bytes are no message.
    pub fn read(message: &[u8]) -> Result<Self, Failure> {
        Self::scan(message).map_err(|error| {
            Failure::new(Reason::RequestMalformed, format!("the message cannot be read: {error}"))
        })
    }

    fn scan(message: &[u8]) -> Result<Self, Malformed> {
        let (mut routing, mut rest) = (Self::default(), Reader::new(message));
        while !rest.is_empty() {
            if rest.accept(0x32) {
                rest.bytes()?;
                continue;
            }
            match rest.key()? {
                (1, wire_type) => routing.merge_model(rest.bytes_field(wire_type)?)?,
                (2, wire_type) => routing.request_id = rest.text_field(wire_type)?.to_owned(),
                (3, wire_type) => routing.routing_key = rest.text_field(wire_type)?.to_owned(),
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
            }
        }
        Ok(routing)
    }

    /// Takes a part of the selector, which may be sent in several.
    fn merge_model(&mut self, body: &[u8]) -> Result<(), Malformed> {
        SELECTOR.validate(body, MAX_DEPTH - 1)?;
        let model = self.model.get_or_insert_default();
        model.merge(body).map_err(|_| Malformed::Truncated)
    }
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{PredictRequest, ResponseOptions, Treatment};

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
        assert_eq!(Routing::read(&request.encode_to_vec()), Ok(routing("churn")));
        assert_eq!(Routing::read(&twice), Ok(routing("fraud")));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for garbage in [&b"\xff\xff\xff"[..], b"\x0a\x05ab", b"\x07", b"\x32\x05ab"] {
            let failure = Routing::read(garbage).unwrap_err();
            assert_eq!(failure.reason, Reason::RequestMalformed);
            assert!(failure.message.starts_with("the message cannot be read: "), "{failure:?}");
        }
    }
}
