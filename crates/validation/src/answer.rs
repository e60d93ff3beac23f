//! The scores of a response as those of rows.

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::{PredictResponse, TreatmentError, predict_response::Output};
use outrigger_tables::Cell;

use crate::group::GroupRow;

/// The score of each treatment of a response, or the failure of the treatment.
type Scores = Vec<Result<f32, Failure>>;

/// Gives rows their scores in a response for `treatments` treatments. Rows that already have a
/// failure were not in the request.
///
/// # Errors
/// SCORES_INVALID: the response does not fit the request.
pub(crate) fn scores(
    rows: &mut [GroupRow],
    treatments: usize,
    response: &PredictResponse,
) -> Result<Vec<Cell>, Failure> {
    let is_list = rows.iter().any(|row| row.is_list);
    let scores = match &response.output {
        Some(Output::Score(score)) if is_list => {
            // The one score of the row stands beside the failure of a treatment.
            let failed = response.treatment_errors.iter().min_by_key(|error| error.index);
            let failure = failed.map(|error| {
                failure_of(error)
                    .map_message(|message| format!("treatments[{}]: {message}", error.index))
            });
            rows[0].failure = failure;
            return Ok(vec![Cell::List(vec![Cell::Single(*score)])]);
        }
        Some(Output::Score(score)) => vec![Ok(*score); treatments],
        Some(Output::Scores(list)) => {
            let mut scores = vec![Err(invalid("the treatment has no score")); treatments];
            for (at, score) in list.scores().enumerate() {
                let index = list.indices.get(at).map_or(at, |index| *index as usize);
                *place(&mut scores, index)? = Ok(score);
            }
            scores
        }
        None => return Err(invalid("the response has no scores")),
    };
    let scores = with_errors(scores, &response.treatment_errors)?;
    if is_list { Ok(list_scores(rows, scores)) } else { Ok(row_scores(rows, scores)) }
}

fn with_errors(mut scores: Scores, errors: &[TreatmentError]) -> Result<Scores, Failure> {
    for error in errors {
        *place(&mut scores, error.index as usize)? = Err(failure_of(error));
    }
    Ok(scores)
}

fn failure_of(error: &TreatmentError) -> Failure {
    let reason = Reason::named(&error.reason).unwrap_or(Reason::Internal);
    let (feature, message) = (&error.feature, &error.message);
    if feature.is_empty() {
        return Failure::new(reason, message.as_str());
    }
    let field = format!("treatments[{}].features[{feature:?}]", error.index);
    Failure::new(reason, format!("{feature}: {message}")).violation(field, message.as_str())
}

fn place(
    scores: &mut [Result<f32, Failure>],
    index: usize,
) -> Result<&mut Result<f32, Failure>, Failure> {
    scores.get_mut(index).ok_or_else(|| invalid("a score for a treatment that was not sent"))
}

/// The scores of a row that stands for all treatments. It has the failure of the first treatment
/// that failed.
fn list_scores(rows: &mut [GroupRow], scores: Scores) -> Vec<Cell> {
    let mut cells = Vec::with_capacity(scores.len());
    for (at, score) in scores.into_iter().enumerate() {
        match score {
            Ok(score) => cells.push(Cell::Single(score)),
            Err(failure) => {
                cells.push(Cell::Absent);
                let failure = failure.map_message(|message| format!("treatments[{at}]: {message}"));
                rows[0].failure.get_or_insert(failure);
            }
        }
    }
    vec![Cell::List(cells)]
}

fn row_scores(rows: &mut [GroupRow], scores: Scores) -> Vec<Cell> {
    let mut scores = scores.into_iter();
    let cell = |row: &mut GroupRow| {
        if row.failure.is_some() {
            return Cell::Absent;
        }
        match scores.next() {
            Some(Ok(score)) => return Cell::Single(score),
            Some(Err(failure)) => row.failure = Some(failure),
            None => row.failure = Some(invalid("the row has no score")),
        }
        Cell::Absent
    };
    rows.iter_mut().map(cell).collect()
}

