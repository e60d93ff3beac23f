//! The model and version that a request selects.

use bytes::Bytes;
use outrigger_core::{Failure, ModelName, Reason, Selector};
use outrigger_lifecycle::Handle;
use outrigger_proto::outrigger::v1::{ModelSelector, model_selector::Version};
use prost::Message;

/// The fields of `outrigger.v1.BatchPredictRequest` that select the model, and its options,
/// still encoded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchRouting {
    #[prost(message, optional, tag = "1")]
    pub(crate) model: Option<ModelSelector>,
    #[prost(string, tag = "2")]
    pub(crate) request_id: String,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(crate) options: Option<Bytes>,
}

/// Reads the fields of `M` from an encoded message.
///
/// # Errors
/// `REQUEST_MALFORMED` when the bytes are no such message.
pub(crate) fn read<M: Message + Default>(message: &Bytes) -> Result<M, Failure> {
    M::decode(message.clone()).map_err(|error| {
        Failure::new(Reason::RequestMalformed, format!("the message cannot be read: {error}"))
    })
}

/// The model that a selector names, and the version of it.
///
/// # Errors
/// `REQUEST_MALFORMED` without a valid name, tag or digest.
pub(crate) fn target(
    selector: Option<&ModelSelector>,
    models: &Handle,
) -> Result<(ModelName, Selector), Failure> {
    let Some(selector) = selector else {
        return Err(invalid("model", "must be given"));
    };
    let name: ModelName = parsed("model.name", &selector.name)?;
    let version = match &selector.version {
        None => models.default_selector(&name),
        Some(Version::Tag(tag)) => Selector::Tag(parsed("model.tag", tag)?),
        Some(Version::Digest(digest)) => Selector::Digest(parsed("model.digest", digest)?),
    };
    Ok((name, version))
}

/// Requires that a name given beside the request, for proxies that route by it, equals the name in
/// the request.
pub(crate) fn agree(named: Option<&[u8]>, model: &ModelName) -> Result<(), Failure> {
    match named {
        Some(named) if named != model.as_str().as_bytes() => {
            let message = format!("the metadata outrigger-model is not {model}");
            Err(Failure::new(Reason::RequestMalformed, message.clone())
                .violation("model.name", message))
        }
        _ => Ok(()),
    }
}

pub(crate) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    field: &str,
    text: &str,
) -> Result<T, Failure> {
    text.parse().map_err(|error| invalid(field, &format!("{error}")))
}

/// The failure for an unusable field of the request.
pub(crate) fn invalid(field: &str, problem: &str) -> Failure {
    Failure::of_field(Reason::RequestMalformed, field, problem)
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{BatchPredictRequest, PredictRequest, ResponseOptions};

    use super::*;

    #[test]
    fn options_of_a_batch_are_a_slice_of_it() {
        let options = Some(ResponseOptions { top_k: 2, ..Default::default() });
        let model = Some(ModelSelector { name: "churn".into(), version: None });
        let requests = vec![PredictRequest::default(); 2];
        let whole = BatchPredictRequest { model, requests, options, ..Default::default() };
        let encoded = Bytes::from(whole.encode_to_vec());
        let routing: BatchRouting = read(&encoded).unwrap();
        let options = routing.options.unwrap();
        assert_eq!(options, whole.options.unwrap().encode_to_vec());
        assert!(encoded.as_ptr_range().contains(&options.as_ptr()), "not a copy");
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for garbage in [&b"\xff\xff\xff"[..], b"\x0a\x05ab", b"\x07"] {
            let result: Result<BatchRouting, _> = read(&Bytes::from_static(garbage));
            assert_eq!(result.unwrap_err().reason, Reason::RequestMalformed);
        }
    }

    #[test]
    fn a_name_beside_the_request_must_be_the_one_within() {
        let model: ModelName = "churn".parse().unwrap();
        assert!(agree(None, &model).is_ok());
        assert!(agree(Some(b"churn"), &model).is_ok());
        assert!(agree(Some(b"other"), &model).is_err());
    }
}
