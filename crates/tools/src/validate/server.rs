//! Scores the rows of a file with a model of a running server, through its Predict calls.

use std::time::Duration;

use futures::future::join_all;
use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::{
    ModelSelector, PredictRequest, prediction_service_client::PredictionServiceClient,
};
use outrigger_validation::{Answer, Batching, Features, Predictor, concerns_a_request};
use prost::Message as _;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::{Report, Rows};
use crate::{Access, Error, ModelArgument, access::Connection};

/// The calls for one batch; two batches are scored at once.
const CONCURRENCY: usize = 8;
/// The attempts of a call that the server cannot answer at the moment.
const ATTEMPTS: u32 = 6;
/// The pause after the first attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of a response.
const MAX_RESPONSE: usize = 64 << 20;

/// Scores the rows with `model` of the server at `address`. Columns of CSV in `texts` are text,
/// even if they look like numbers. Each call may take `timeout`.
pub async fn validate_on_server(
    (address, access): (&str, &Access),
    model: ModelArgument,
    rows: Rows<'_>,
    texts: Vec<String>,
    timeout: Duration,
) -> Result<Report, Error> {
    let client = PredictionServiceClient::new(access.connect(address).await?);
    let client = client.max_decoding_message_size(MAX_RESPONSE);
    let server = Server { client, model: model.into(), timeout };
    let rows = rows.score(&server, Features::unknown(texts)).await?;
    Ok(Report { rows: Some(rows), ..Report::default() })
}

struct Server {
    client: PredictionServiceClient<Connection>,
    model: ModelSelector,
    timeout: Duration,
}

impl Predictor for Server {
    fn batching(&self) -> Batching {
        Batching { requests: CONCURRENCY, treatments: usize::MAX, mixed: true }
    }

    async fn predict(&self, requests: &[&[u8]]) -> Result<Vec<Answer>, Failure> {
        let answers = join_all(requests.iter().map(|request| self.call(request))).await;
        answers.into_iter().collect()
    }
}

impl Server {
    /// Calls Predict; again, if the server cannot answer at the moment.
    async fn call(&self, request: &[u8]) -> Result<Answer, Failure> {
        let mut message = PredictRequest::decode(request).map_err(|error| {
            Failure::new(Reason::Internal, format!("a request that was encoded wrongly: {error}"))
        })?;
        message.model = Some(self.model.clone());
        let mut attempt = 1;
        let status = loop {
            let mut call = Request::new(message.clone());
            call.set_timeout(self.timeout);
            match self.client.clone().predict(call).await {
                Ok(response) => return Ok(Ok(response.into_inner())),
                Err(status) if attempt < ATTEMPTS && passes(&status) => {}
                Err(status) => break status,
            }
            tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
            attempt += 1;
        };
        let failure = failure(&status);
        if concerns_a_request(&failure) { Ok(Err(failure)) } else { Err(failure) }
    }
}

/// True if the same call may succeed later.
fn passes(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}

/// The failure that the server reports. Proxies report none of its reasons.
fn failure(status: &Status) -> Failure {
    let info = status.get_details_error_info();
    match info.and_then(|info| Reason::named(&info.reason)) {
        Some(reason) => Failure::new(reason, status.message()),
        None => {
            Failure::new(Reason::Internal, format!("{:?}: {}", status.code(), status.message()))
        }
    }
}