fn invalid(message: &str) -> Failure {
    Failure::new(Reason::ScoresInvalid, message)
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::ScoreList;

    use super::*;

    fn response(values: &[f32], indices: &[u32]) -> PredictResponse {
        let (values, indices) = (values.to_vec(), indices.to_vec());
        let list = ScoreList { values, indices, ..ScoreList::default() };
        PredictResponse { output: Some(Output::Scores(list)), ..PredictResponse::default() }
    }

    fn skipped(index: u32) -> TreatmentError {
        let [reason, feature, message] =
            ["FEATURE_TYPE", "a", "expected a number"].map(str::to_owned);
        TreatmentError { index, reason, feature, message, ..TreatmentError::default() }
    }

    fn rows(count: usize) -> Vec<GroupRow> {
        (0..count).map(|_| GroupRow::default()).collect()
    }

    #[test]
    fn a_row_that_was_not_sent_shifts_no_score() {
        let mut rows = rows(4);
        rows[1].failure = Some(invalid("before"));
        let mut response = response(&[0.5, 0.25], &[0, 2]);
        response.treatment_errors.push(skipped(1));
        let cells = scores(&mut rows, 3, &response).expect("scores");
        let expected = [Cell::Single(0.5), Cell::Absent, Cell::Absent, Cell::Single(0.25)];
        assert_eq!(cells, expected);
        let reason = |row: &GroupRow| row.failure.as_ref().map(|failure| failure.reason);
        let reasons: Vec<_> = rows.iter().map(reason).collect();
        let expected = [None, Some(Reason::ScoresInvalid), Some(Reason::FeatureType), None];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn the_one_score_of_a_list_stands_beside_the_failure_of_a_treatment() {
        let mut rows = vec![GroupRow { is_list: true, ..GroupRow::default() }];
        let response = PredictResponse {
            output: Some(Output::Score(0.5)),
            treatment_errors: vec![skipped(2)],
            ..PredictResponse::default()
        };
        let cells = scores(&mut rows, 3, &response).expect("a score");
        assert_eq!(cells, [Cell::List(vec![Cell::Single(0.5)])]);
        let failure = rows[0].failure.as_ref().expect("a failure");
        assert!(failure.message.starts_with("treatments[2]: a: "), "{}", failure.message);
    }

    #[test]
    fn a_list_has_the_failure_of_its_first_treatment_that_failed() {
        let mut rows = vec![GroupRow { is_list: true, ..GroupRow::default() }];
        let mut response = response(&[0.5], &[1]);
        response.treatment_errors.extend([skipped(0), skipped(2)]);
        let cells = scores(&mut rows, 3, &response).expect("scores");
        assert_eq!(cells, [Cell::List(vec![Cell::Absent, Cell::Single(0.5), Cell::Absent])]);
        let failure = rows[0].failure.as_ref().expect("a failure");
        assert_eq!(failure.to_string(), "FEATURE_TYPE: treatments[0]: a: expected a number");
    }

    #[test]
    fn the_score_of_a_user_is_that_of_each_row() {
        let output = Some(Output::Score(0.5));
        let response = PredictResponse { output, ..PredictResponse::default() };
        let cells = scores(&mut rows(2), 2, &response).expect("scores");
        assert_eq!(cells, [Cell::Single(0.5), Cell::Single(0.5)]);
        let mut list = vec![GroupRow { is_list: true, ..GroupRow::default() }];
        let cells = scores(&mut list, 0, &response).expect("scores");
        assert_eq!(cells, [Cell::List(vec![Cell::Single(0.5)])]);
    }

    #[test]
    fn one_of_several_columns_is_the_score() {
        let mut wide = response(&[0.1, 0.9, 0.4, 0.6], &[1, 0]);
        if let Some(Output::Scores(list)) = &mut wide.output {
            (list.width, list.score_column) = (2, 1);
        }
        let cells = scores(&mut rows(2), 2, &wide).expect("scores");
        assert_eq!(cells, [Cell::Single(0.6), Cell::Single(0.9)]);
    }

    #[test]
    fn a_response_that_does_not_fit_is_refused() {
        for wrong in [response(&[1.0, 2.0], &[]), PredictResponse::default()] {
            let failure = scores(&mut rows(1), 1, &wrong).expect_err("it does not fit");
            assert_eq!(failure.reason, Reason::ScoresInvalid);
        }
        let mut rows = rows(2);
        scores(&mut rows, 2, &response(&[1.0], &[])).expect("one score");
        assert!(rows[0].failure.is_none() && rows[1].failure.is_some());
    }
}
