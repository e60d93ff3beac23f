//! Counts and compares the scores that two models give to the same requests.

use std::collections::BTreeSet;

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::{PredictRequest, PredictResponse};
use outrigger_validation::{Agreement, Answer, Report, RowError, Tolerance};
use serde::Serialize;

/// The most failures that are listed.
const LISTED: usize = 10;

/// The scores of two models for the same requests.
#[derive(Debug, Default, Serialize)]
pub struct Scores {
    /// The number of requests that both models have answered.
    pub requests: u64,
    /// The number of requests, and of treatments of other requests, that only A has scored.
    pub only_a: u64,
    /// The number of requests, and of treatments of other requests, that only B has scored.
    pub only_b: u64,
    /// The number of requests, treatments and rows that neither has scored.
    pub unscored: u64,
    /// The number of requests with other numbers of scores in A than in B.
    pub incomparable: u64,
    /// True if the comparison ended early, because too many rows were sent to neither model.
    pub stopped: bool,
    /// The first failures.
    pub first_failures: Vec<ScoreFailure>,
    /// The scores of B compared with those of A, which are the expected ones. `row` is the number of
    /// the request, or the line of a golden case.
    pub agreement: Agreement,
}

/// A request, treatment or row that a model, or neither, has scored.
#[derive(Debug, Serialize)]
pub struct ScoreFailure {
    /// Its place, such as `A line 3` (of golden.jsonl), `request 3` or `row 3`.
    pub at: String,
    /// The stable reason.
    pub reason: Reason,
    /// The cause, with the model that has scored it, if one has.
    pub message: String,
}

impl Scores {
    /// True if a score differs, only one model has one, or one model has more of them.
    pub(super) fn differ(&self) -> bool {
        let counts = [self.agreement.differing, self.only_a, self.only_b, self.incomparable];
        counts.iter().any(|count| *count > 0)
    }

    /// Compares the answers to a request, which is at `at` and has this number.
    pub(super) fn compare(
        &mut self,
        (at, number): (&str, u64),
        request: &PredictRequest,
        answers: (Answer, Answer),
        tolerance: Tolerance,
    ) {
        let (a, b) = match answers {
            (Ok(a), Ok(b)) => (a, b),
            (a, b) => return self.add_failure(at, a.err().as_ref(), b.err().as_ref()),
        };
        self.requests += 1;
        let failed = [&a, &b].map(failed).into_iter().flatten();
        for index in failed.collect::<BTreeSet<_>>() {
            let [a, b] = [&a, &b].map(|response| failure(response, index));
            self.add_failure(at, a.as_ref(), b.as_ref());
        }
        let added = self.agreement.add_response((number, request), &b, &a, tolerance);
        if let Err(failure) = added {
            self.incomparable += 1;
            self.list(at, Reason::ScoresInvalid, failure.message);
        }
    }

    /// Counts what one of the models, or neither, has scored.
    fn add_failure(&mut self, at: &str, a: Option<&Failure>, b: Option<&Failure>) {
        let (count, what, failure) = match (a, b) {
            (None, None) => return,
            (None, Some(failure)) => (&mut self.only_a, "only A scores it: ", failure),
            (Some(failure), None) => (&mut self.only_b, "only B scores it: ", failure),
            (Some(failure), Some(_)) => (&mut self.unscored, "", failure),
        };
        *count += 1;
        self.list(at, failure.reason, format!("{what}{}", failure.message));
    }

    /// Counts the rows of a file that were sent to neither model, which are the errors of its run.
    /// They are listed before other failures.
    pub(super) fn add_unsent(&mut self, run: Report) {
        self.unscored += run.errors;
        self.stopped = run.stopped;
        let of_row = |RowError { row, reason, message, .. }| {
            let at = format!("row {row}");
            ScoreFailure { at, reason, message }
        };
        self.first_failures.splice(0..0, run.first_errors.into_iter().map(of_row));
        self.first_failures.truncate(LISTED);
    }

    /// Lists a failure, if it is one of the first.
    fn list(&mut self, at: &str, reason: Reason, message: String) {
        if self.first_failures.len() < LISTED {
            self.first_failures.push(ScoreFailure { at: at.to_owned(), reason, message });
        }
    }
}

/// The indices of the treatments that a response has no score for.
fn failed(response: &PredictResponse) -> impl Iterator<Item = u32> {
    response.treatment_errors.iter().map(|error| error.index)
}

fn failure(response: &PredictResponse, index: u32) -> Option<Failure> {
    let error = response.treatment_errors.iter().find(|error| error.index == index)?;
    let reason = Reason::named(&error.reason).unwrap_or(Reason::Internal);
    Some(Failure::new(reason, format!("treatments[{index}]: {}: {}", error.feature, error.message)))
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{ScoreList, Treatment, predict_response::Output};

    use super::*;

    #[test]
    fn a_score_for_the_user_is_not_comparable_with_those_of_treatments() {
        let response =
            |output| Ok(PredictResponse { output: Some(output), ..PredictResponse::default() });
        let list = ScoreList { values: vec![1.0, 2.0], ..ScoreList::default() };
        let answers = (response(Output::Scores(list)), response(Output::Score(1.0)));
        let treatments = vec![Treatment::default(); 2];
        let request = PredictRequest { treatments, ..PredictRequest::default() };
        let mut scores = Scores::default();
        scores.compare(("A line 1", 1), &request, answers, Tolerance::default());
        assert_eq!((scores.requests, scores.incomparable, scores.unscored), (1, 1, 0));
        assert!(scores.differ());
        assert_eq!(scores.first_failures[0].message, "2 expected scores, but 1 scores");
    }

    #[test]
    fn rows_that_are_not_sent_are_listed_before_other_failures() {
        let failure = Failure::new(Reason::FeatureMissing, "x is missing");
        let mut scores = Scores::default();
        (0..LISTED).for_each(|_| scores.add_failure("request 1", None, Some(&failure)));
        let error = RowError {
            row: 7,
            reason: Reason::RequestMalformed,
            message: "no JSON".to_owned(),
            value: None,
        };
        let (first_errors, errors) = (vec![error], 101);
        scores.add_unsent(Report { first_errors, errors, stopped: true, ..Report::default() });
        assert_eq!((scores.unscored, scores.stopped), (101, true));
        assert_eq!((scores.first_failures.len(), &*scores.first_failures[0].at), (LISTED, "row 7"));
    }

    #[test]
    fn what_one_model_scores_alone_is_counted_for_it() {
        let (mut scores, failure) =
            (Scores::default(), Failure::new(Reason::FeatureMissing, "x is missing"));
        scores.add_failure("row 1", None, Some(&failure));
        assert!(scores.differ());
        assert_eq!(scores.first_failures[0].message, "only A scores it: x is missing");
        let mut neither = Scores::default();
        neither.add_failure("row 1", Some(&failure), Some(&failure));
        assert!(!neither.differ());
        assert_eq!((scores.only_a, scores.only_b, neither.unscored), (1, 0, 1));
    }
}
