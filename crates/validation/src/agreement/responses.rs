//! Comparison of two models' responses to the same request.

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{PredictRequest, PredictResponse};
use outrigger_tables::Cell;

use super::Agreement;
use crate::{answer, group::GroupRow, options::Tolerance};

impl Agreement {
    /// Compares the scores of `response` with those of `expected`, which another model gave for the
    /// same request. `number` is that of the request, and of its differences as rows. A treatment
    /// that has no score in one of the responses is not compared.
    ///
    /// # Errors
    /// SCORES_INVALID: a response does not fit the request.
    pub fn add_response(
        &mut self,
        (number, request): (u64, &PredictRequest),
        response: &PredictResponse,
        expected: &PredictResponse,
        tolerance: Tolerance,
    ) -> Result<(), Failure> {
        let ids = ids(request);
        let scores = |response: &PredictResponse| {
            let mut row = GroupRow { is_list: true, ..GroupRow::default() };
            answer::scores(std::slice::from_mut(&mut row), ids.len(), response)
        };
        let (scores, expected) = (scores(response)?, scores(expected)?);
        let mut row = GroupRow {
            number,
            user: Cell::Text(request.request_id.clone()),
            treatment: Cell::List(ids.iter().map(|id| Cell::Text(id.clone())).collect()),
            expected: expected.into_iter().next().unwrap_or_default(),
            is_list: true,
            ..GroupRow::default()
        };
        self.add(std::slice::from_mut(&mut row), &scores, tolerance);
        row.failure.map_or(Ok(()), Err)
    }
}

/// The id of each treatment of a request; empty for those without one.
fn ids(request: &PredictRequest) -> Vec<String> {
    match &request.treatment_table {
        Some(table) => {
            let mut ids = table.ids.clone();
            ids.resize(ids.len().max(table.count as usize), String::new());
            ids
        }
        None => request.treatments.iter().map(|treatment| treatment.id.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{ScoreList, Treatment, predict_response::Output};

    use super::*;

    const TOLERANCE: Tolerance = Tolerance { atol: 0.5, rtol: 0.0 };

    fn response(values: &[f32], indices: &[u32]) -> PredictResponse {
        let (values, indices) = (values.to_vec(), indices.to_vec());
        let list = ScoreList { values, indices, ..ScoreList::default() };
        PredictResponse { output: Some(Output::Scores(list)), ..PredictResponse::default() }
    }

    fn request(ids: &[&str]) -> PredictRequest {
        let treatment = |id: &&str| Treatment { id: (*id).to_owned(), ..Treatment::default() };
        let treatments = ids.iter().map(treatment).collect();
        PredictRequest { request_id: "u".to_owned(), treatments, ..PredictRequest::default() }
    }

    #[test]
    fn treatments_that_both_have_scored_are_compared() {
        let mut agreement = Agreement::default();
        let request = request(&["a", "b", "c"]);
        let (response, expected) =
            (response(&[1.0, 2.0, 3.0], &[]), response(&[5.0, 1.0], &[2, 0]));
        agreement.add_response((7, &request), &response, &expected, TOLERANCE).expect("scores");
        assert_eq!((agreement.compared, agreement.differing), (2, 1));
        let worst = &agreement.worst[0];
        assert_eq!((worst.row, worst.user.as_str(), worst.treatment.as_str()), (7, "u", "c"));
        assert_eq!((worst.score, worst.expected), (3.0, 5.0));
        assert_eq!(agreement.rank_correlation.mean, 1.0);
    }

    #[test]
    fn a_response_for_more_treatments_than_were_sent_is_refused() {
        let (request, fits, other) =
            (request(&["a"]), response(&[1.0], &[]), response(&[1.0, 2.0], &[]));
        for (response, expected) in [(&fits, &other), (&other, &fits)] {
            let mut agreement = Agreement::default();
            agreement
                .add_response((1, &request), response, expected, TOLERANCE)
                .expect_err("it does not fit");
            assert_eq!(agreement, Agreement::default());
        }
    }

    #[test]
    fn the_one_score_of_a_user_is_compared() {
        let single = |score| PredictResponse {
            output: Some(Output::Score(score)),
            ..PredictResponse::default()
        };
        let mut agreement = Agreement::default();
        let request = request(&[]);
        let (response, expected) = (single(1.0), single(2.0));
        agreement.add_response((1, &request), &response, &expected, TOLERANCE).expect("scores");
        assert_eq!((agreement.compared, agreement.largest), (1, 1.0));
    }
}
