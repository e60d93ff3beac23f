//! Validation of files by a server: `outrigger models validate`.

use std::time::Duration;

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::{
    ValidateFileRequest, ValidationProgress, ValidationReport, validate_file_response::Event,
    validation_report, validation_service_client::ValidationServiceClient,
};
use outrigger_validation::{
    Agreement, Correlation, Difference, Options, Report, Reserved, RowError, Tolerance,
};
use tonic::Request;

use crate::{Access, Error, ModelArgument, access::Connection};

/// The most bytes of a report.
const MAX_REPORT: usize = 16 << 20;

/// A connection to a server's ValidationService.
#[derive(Debug, Clone)]
pub struct Validations {
    client: ValidationServiceClient<Connection>,
}

/// A file whose rows a server scores.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    /// Its path in the server's directory for validation.
    pub input: String,
    /// The path of the file for the scores; empty for none.
    pub scores: String,
    /// True if an existing file of scores is replaced.
    pub overwrite: bool,
}

impl Validations {
    /// Connects to `address`: `host:port`, `http://host:port` or `https://host:port`.
    pub async fn connect(address: &str, access: &Access) -> Result<Self, Error> {
        let client = ValidationServiceClient::new(access.connect(address).await?);
        Ok(Self { client: client.max_decoding_message_size(MAX_REPORT) })
    }

    /// Has the rows of a file scored, at most for `timeout`. Calls `seen` with the progress.
    pub async fn validate(
        &mut self,
        model: ModelArgument,
        file: File,
        options: &Options,
        timeout: Duration,
        mut seen: impl FnMut(&ValidationProgress),
    ) -> Result<Report, Error> {
        let File { input, scores, overwrite } = file;
        let Options { reserved, tolerance, max_errors, .. } = options;
        let Reserved { user, treatment, expected } = reserved.clone();
        let mut request = Request::new(ValidateFileRequest {
            model: Some(model.into()),
            input,
            scores,
            overwrite,
            user_column: user,
            treatment_column: treatment,
            expected_column: expected,
            atol: Some(tolerance.atol),
            rtol: Some(tolerance.rtol),
            max_errors: Some(u32::try_from(*max_errors).unwrap_or(u32::MAX)),
        });
        request.set_timeout(timeout);
        let mut events = self.client.validate_file(request).await?.into_inner();
        while let Some(message) = events.message().await? {
            match message.event {
                Some(Event::Report(found)) => return Ok(report(found, *tolerance)),
                Some(Event::Progress(progress)) => seen(&progress),
                None => {}
            }
        }
        let (reason, message) = (Reason::Internal.to_string(), "the run ended without a report");
        Err(Error::Refused { reason, message: message.to_owned() })
    }
}

fn report(found: ValidationReport, tolerance: Tolerance) -> Report {
    let errors = found.first_errors.into_iter().map(|error| RowError {
        row: error.row,
        reason: Reason::named(&error.reason).unwrap_or(Reason::Internal),
        message: error.message,
        value: Some(error.value).filter(|value| !value.is_empty()),
    });
    Report {
        rows: found.rows,
        scored: found.scored,
        requests: found.requests,
        errors: found.errors,
        first_errors: errors.collect(),
        stopped: found.stopped,
        digests: Some((found.digest, found.requests))
            .filter(|(digest, _)| !digest.is_empty())
            .into_iter()
            .collect(),
        ignored: found.ignored,
        agreement: found.agreement.map(agreement),
        tolerance,
    }
}

fn agreement(found: validation_report::Agreement) -> Agreement {
    let ranks = found.rank_correlation.unwrap_or_default();
    let mut agreement = Agreement::default();
    agreement.compared = found.compared;
    agreement.differing = found.differing;
    agreement.largest = found.largest;
    agreement.mean = found.mean;
    agreement.worst = found.worst.into_iter().map(difference).collect();
    agreement.rank_correlation =
        Correlation { requests: ranks.requests, mean: ranks.mean, lowest: ranks.lowest };
    agreement
}

fn difference(found: validation_report::Difference) -> Difference {
    Difference {
        row: found.row,
        index: found.index.map(|index| index as usize),
        user: found.user,
        treatment: found.treatment,
        expected: found.expected,
        score: found.score,
    }
}
