//! Progress and reports as `outrigger.v1` has them.

use outrigger_proto::outrigger::v1::{
    ValidateFileResponse, ValidationProgress, ValidationReport,
    validate_file_response::Event,
    validation_report::{self, RankCorrelation},
};
use outrigger_validation::{Agreement, Difference, Progress, Report, RowError};

/// The progress of a run.
pub(super) fn progress(progress: &Progress) -> ValidateFileResponse {
    event(Event::Progress(ValidationProgress {
        fraction: progress.fraction(),
        rows: progress.rows(),
        errors: progress.errors(),
    }))
}

/// The result of a run.
pub(super) fn report(report: &Report) -> ValidateFileResponse {
    event(Event::Report(ValidationReport {
        passed: report.passed(),
        rows: report.rows,
        scored: report.scored,
        requests: report.requests,
        errors: report.errors,
        first_errors: report.first_errors.iter().map(error).collect(),
        stopped: report.stopped,
        // One version scores all rows.
        digest: report.digests.keys().next().cloned().unwrap_or_default(),
        ignored: report.ignored.clone(),
        agreement: report.agreement.as_ref().map(agreement),
    }))
}

fn event(event: Event) -> ValidateFileResponse {
    ValidateFileResponse { event: Some(event) }
}

fn error(error: &RowError) -> validation_report::Error {
    validation_report::Error {
        row: error.row,
        reason: error.reason.to_string(),
        message: error.message.clone(),
        value: error.value.clone().unwrap_or_default(),
    }
}

fn agreement(agreement: &Agreement) -> validation_report::Agreement {
    let ranks = &agreement.rank_correlation;
    validation_report::Agreement {
        compared: agreement.compared,
        differing: agreement.differing,
        largest: agreement.largest,
        mean: agreement.mean,
        worst: agreement.worst.iter().map(difference).collect(),
        rank_correlation: Some(RankCorrelation {
            requests: ranks.requests,
            mean: ranks.mean,
            lowest: ranks.lowest,
        }),
    }
}

fn difference(difference: &Difference) -> validation_report::Difference {
    validation_report::Difference {
        row: difference.row,
        index: difference.index.map(|index| u32::try_from(index).unwrap_or(u32::MAX)),
        user: difference.user.clone(),
        treatment: difference.treatment.clone(),
        expected: difference.expected,
        score: difference.score,
    }
}
