//! PredictionService over encoded messages.

use bytes::Bytes;
use outrigger_proto::raw::outrigger::prediction_service_server::PredictionService;
use tonic::{Request, Response, Status, async_trait};

use crate::{call::Call, predict::Predictor};

/// Metadata that may repeat the model's name.
const NAMED: &str = "outrigger-model";

/// Hands messages to the predictor as they are.
pub(super) struct Prediction(pub(super) Predictor);

#[async_trait]
impl PredictionService for Prediction {
    async fn predict(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let call = call(&request);
        call.conclude(self.0.predict(&call, request.get_ref(), named(&request)).await)
            .map(Response::new)
    }

    async fn batch_predict(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let call = call(&request);
        call.conclude(self.0.batch(&call, request.get_ref(), named(&request)).await)
            .map(Response::new)
    }

    async fn explain(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let call = call(&request);
        call.conclude(self.0.explain(&call, request.get_ref(), named(&request)).await)
            .map(Response::new)
    }
}

/// The call that the guard began.
pub(super) fn call<T>(request: &Request<T>) -> Call {
    request.extensions().get::<Call>().expect("the guard stands before every handler").clone()
}

/// The name given in metadata; empty when several are given that differ.
fn named<T>(request: &Request<T>) -> Option<&[u8]> {
    let mut names = request.metadata().get_all(NAMED).iter().map(|name| name.as_encoded_bytes());
    let first = names.next()?;
    Some(if names.all(|name| name == first) { first } else { b"" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_are_no_name() {
        let mut request = Request::new(());
        assert_eq!(named(&request), None);
        for (name, expected) in [("churn", "churn"), ("churn", "churn"), ("other", "")] {
            request.metadata_mut().append(NAMED, name.parse().unwrap());
            assert_eq!(named(&request), Some(expected.as_bytes()));
        }
    }
}
